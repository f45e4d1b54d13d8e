"""All random numbers are a pure function of the recipe's seed and of where they are drawn.

An exact resume therefore needs no saved generators: iteration 1000 draws the same numbers whether or not this process
ran iteration 999, and whatever was logged in between.
"""

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def derive(seed: int, *words: str | int) -> int:
    """Return a 63-bit seed for the location identified by `words`; different locations have independent seeds."""
    entropy = [seed, *(word if isinstance(word, int) else zlib.crc32(word.encode()) for word in words)]
    entropy.append(len(words))  # otherwise, trailing zeros would make no difference
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int, *words: str | int) -> np.random.Generator:
    """Return a NumPy generator for the location identified by `words`."""
    return np.random.default_rng(derive(seed, *words))


def seed_here(seed: int, *words: str | int) -> None:
    """Seed torch (all devices), NumPy's and Python's global generators for the location `words`."""
    value: Any = derive(seed, *words)
    torch.manual_seed(value)
    np.random.seed(value % 2**32)  # for users' code that draws from the global generator
    random.seed(value)


@contextmanager
def random_kept() -> Iterator[None]:
    """Restore the global generators of torch (CPU and CUDA), NumPy and Python afterwards.

    Other devices are not restored, nor is CUDA if the process has not used it before: PyTorch keeps the last seed for
    its first use.
    """
    numpy_state, python_state = np.random.get_state(), random.getstate()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # `manual_seed` seeds all
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)
