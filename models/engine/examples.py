"""What a dataset is to the engine."""

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from torch.utils.data import Dataset

Example = dict[str, Any]


class Records(list[dict[str, Any]]):
    """Any number of plain dictionaries that belong to one example, such as its annotations; a batch is a list of these."""


class Examples(Dataset[Example]):
    """A finite, ordered collection of examples; the base of every `data.train` and `data.validation` entry.

    An example maps names to arrays or tensors of fixed shape (they are stacked to a batch, which becomes the `State`)
    or to plain numbers and strings (collected to a tensor or a list), or to `Records`. `names` and `provides` say which, so that a recipe can be checked
    before any file is opened.
    """

    names: ClassVar[tuple[str, ...]]

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in an example of a dataset constructed with `arguments`; `names` unless some are optional."""
        return cls.names

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} has no length")

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Example `index`, 0 <= index < len(self). All its randomness comes from `random`.

        The engine seeds `random` from (seed, epoch, index) in training and from (seed, index) in validation, so an
        example depends neither on the number of workers nor on what was read before it.
        """
        raise TypeError(f"{type(self).__name__} gives no examples")

    def group(self, index: int) -> Hashable:
        """What examples must have in common to share a batch of the validation split, such as their size."""
        return None

    def __getitem__(self, index: int) -> Example:
        return self.example(index, np.random.default_rng(index))
