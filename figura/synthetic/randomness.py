"""Random generators of the synthetic data."""

from collections.abc import Hashable
from enum import IntEnum
from typing import Literal, TypeVar, get_args

import numpy as np

Split = Literal["train", "validation", "test"]
Key = TypeVar("Key", bound=Hashable)
SPLITS: tuple[Split, ...] = get_args(Split)


class Stream(IntEnum):
    """The purpose of a generator; streams are independent of each other."""

    IDENTITY = 0
    SCENE = 1
    CATALOGUE = 2
    PAIR = 3
    DAY_NIGHT = 4


def generator(seed: int, stream: Stream, split: Split, index: int) -> np.random.Generator:
    """Return the generator of one identity or scene; independent of drawing order and process."""
    return np.random.default_rng(np.random.SeedSequence([seed, stream, SPLITS.index(split), index]))


def pick(random: np.random.Generator, shares: dict[Key, float]) -> Key:
    """Draw a key of `shares` with its probability; the order of the keys does not matter."""
    keys = sorted(shares, key=str)
    return keys[int(random.choice(len(keys), p=np.array([shares[key] for key in keys]) / sum(shares.values())))]
