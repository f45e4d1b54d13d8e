"""Benchmarks: `python -m bench.<name>` prints a table; nothing here is a test."""
