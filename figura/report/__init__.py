"""Metrics and drawings from a dump and a history; imports no training code."""
