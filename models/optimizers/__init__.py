"""Optimizers that a recipe names without a dot; others are dotted, such as `torch.optim.Adam`."""
