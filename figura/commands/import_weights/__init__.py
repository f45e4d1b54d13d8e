"""Weights of other programs' networks for figura's; `__main__` is the command."""
