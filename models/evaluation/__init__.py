"""Trained networks over `evaluate.data`, into a dump."""
