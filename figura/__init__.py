"""Image models trained with many losses, as one reproducible DVC pipeline: `figura --help`, `figura.load`.

`models`, `stages`, `data` and `tools` stand beside this package in figura's repository, and inside it where figura is
installed.
"""
