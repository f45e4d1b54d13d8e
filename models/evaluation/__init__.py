"""Trained networks over the validation split, into a dump."""
