"""How often confidence intervals cover the truth: `python -m bench.interval_coverage [--trials 1000] [--only AP]`.

Nominal is 0.95. `percentile` is the plain bootstrap (Efron and Tibshirani 1993, section 13.3), `figura` what metrics
write: studentised for means, BCa for other statistics. Losses are log-normal, as pixel losses are; scores are shares in
[0, 1]; persons have four pictures each, which resemble each other; the correlation is a statistic that is no mean.

AP is COCO's, of boxes of people in n images, with intervals over images. Its truth is the AP of 20,000 images. The AP
of few images is biased upwards, because precision is interpolated: each recall takes the best precision at this recall
or above. An interval around it is therefore too high, however it is computed.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.table import show
from figura.report.interfaces import Bootstrap
from models.pose.coco_evaluation import Evaluation
from models.pose.dump_evaluation import estimates

Floats = NDArray[np.float64]
Ends = tuple[float, float, float, float]  # of the percentile interval, of figura's
SIZES = (4, 5, 10, 40, 200)
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


def percentiles(samples: Floats) -> tuple[float, float]:
    """The plain percentile interval of a statistic's values for resamples; NaN do not count."""
    low, high = np.nanquantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def percentile(values: Floats, statistic: Callable[[Floats], float], seed: int) -> tuple[float, float]:
    """The plain percentile interval over examples."""
    random = np.random.default_rng(seed)
    return percentiles(
        np.array([statistic(values[random.integers(len(values), size=len(values))]) for _ in range(SAMPLES)])
    )


def figura(values: Floats, statistic: Callable[[Floats], float], seed: int) -> tuple[float, float]:
    """The interval that metrics write; rows are the groups."""
    bootstrap = Bootstrap(SAMPLES, CONFIDENCE, seed)
    if statistic is mean:
        groups = np.repeat(np.arange(len(values)), values[0].size).tolist()
        estimate = bootstrap.estimate(values.ravel(), groups=groups)
    else:
        estimate = bootstrap.estimate(values, statistic)
    return estimate["low"], estimate["high"]


def of_values(
    draw: Callable[[np.random.Generator, int], Floats], statistic: Callable[[Floats], float],
    random: np.random.Generator, size: int, seed: int,
) -> Ends:  # fmt: skip
    """Both intervals of a statistic of new values."""
    values = draw(random, size)
    single = values.ravel() if statistic is mean else values  # without persons, every picture is alone
    return *percentile(single, statistic, seed), *figura(values, statistic, seed)


def detections(random: np.random.Generator, images: int) -> Evaluation:
    """People and detected boxes in images: up to four people, of whom some are missed, and false detections.

    Images differ: in a difficult one, more people are missed and boxes are less exact. A box that is less exact has on
    average a lower score, and a false one a lower score still.
    """
    truth: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for image in range(images):
        difficulty = random.beta(2, 4)
        for _ in range(random.integers(5)):
            box = np.array([*random.uniform(0, 400, 2), *random.uniform(40, 160, 2)])
            record = {"image_id": image, "category_id": 1}
            truth.append({**record, "bbox": box.tolist()})
            if random.random() < difficulty / 2:
                continue
            noise = random.gamma(2, 0.05 * (0.3 + difficulty))
            moved = box + noise * box[[2, 3, 2, 3]] * random.normal(0, 1, 4)
            moved[2:] = np.maximum(moved[2:], 1)
            score = 1 / (1 + np.exp(20 * noise - 3 + random.normal()))
            results.append({**record, "bbox": moved.tolist(), "score": score})
        for _ in range(random.poisson(difficulty)):
            box = np.array([*random.uniform(0, 400, 2), *random.uniform(40, 160, 2)])
            score = 1 / (1 + np.exp(random.normal(1, 1)))
            results.append({"image_id": image, "category_id": 1, "bbox": box.tolist(), "score": score})
    # one range instead of COCO's four ranges of areas: a quarter of the time
    return Evaluation(truth, results, range(images)).ranged({"any": (0, 2)}, [1] * len(truth), [1] * len(results))


class WithPercentiles(Bootstrap):
    """The bootstrap of metrics, whose estimates have the percentile interval beside."""

    def bca(self, value: float, samples: Floats, left_out: Floats) -> dict[str, float]:
        """Return the estimate with `plain_low` and `plain_high`."""
        low, high = percentiles(samples)
        return {**super().bca(value, samples, left_out), "plain_low": low, "plain_high": high}


def of_detections(random: np.random.Generator, size: int, seed: int) -> Ends:
    """Both intervals of the AP of new images."""
    estimate = estimates(detections(random, size), WithPercentiles(SAMPLES, CONFIDENCE, seed))["AP_any"]
    return estimate["plain_low"], estimate["plain_high"], estimate["low"], estimate["high"]


def true_ap() -> float:
    """The AP of very many images."""
    return detections(np.random.default_rng(0), 20000).values()["AP_any"]


class Case(NamedTuple):
    """A statistic: both intervals of new data of a size, its truth, and the sizes."""

    ends: Callable[[np.random.Generator, int, int], Ends]
    truth: Callable[[], float]
    sizes: tuple[int, ...] = SIZES


CASES = {
    "mean of losses": Case(partial(of_values, losses, mean), lambda: 1.0),
    "mean of shares": Case(partial(of_values, scores, mean), lambda: 0.9),
    "mean, 4 pictures a person": Case(partial(of_values, persons, mean), lambda: 0.0),
    "correlation": Case(partial(of_values, pairs, correlation), lambda: 0.8, SIZES[2:]),
    "AP": Case(of_detections, true_ap, SIZES[2:]),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    args = parser.parse_args()
    rows: list[list[object]] = [["statistic", "n", "percentile", "width", "figura", "width", "ratio of widths"]]
    for name in args.only:
        ends, truth, sizes = CASES[name]
        true = truth()
        for size in sizes:
            random = np.random.default_rng(size)
            table = np.array([ends(random, size, trial) for trial in range(args.trials)])
            lows, highs = table[:, ::2], table[:, 1::2]
            before, now = ((lows <= true) & (true <= highs)).mean(axis=0)
            narrow, wide = (highs - lows).mean(axis=0)
            rows.append([name, size, f"{before:.3f}", narrow, f"{now:.3f}", wide, wide / narrow])
    show(rows)
    print(f"{args.trials} trials; standard error of a coverage of 0.95: {np.sqrt(0.95 * 0.05 / args.trials):.3f}")


if __name__ == "__main__":
    main()
