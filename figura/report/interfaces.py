"""Base classes for the `metrics` section of a recipe: scores and pictures are functions of a dump."""

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError, nearest
from figura.dump import Dump
from figura.report import intervals
from figura.report.intervals import draw_groups, leave_out

Estimate = dict[str, float]
Values = NDArray[np.float64]


class Bootstrap:
    """Confidence intervals from `samples` resamples of the examples, seeded (`intervals.py`)."""

    def __init__(self, samples: int, confidence: float, seed: int) -> None:
        self.samples, self.confidence, self.seed = samples, confidence, seed

    def draws(self, groups: int) -> Values:
        """Return the number of times each resample draws each group, (samples, groups): equal for all metrics."""
        return draw_groups(self.samples, groups, self.seed)

    def estimate(
        self, values: Values, statistic: Callable[[Values], Any] | None = None, groups: Iterable[Hashable] | None = None
    ) -> Estimate:
        """Return `{value, low, high}` of a statistic of `values`, shape (examples, ...); the mean by default.

        `statistic` maps (examples, columns) to a number. Examples with equal `groups`, such as pictures of one person,
        are resampled together.
        """
        table = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
        owners = np.arange(len(table)) if groups is None else _numbered(groups)
        count = int(owners.max()) + 1
        if statistic is None:
            above, below = (
                np.bincount(owners, weights, count).astype(np.float64)
                for weights in (table.mean(axis=1), np.ones(len(table)))
            )
            return self.ratio(above, below)

        def compute(draws: Values) -> Values:
            chosen = (table[np.repeat(np.arange(len(table)), row[owners].astype(int))] for row in draws)
            return np.array([statistic(one) for one in chosen])

        return self.from_draws(float(statistic(table)), compute, count)

    def ratio(self, above: Values, below: Values) -> Estimate:
        """Return the estimate of sum(above) / sum(below), given both per group, (groups,)."""
        low, high = intervals.ratio(above, below, self.draws(len(above)), self.confidence)
        return {"value": float(above.sum() / below.sum()), "low": low, "high": high}

    def share(self, above: Values, below: Values) -> Estimate:
        """Return the estimate of a share: as `ratio`, but of hits and trials of each group (`intervals.share`)."""
        low, high = intervals.share(above, below, self.confidence)
        return {"value": float(above.sum() / below.sum()), "low": low, "high": high}

    def from_draws(self, value: float, compute: Callable[[Values], Values], groups: int) -> Estimate:
        """Return the estimate of any statistic of `groups` groups.

        `compute` maps draws (n, groups), the multiplicity of each group, to the statistic's values (n,); NaN if
        undefined.
        """
        return self.bca(value, compute(self.draws(groups)), compute(leave_out(groups, self.samples)))

    def bca(self, value: float, samples: Values, left_out: Values) -> Estimate:
        """Return the estimate of a statistic from its values for `draws` and for `leave_out`; NaN are ignored."""
        samples, left_out = (part[np.isfinite(part)] for part in (samples, left_out))
        low, high = intervals.bca(value, samples, left_out, self.confidence)
        return {"value": value, "low": low, "high": high}


def _numbered(groups: Iterable[Hashable]) -> NDArray[np.intp]:
    """Return each example's group index, in order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.intp)


class NotApplicableError(UserError):
    """A score or picture does not apply to the data; the message is a sentence about what is missing.

    `stages.metrics` prints it and skips the score or picture. Errors in a recipe or dump are a plain `UserError`.
    """


def rows_where(rows: Dump, mode: str, where: str | None) -> Dump:
    """Return the rows of a mode whose column `where` is neither 0 nor unknown; all rows if `where` is None.

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
    return rows.rows(chosen)


def groups_of(rows: Dump, mode: str, column: str | None) -> NDArray[np.intp]:
    """Return each row's group index in a mode: rows of a dataset with equal values of a column.

    Without a column, each example is a separate group, and so is one without a value: its draws belong together.

    Raises:
        UserError: the dump has no such column.
    """
    examples = rows.table["index"] if "index" in rows.table else range(len(rows))  # counted through all datasets
    if column is None:
        return _numbered(examples)
    if column not in rows.table:
        near = nearest(column, map(str, rows.table))
        raise UserError(f"{rows.folder}: mode {mode!r} has no column {column!r}{near}")
    cells = rows.table[column]
    # of texts, all blanks are one NaN, equal to itself
    known = zip(cells, cells.notna(), examples, strict=True)
    values = [value if there else ("unknown", example) for value, there, example in known]
    return _numbered(zip(rows.table["dataset"], values, strict=True) if "dataset" in rows.table else values)


class Score:
    """The base of every `metrics.scores` entry."""

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        """Return metrics by name, from only the dump; raise NotApplicableError if nothing can be scored."""
        raise TypeError(f"{type(self).__name__} scores nothing")


class Picture:
    """The base of every `metrics.pictures` entry.

    Attributes:
        suffix: file suffix among the plots: `.png`, or `.jpg` for sheets of photos, to save disk space.
    """

    suffix: ClassVar[Literal[".png", ".jpg"]] = ".png"

    def __call__(self, dump: Dump, path: Path) -> None:
        """Draw to `path`, a PNG file; raise NotApplicableError if there is nothing to draw."""
        raise TypeError(f"{type(self).__name__} draws nothing")
