"""Weights of other programs' networks for figura's; `command` reads its arguments."""
