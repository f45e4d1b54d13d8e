"""Comparison of predictions with the ground truth: the base class of `predict.compare`."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor


class Comparison:
    """The base of every `predict.compare` entry, which is named after the saved picture that it compares.

    Args:
        target: name of the ground truth; photos without it are not compared.
        inputs: names of example pictures to show beside both.
    """

    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, target: str, inputs: tuple[str, ...] = ()) -> None:
        self.target, self.inputs = target, inputs

    def __call__(self, image: Tensor, target: Tensor) -> Mapping[str, Tensor]:
        """Return values (N,), one per picture, for each of `names`, from (N, C, H, W) in [-1, 1]."""
        raise TypeError(f"{type(self).__name__} compares nothing")
