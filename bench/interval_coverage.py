"""How often confidence intervals cover the truth: `python -m bench.interval_coverage [--trials 1000]`.

Nominal is 0.95. `percentile` is the plain bootstrap (Efron and Tibshirani 1993, section 13.3), `figura` what metrics
write: studentised for means, BCa for other statistics. Losses are log-normal, as pixel losses are; scores are shares in
[0, 1]; persons have four pictures each, which resemble each other; the correlation is a statistic that is no mean.
"""

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.table import show
from models.report.interfaces import Bootstrap

Floats = NDArray[np.float64]
SIZES = (10, 40, 200)
SAMPLES, CONFIDENCE = 500, 0.95


def losses(random: np.random.Generator, size: int) -> Floats:
    """Log-normal values of mean 1."""
    return random.lognormal(-0.125, 0.5, size)


def scores(random: np.random.Generator, size: int) -> Floats:
    """Shares of mean 0.9: most near 1, some low."""
    return random.beta(4.5, 0.5, size)


def persons(random: np.random.Generator, size: int) -> Floats:
    """Four pictures of each of `size` persons, of mean 0; half of the variance is the person's, (size, 4)."""
    return np.repeat(random.normal(size=(size, 1)), 4, axis=1) + random.normal(size=(size, 4))


def pairs(random: np.random.Generator, size: int) -> Floats:
    """Two columns of correlation 0.8, (size, 2)."""
    noise: Floats = random.normal(size=(size, 2))
    return np.asarray(noise @ np.array([[1.0, 0.8], [0.0, 0.6]]))


def correlation(values: Floats) -> float:
    """Pearson's r of two columns."""
    return float(np.atleast_2d(np.corrcoef(values, rowvar=False))[0, 1])


def mean(values: Floats) -> float:
    """The mean of all numbers."""
    return float(values.mean())


def percentile(values: Floats, statistic: Callable[[Floats], float], seed: int) -> tuple[float, float]:
    """The plain percentile interval over examples."""
    random = np.random.default_rng(seed)
    draws = [statistic(values[random.integers(len(values), size=len(values))]) for _ in range(SAMPLES)]
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def figura(values: Floats, statistic: Callable[[Floats], float], seed: int) -> tuple[float, float]:
    """The interval that metrics write; rows are the groups."""
    bootstrap = Bootstrap(SAMPLES, CONFIDENCE, seed)
    if statistic is mean:
        groups = np.repeat(np.arange(len(values)), values[0].size).tolist()
        estimate = bootstrap.estimate(values.ravel(), groups=groups)
    else:
        estimate = bootstrap.estimate(values, statistic)
    return estimate["low"], estimate["high"]


CASES: dict[str, tuple[Callable[[np.random.Generator, int], Floats], Callable[[Floats], float], float]] = {
    "mean of losses": (losses, mean, 1.0),
    "mean of shares": (scores, mean, 0.9),
    "mean, 4 pictures a person": (persons, mean, 0.0),
    "correlation": (pairs, correlation, 0.8),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    rows: list[list[object]] = [["statistic", "n", "percentile", "width", "figura", "width", "ratio of widths"]]
    for name, (draw, statistic, truth) in CASES.items():
        for size in SIZES:
            random = np.random.default_rng(size)
            ends = []
            for trial in range(trials):
                values = draw(random, size)
                single = values.ravel() if statistic is mean else values  # without persons, every picture is alone
                ends.append((*percentile(single, statistic, trial), *figura(values, statistic, trial)))
            lows, highs = np.array(ends)[:, ::2], np.array(ends)[:, 1::2]
            before, now = ((lows <= truth) & (truth <= highs)).mean(axis=0)
            narrow, wide = (highs - lows).mean(axis=0)
            rows.append([name, size, f"{before:.3f}", narrow, f"{now:.3f}", wide, wide / narrow])
    show(rows)
    print(f"{trials} trials; standard error of a coverage of 0.95: {np.sqrt(0.95 * 0.05 / trials):.3f}")


if __name__ == "__main__":
    main()
