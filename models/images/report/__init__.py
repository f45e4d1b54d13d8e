"""Scores and sheets of images."""
