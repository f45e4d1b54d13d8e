"""Networks and losses of the variational U-Net."""
