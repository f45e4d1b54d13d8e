"""Differences of metrics between revisions by a paired bootstrap, and what other seeds would add.

Scores see the same resamples of the same examples for every revision, so that a difference of two estimates has draws
of its own: what is hard about an image is hard for both, and cancels (Efron and Tibshirani 1993, chapters 8 and 16).

Such an interval is about other images, not about other trainings, and training again with another seed often changes
more (Bouthillier et al. 2021, "Accounting for variance in machine learning benchmarks"). With seeds, the effect is the
difference of their means, and its variance is the sum of two parts: that of the images, from the bootstrap, and
s^2 (1/k + 1/m) for k and m seeds, where s^2 is pooled over all settings as in an analysis of variance. A t interval
follows, with degrees of freedom by Satterthwaite (1946). That is how radiology compares readers who all saw the same
cases (Obuchowski and Rockette 1995; Hillis 2007). Two or three seeds are too few to resample: of three, the bootstrap's
variance is a third too small, and it knows no t. Pooling assumes that settings spread alike; it gives one setting with
one seed an interval too. What seeds do to single images is counted in both parts, which errs on the safe side.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from figura.report.interfaces import Bootstrap, Estimate, Values
from figura.report.intervals import leave_out

Direction = Literal["lower", "higher"]
LEAST_GROUPS = 6
"""With fewer pairs, not even a sign test of pairs that all agree reaches 95 % (2 / 2^6 = 0.03)."""


class PairedEstimate(Estimate):
    """An estimate `{value, low, high}` that keeps what its interval was computed from.

    Attributes:
        groups: how many groups of examples were resampled.
        samples: (samples,), the statistic in each resample; NaN where it has none.
        left_out: (blocks,), the statistic without each block of groups (`intervals.leave_out`).
        sums: of a ratio, both sums for each group, (groups,) each.
        examples: (examples,), the values of which the statistic is the mean.
    """

    def __init__(
        self,
        estimate: Estimate,
        groups: int,
        samples: Values,
        left_out: Values,
        sums: tuple[Values, Values] | None = None,
    ) -> None:
        super().__init__(estimate)
        self.groups, self.samples, self.left_out, self.sums = groups, samples, left_out, sums
        self.examples: Values | None = None


class PairedBootstrap(Bootstrap):
    """A bootstrap whose estimates keep their draws, so that estimates of several revisions can be combined."""

    _groups = 0

    def draws(self, groups: int) -> Values:
        self._groups = groups
        return super().draws(groups)

    def estimate(
        self, values: Values, statistic: Callable[[Values], Any] | None = None, groups: Iterable[Hashable] | None = None
    ) -> Estimate:
        estimate = super().estimate(values, statistic, groups)
        if statistic is None and isinstance(estimate, PairedEstimate):
            estimate.examples = np.asarray(values, dtype=np.float64).reshape(len(values), -1).mean(axis=1)
        return estimate

    def ratio(self, above: Values, below: Values) -> PairedEstimate:
        groups = len(above)
        with np.errstate(invalid="ignore", divide="ignore"):
            samples, left_out = (
                (draws @ above) / (draws @ below) for draws in (self.draws(groups), leave_out(groups, self.samples))
            )
        return PairedEstimate(super().ratio(above, below), groups, samples, left_out, (above, below))

    def share(self, above: Values, below: Values) -> PairedEstimate:
        estimate = self.ratio(above, below)
        estimate.update(super().share(above, below))
        return estimate

    def bca(self, value: float, samples: Values, left_out: Values) -> PairedEstimate:
        return PairedEstimate(super().bca(value, samples, left_out), self._groups, samples, left_out)

    def combine(self, parts: Sequence[tuple[float, PairedEstimate]]) -> PairedEstimate:
        """Return the estimate of a weighted sum of estimates of the same groups, given (weight, estimate)."""
        sums = [one.sums for _, one in parts if one.sums is not None]
        if len(sums) == len(parts) and all(np.array_equal(below, sums[0][1]) for _, below in sums):
            above = sum((weight * one for (weight, _), (one, _) in zip(parts, sums, strict=True)), np.zeros(1))
            return self.ratio(above, sums[0][1])
        value, samples, left_out = (
            sum((weight * part(one) for weight, one in parts), np.zeros(1))
            for part in (lambda one: np.array([one["value"]]), lambda one: one.samples, lambda one: one.left_out)
        )
        self._groups = parts[0][1].groups
        return self.bca(float(value[0]), samples, left_out)


@dataclass(frozen=True)
class Spread:
    """The pooled variance of a metric between seeds, and its degrees of freedom; 0 of them if nothing is known."""

    variance: float
    freedom: int


def spread_of(settings: Sequence[Sequence[float]]) -> Spread:
    """Return the variance within settings, given a metric's value for each seed of each setting."""
    freedom = sum(len(values) - 1 for values in settings)
    squares = sum(float(np.square(np.asarray(values) - np.mean(values)).sum()) for values in settings)
    return Spread(squares / freedom if freedom else math.nan, freedom)


