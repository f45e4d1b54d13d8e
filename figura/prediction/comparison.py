"""Comparison of predictions with the ground truth: the base class of `predict.compare`, and the table of results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from figura.base.errors import one_line
from figura.dump import Table
from figura.prediction.inputs import Photo

TABLE = "predictions.csv"


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


class PredictionTable:
    """`predictions.csv` in a folder: one row per result, and the means of all numbers; it appears on `close`.

    The columns are `name` (of the result), `file` (of the photo), `image_id` (the photo's number from 1), `frame` (its
    index in a video), then the numbers of the comparisons.
    """

    def __init__(self, folder: Path, numbers: Sequence[str]) -> None:
        self.path, self.numbers = folder / TABLE, list(numbers)
        self._sums, self.rows = dict.fromkeys(numbers, 0.0), 0
        self._table: Table | None = None

    def add(self, name: str, photo: Photo, values: Mapping[str, float]) -> None:
        """Write a row."""
        self._table = self._table or Table(self.path)
        frame = "" if photo.place is None else photo.place
        row = {"name": one_line(name), "file": one_line(str(photo.path)), "image_id": photo.number, "frame": frame}
        self._table.add(row | {one: f"{values[one]:.6g}" for one in self.numbers})
        self.rows += 1
        for one in self.numbers:
            self._sums[one] += values[one]

    def close(self) -> None:
        """Move the rows, if any, to `predictions.csv`."""
        if self._table is not None:
            self._table.close()

    def means(self) -> dict[str, float]:
        """Return the mean of each number over all rows; empty without rows."""
        return {name: total / self.rows for name, total in self._sums.items()} if self.rows else {}
