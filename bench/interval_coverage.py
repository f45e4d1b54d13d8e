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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.table import show
from figura.report.interfaces import Bootstrap
from models.pose.coco_evaluation import Evaluation
from models.pose.dump_evaluation import estimates

Floats = NDArray[np.float64]
Ends = tuple[float, float, float, float]  # of the percentile interval, of figura's
SAMPLES, CONFIDENCE = 500, 0.95
SIZES = (4, 5, 10, 40, 200)


class WithPercentiles(Bootstrap):
    """The bootstrap of metrics, whose estimates have the percentile interval beside, unless they are of means."""

    def __init__(self, random: np.random.Generator) -> None:
        super().__init__(SAMPLES, CONFIDENCE, int(random.integers(2**31)))

    def bca(self, value: float, samples: Floats, left_out: Floats) -> dict[str, float]:
        """Return the estimate with `plain_low` and `plain_high`."""
        low, high = percentiles(samples)
        return {**super().bca(value, samples, left_out), "plain_low": low, "plain_high": high}


def percentiles(samples: Floats) -> tuple[float, float]:
    """The plain percentile interval of a statistic's values for resamples; NaN do not count."""
    low, high = np.nanquantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def ends(estimate: dict[str, float]) -> Ends:
    """Both intervals of an estimate."""
    return estimate["plain_low"], estimate["plain_high"], estimate["low"], estimate["high"]


def of_mean(draw: Callable[[np.random.Generator, int], Floats], random: np.random.Generator, size: int) -> Ends:
    """Both intervals of the mean of new values; a row is a group, of which the plain bootstrap knows nothing."""
    values = draw(random, size)
    single, groups = values.ravel(), np.repeat(np.arange(size), values[0].size).tolist()
    estimate = WithPercentiles(random).estimate(single, groups=groups)
    return *percentiles(random.choice(single, (SAMPLES, single.size)).mean(axis=1)), estimate["low"], estimate["high"]


def of_correlation(random: np.random.Generator, size: int) -> Ends:
    """Both intervals of Pearson's r of new pairs; the truth is 0.8."""
    pairs = random.normal(size=(size, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    return ends(WithPercentiles(random).estimate(pairs, lambda some: np.atleast_2d(np.corrcoef(some.T))[0, 1]))


def of_detections(random: np.random.Generator, size: int) -> Ends:
    """Both intervals of the AP of new images."""
    return ends(estimates(detections(random, size), WithPercentiles(random))["AP_any"])


def detections(random: np.random.Generator, images: int) -> Evaluation:
    """People and detected boxes in images: up to four people, of whom some are missed, and false detections.

    Images differ: in a difficult one, more people are missed and boxes are less exact. A box that is less exact has on
    average a lower score, and a false one a lower score still.
    """
    truth: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for image in range(images):
        difficulty, record = random.beta(2, 4), {"image_id": image, "category_id": 1}
        for _ in range(random.integers(5)):
            box = np.array([*random.uniform(0, 400, 2), *random.uniform(40, 160, 2)])
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
            results.append({**record, "bbox": box.tolist(), "score": 1 / (1 + np.exp(random.normal(1, 1)))})
    # one range instead of COCO's four ranges of areas: a quarter of the time
    return Evaluation(truth, results, range(images)).ranged({"any": (0, 2)}, [1] * len(truth), [1] * len(results))


CASES: dict[str, tuple[Callable[[np.random.Generator, int], Ends], float | None, tuple[int, ...]]] = {
    "mean of losses": (partial(of_mean, lambda random, n: random.lognormal(-0.125, 0.5, n)), 1.0, SIZES),
    "mean of shares": (partial(of_mean, lambda random, n: random.beta(4.5, 0.5, n)), 0.9, SIZES),
    "mean, 4 pictures a person": (
        partial(of_mean, lambda random, n: random.normal(size=(n, 1)) + random.normal(size=(n, 4))), 0.0, SIZES,
    ),
    "correlation": (of_correlation, 0.8, SIZES[2:]),
    "AP": (of_detections, None, SIZES[2:]),
}  # fmt: skip
"""Both intervals of new data of a size, the truth (None: the AP of very many images), and the sizes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    args = parser.parse_args()
    rows: list[list[object]] = [["statistic", "n", "percentile", "width", "figura", "width", "ratio of widths"]]
    for name in args.only:
        intervals, truth, sizes = CASES[name]
        true = detections(np.random.default_rng(0), 20000).values()["AP_any"] if truth is None else truth
        for size in sizes:
            random = np.random.default_rng(size)
            table = np.array([intervals(random, size) for _ in range(args.trials)])
            lows, highs = table[:, ::2], table[:, 1::2]
            before, now = ((lows <= true) & (true <= highs)).mean(axis=0)
            narrow, wide = (highs - lows).mean(axis=0)
            rows.append([name, size, f"{before:.3f}", narrow, f"{now:.3f}", wide, wide / narrow])
    show(rows)
    print(f"{args.trials} trials; standard error of a coverage of 0.95: {np.sqrt(0.95 * 0.05 / args.trials):.3f}")


if __name__ == "__main__":
    main()
