"""Which examples stand for all of them."""

import numpy as np


def evenly_spaced(length: int, count: int) -> list[int]:
    """Return at most `count` indices of `range(length)`, evenly spaced, from the first on."""
    return [int(index) for index in np.unique(np.linspace(0, length, min(count, length), endpoint=False).astype(int))]
