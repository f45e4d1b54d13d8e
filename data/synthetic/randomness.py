"""Where the drawn dataset gets its randomness from."""

from collections.abc import Hashable
from enum import IntEnum
from typing import Literal, TypeVar

import numpy as np

Split = Literal["train", "validation"]
Key = TypeVar("Key", bound=Hashable)
SPLITS: tuple[Split, ...] = ("train", "validation")


class Stream(IntEnum):
    """What a generator is for; its draws do not shift those of another."""

    IDENTITY = 0
    SCENE = 1
    CATALOGUE = 2
    PAIR = 3


def generator(seed: int, stream: Stream, split: Split, index: int) -> np.random.Generator:
    """The generator of one identity or scene: the same in whatever order and process things are drawn."""
    return np.random.default_rng(np.random.SeedSequence([seed, stream, SPLITS.index(split), index]))


def pick(random: np.random.Generator, shares: dict[Key, float]) -> Key:
    """A key of `shares` with its probability; independent of the order in which the keys are written."""
    keys = sorted(shares, key=str)
    return keys[int(random.choice(len(keys), p=np.array([shares[key] for key in keys]) / sum(shares.values())))]
