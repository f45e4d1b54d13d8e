"""Shared by image recipes: data, losses, networks with fixed weights, reports."""
