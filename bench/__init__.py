"""Benchmarks, not tests: `python -m bench.<name>` prints a table."""
