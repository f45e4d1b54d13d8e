"""Select a representative subset of examples."""

import numpy as np


def evenly_spaced(length: int, count: int) -> list[int]:
    """Return at most `count` indices of `range(length)`, evenly spaced, starting with 0."""
    return [int(index) for index in np.unique(np.linspace(0, length, min(count, length), endpoint=False).astype(int))]
