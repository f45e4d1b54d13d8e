"""Metrics and drawings from a dump and a history; loads no training code."""