@dataclass(frozen=True)
class Effect:
    """What a metric's difference, second minus first, amounts to.

    Attributes:
        low, high: the interval over images, of the difference between these trainings.
        probability: the share of resamples in which the second is better; ties count half.
        seeds: the interval over images and seeds; None if no setting has two seeds.
        groups: of examples that were judged.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    probability: float
    seeds: tuple[float, float] | None
    better: Direction
    groups: int

    @property
    def beyond_images(self) -> bool:
        """Whether the interval over images leaves 0 out; never with fewer than `LEAST_GROUPS`."""
        return self.groups >= LEAST_GROUPS and not self.low <= 0 <= self.high

    @property
    def beyond_seeds(self) -> bool:
        """Whether both intervals leave 0 out; never without seeds."""
        return self.beyond_images and self.seeds is not None and not self.seeds[0] <= 0 <= self.seeds[1]

    @property
    def word(self) -> str:
        """Which way the second went: better or worse."""
        return "better" if (self.difference < 0) == (self.better == "lower") else "worse"


def effect_of(
    first: Sequence[PairedEstimate],
    second: Sequence[PairedEstimate],
    better: Direction,
    spread: Spread,
    bootstrap: PairedBootstrap,
) -> Effect:
    """Compare two settings, given the estimate of a metric for each of their seeds."""
    sides = [[(sign / len(side), one) for one in side] for sign, side in ((-1, first), (1, second))]
    both = bootstrap.combine([*sides[0], *sides[1]])
    samples = both.samples[np.isfinite(both.samples)]
    gains = -samples if better == "lower" else samples
    wide = None
    if spread.freedom:
        seeds = spread.variance * (1 / len(first) + 1 / len(second))
        images = float(np.var(samples, ddof=1)) if len(samples) > 1 else 0.0
        half = half_width([(seeds, spread.freedom), (images, max(both.groups - 1, 1))], bootstrap.confidence)
        wide = both["value"] - half, both["value"] + half
    return Effect(
        first=float(np.mean([one["value"] for one in first])),
        second=float(np.mean([one["value"] for one in second])),
        difference=both["value"],
        low=both["low"],
        high=both["high"],
        probability=float((gains > 0).mean() + 0.5 * (gains == 0).mean()),
        seeds=wide,
        better=better,
        groups=both.groups,
    )


def half_width(parts: Sequence[tuple[float, int]], confidence: float) -> float:
    """Return half of the t interval of a sum of independent parts, given (variance, degrees of freedom) of each."""
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 0.0
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in parts)
    return t_quantile((1 + confidence) / 2, freedom) * math.sqrt(total)


def t_quantile(share: float, freedom: float) -> float:
    """Return the quantile of Student's t for a share of at least 0.5 and any degrees of freedom from 1 on.

    With t = sqrt(freedom) tan(angle), the density of the angle is a power of its cosine.
    """
    angles = np.linspace(0, math.pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1)
    areas = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(float(np.interp((2 * share - 1) * areas[-1], areas, angles)))
