"""Losses on images, features and logits."""
