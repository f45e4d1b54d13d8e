"""What a score and a picture are to the engine: functions of a dump, named in the `metrics` section of a recipe."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from models.dump import Dump

Estimate = dict[str, float]
Values = NDArray[np.float64]


class Bootstrap:
    """Percentile bootstrap over instances (Efron and Tibshirani 1993, section 13.3), seeded."""

    def __init__(self, samples: int, confidence: float, seed: int) -> None:
        self.samples, self.confidence, self.seed = samples, confidence, seed

    def estimate(self, values: Values, statistic: Callable[[Values], Any] | None = None) -> Estimate:
        """Return `{value, low, high}` of a statistic of `values`, shape (instances, ...); the mean by default.

        `statistic` maps (..., instances, columns) to (...); instances are resampled with replacement.
        """
        compute = statistic or (lambda rows: rows.mean(axis=(-2, -1)))
        table = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
        random = np.random.default_rng(self.seed)
        draws = [compute(table[random.integers(len(table), size=len(table))]) for _ in range(self.samples)]
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(draws, [tail, 1 - tail])
        return {"value": float(compute(table)), "low": float(low), "high": float(high)}


class Score:
    """The base of every `metrics.scores` entry."""

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        """Return named figures; everything they need is in the dump."""
        raise TypeError(f"{type(self).__name__} scores nothing")


class Picture:
    """The base of every `metrics.pictures` entry."""

    suffix: ClassVar[str] = ".png"

    def __call__(self, dump: Dump, path: Path) -> None:
        """Draw to `path`."""
        raise TypeError(f"{type(self).__name__} draws nothing")
