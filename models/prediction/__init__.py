"""Trained networks on pictures from anywhere."""
