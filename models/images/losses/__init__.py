"""Losses on images and their features."""
