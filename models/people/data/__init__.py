"""Datasets of people, their pairs, stick figures and placement."""
