"""Bootstrap confidence intervals of statistics of independent groups of examples.

A group is one example, or all examples of one person. `draws` (samples, groups) is the number of times each resample
draws each group. Intervals of means and ratios are studentised, and those of other statistics are BCa: plain
percentiles are too narrow for few groups (measured by `python -m bench.interval_coverage`). Those of shares, of values
0 and 1, have a formula: where all values are equal, so are all resamples.
"""

from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NORMAL = NormalDist()


@lru_cache(maxsize=2)  # all metrics of as many groups have the same draws
def draw_groups(samples: int, groups: int, seed: int) -> Floats:
    """Draw `samples` resamples of the size of the data; return the count of each group, (samples, groups)."""
    random = np.random.default_rng(seed)
    places = random.integers(groups, size=(samples, groups))
    return np.stack([np.bincount(row, minlength=groups) for row in places]).astype(np.float64)


def leave_out(groups: int, blocks: int) -> Floats:
    """Return draws of all groups except one block, for at most `blocks` blocks of equal size, (blocks, groups)."""
    blocks = min(blocks, groups)
    return (np.arange(groups) * blocks // groups != np.arange(blocks)[:, None]).astype(np.float64)


def ratio(above: Floats, below: Floats, draws: Floats, confidence: float) -> tuple[float, float]:
    """Return the studentised interval of sum(above) / sum(below), given both per group.

    The standard error is that of a ratio of sums over groups (Cochran 1977, equation 6.13), the interval that of Efron
    and Tibshirani (1993, section 12.5). Resamples without spread, which draw a single group, have no studentised value
    and are ignored. If they are more than a tail, because there are three groups or nearly all agree, plain percentiles
    are used, which are too narrow. With fewer than two groups, both ends are the value.
    """
    value = float(above.sum() / below.sum())
    if len(above) < 2:
        return value, value
    away = above - value * below  # squares of numbers near 0 lose less precision
    shifts, errors = _shifts(away, below, draws)
    (_,), (error,) = _shifts(away, below, np.ones((1, len(above))))
    usable = np.isfinite(shifts)
    shifts, errors = shifts[usable], errors[usable]
    tail = (1 - confidence) / 2
    flat = errors <= 1e-6 * error  # square roots of differences that are 0 up to rounding
    if error == 0 or not len(shifts) or flat.mean() > tail:
        low, high = np.quantile(shifts, [tail, 1 - tail]) if len(shifts) else (0.0, 0.0)
        return value + float(low), value + float(high)
    low, high = np.quantile(shifts[~flat] / errors[~flat], [tail, 1 - tail])
    return float(value - high * error), float(value - low * error)


def share(above: Floats, below: Floats, confidence: float) -> tuple[float, float]:
    """Return the interval of a share, sum(above) / sum(below), given hits and trials of each group.

    It is the score interval (Wilson 1927), which does not shrink to a point where all or none are hits. Trials of a
    group may agree more than those of different groups; the number of trials is then that of independent ones with the
    same variance (Korn and Graubard 1998, "Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data"), or that of groups where no variance is seen.
    """
    trials = float(below.sum())
    value = float(above.sum()) / trials
    squares = float(np.square(above - value * below).sum())
    count = min(value * (1 - value) * trials**2 / squares, trials) if squares > 0 else float((below > 0).sum())
    z = NORMAL.inv_cdf((1 + confidence) / 2)
    centre, shrink = value + z**2 / (2 * count), 1 + z**2 / count
    half = z * float(np.sqrt(value * (1 - value) / count + z**2 / (4 * count**2)))
    return max(0.0, (centre - half) / shrink), min(1.0, (centre + half) / shrink)


def _shifts(away: Floats, below: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """Return the shift of the ratio in each row of `draws`, and its standard error; NaN where the denominator is 0."""
    denominators, groups = draws @ below, draws.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        shifts = (draws @ away) / denominators
        squares = draws @ away**2 - 2 * shifts * (draws @ (away * below)) + shifts**2 * (draws @ below**2)
        errors = np.sqrt(np.maximum(squares, 0) * groups / (groups - 1)) / np.abs(denominators)
    return shifts, errors


def bca(value: float, samples: Floats, left_out: Floats, confidence: float) -> tuple[float, float]:
    """Return the bias-corrected and accelerated interval (Efron 1987; Efron and Tibshirani 1993, section 14.3).

    `samples` are the statistic's values for resamples, `left_out` the jackknife values without one block each
    (`leave_out`). Without any spread, both ends are the value.
    """
    if not len(samples) or np.ptp(samples) == 0:
        return value, value
    below = ((samples < value).sum() + 0.5 * (samples == value).sum()) / len(samples)
    bias = NORMAL.inv_cdf(float(np.clip(below, 0.5 / len(samples), 1 - 0.5 / len(samples))))
    distances = left_out.mean() - left_out if len(left_out) else np.zeros(1)
    spread = float((distances**2).sum())
    acceleration = float((distances**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    ends = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        shifted = bias + NORMAL.inv_cdf(tail)
        share = NORMAL.cdf(bias + shifted / max(1 - acceleration * shifted, 1e-6))
        ends.append(float(np.quantile(samples, share)))
    return ends[0], ends[1]
