"""Predictions beside what is true: the base class of `predict.compare`, and the table of a prediction's results."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from torch import Tensor

from models.prediction.inputs import Photo

TABLE = "predictions.csv"


class Comparison:
    """The base of every `predict.compare` entry, which is named after the saved picture that it judges.

    Args:
        target: name of the true picture; the photos that know none are not compared.
        inputs: names of the examples' pictures to show beside both.
    """

    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, target: str, inputs: tuple[str, ...] = ()) -> None:
        self.target, self.inputs = target, inputs

    def __call__(self, image: Tensor, target: Tensor) -> Mapping[str, Tensor]:
        """Return one value for each picture (N,), by the names of `names`, from (N, C, H, W) in [-1, 1]."""
        raise TypeError(f"{type(self).__name__} compares nothing")


class PredictionTable:
    """`predictions.csv` in a folder: a row for each result, written as it comes, and the means of all numbers.

    The columns are `name`, of the result; `file`, of the photo; `image_id`, the photo's number from 1; `frame`, its
    place in a video; then the numbers of the comparisons.
    """

    def __init__(self, folder: Path, numbers: Sequence[str]) -> None:
        self.path, self.numbers = folder / TABLE, list(numbers)
        self._sums, self.rows = dict.fromkeys(numbers, 0.0), 0
        self._file: IO[str] | None = None

    def add(self, name: str, photo: Photo, values: Mapping[str, float]) -> None:
        """Write a row."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", newline="", encoding="utf-8")
            self._write(["name", "file", "image_id", "frame", *self.numbers])
        frame = "" if photo.place is None else photo.place
        self._write([name, photo.path, photo.number, frame, *(f"{values[one]:.6g}" for one in self.numbers)])
        self.rows += 1
        for one in self.numbers:
            self._sums[one] += values[one]

    def _write(self, cells: Sequence[Any]) -> None:
        assert self._file is not None
        csv.writer(self._file, lineterminator="\n").writerow(cells)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def means(self) -> dict[str, float]:
        """Return the mean of each number over all rows; nothing without a row."""
        return {name: total / self.rows for name, total in self._sums.items()} if self.rows else {}
