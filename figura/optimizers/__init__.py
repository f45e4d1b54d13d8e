"""Optimizers with types without a dot; others are dotted, such as `torch.optim.Adam`."""
