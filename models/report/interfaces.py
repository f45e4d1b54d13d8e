"""Base classes for the `metrics` section of a recipe: scores and pictures are functions of a dump."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError, nearest
from models.dump import Dump

Estimate = dict[str, float]
Values = NDArray[np.float64]


class Bootstrap:
    """Percentile bootstrap over examples (Efron and Tibshirani 1993, section 13.3), seeded."""

    def __init__(self, samples: int, confidence: float, seed: int) -> None:
        self.samples, self.confidence, self.seed = samples, confidence, seed

    def estimate(self, values: Values, statistic: Callable[[Values], Any] | None = None) -> Estimate:
        """Return `{value, low, high}` of a statistic of `values`, shape (examples, ...); the mean by default.

        `statistic` maps (..., examples, columns) to (...); examples are resampled with replacement.
        """
        compute = statistic or (lambda rows: rows.mean(axis=(-2, -1)))
        table = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
        random = np.random.default_rng(self.seed)
        draws = [compute(table[random.integers(len(table), size=len(table))]) for _ in range(self.samples)]
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(draws, [tail, 1 - tail])
        return {"value": float(compute(table)), "low": float(low), "high": float(high)}


class NotApplicableError(UserError):
    """The data have nothing for a score or picture to judge; the message is a sentence that says what they lack.

    `stages.metrics` prints it and leaves the score or picture out. Faults of a recipe or dump are a plain `UserError`.
    """


def rows_where(rows: Dump, mode: str, where: str | None) -> Dump:
    """Return the rows of a mode whose number named `where` is not 0; all rows if `where` is None.

    Raises:
        NotApplicableError: there is no such row.
        UserError: the dump has no such column.
    """
    if where is None:
        return rows
    if where not in rows.table:
        raise UserError(
            f"{rows.folder}: where: mode {mode!r} has no number {where!r}{nearest(where, map(str, rows.table))}"
        )
    chosen = rows.table[rows.table[where].fillna(0) != 0]
    if chosen.empty:
        raise NotApplicableError(f"{where} holds for none of the {len(rows)} examples of mode {mode!r}")
    return Dump(rows.folder, chosen, rows.part)


class Score:
    """The base of every `metrics.scores` entry."""

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        """Return metrics by name, computed only from the dump; raise NotApplicableError if it has nothing to judge."""
        raise TypeError(f"{type(self).__name__} scores nothing")


class Picture:
    """The base of every `metrics.pictures` entry."""

    suffix: ClassVar[str] = ".png"

    def __call__(self, dump: Dump, path: Path) -> None:
        """Draw to `path`; raise NotApplicableError if there is nothing to draw."""
        raise TypeError(f"{type(self).__name__} draws nothing")
