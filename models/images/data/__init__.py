"""Datasets of images and their augmentation."""
