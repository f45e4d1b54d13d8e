"""Scores of the variational U-Net."""
