"""COCO's metrics of average precision and recall, and their computation from weighted matches.

Sources: Lin et al. 2014, "Microsoft COCO"; the lists of metrics: `summarize` of pycocotools/cocoeval.py.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["keypoints", "bbox"]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)
"""The least overlaps of a match (T,)."""

RECALLS: Floats = np.linspace(0.0, 1.0, 101)
"""The recalls (R,) over which precision is averaged."""

_SMALL, _MEDIUM, _ANY = 32.0**2, 96.0**2, 1e5**2
AREAS: dict[Kind, dict[str, tuple[float, float]]] = {
    "keypoints": {"all": (0.0, _ANY), "medium": (_SMALL, _MEDIUM), "large": (_MEDIUM, _ANY)},
    "bbox": {"all": (0.0, _ANY), "small": (0.0, _SMALL), "medium": (_SMALL, _MEDIUM), "large": (_MEDIUM, _ANY)},
}
"""Ranges of areas, pixels; both ends belong to them."""

MOST: dict[Kind, tuple[int, ...]] = {"keypoints": (20,), "bbox": (1, 10, 100)}
"""How many results of an image and category count (`maxDets`)."""

_HALF = 32  # bits of an integer that hold a sum of weights
_AT_ONCE = 1 << 16
"""Results times samples whose sums are in memory at a time, so that they fit the processor's cache."""


@dataclass(frozen=True)
class Metric:
    """One of COCO's metrics: a mean over categories and thresholds.

    Attributes:
        of: `precision`, averaged over 101 recalls, or `recall`, the highest recall.
        threshold: least overlap of a match; None averages over 0.5, 0.55, ... 0.95.
        range: name of the range of sizes.
        best: index into `MOST`; -1 is the largest.
    """

    of: Literal["precision", "recall"]
    threshold: float | None = None
    range: str = "all"
    best: int = -1


METRICS: dict[Kind, dict[str, Metric]] = {
    "keypoints": {
        "AP": Metric("precision"),
        "AP50": Metric("precision", 0.5),
        "AP75": Metric("precision", 0.75),
        "AP_medium": Metric("precision", range="medium"),
        "AP_large": Metric("precision", range="large"),
        "AR": Metric("recall"),
        "AR50": Metric("recall", 0.5),
        "AR75": Metric("recall", 0.75),
        "AR_medium": Metric("recall", range="medium"),
        "AR_large": Metric("recall", range="large"),
    },
    "bbox": {
        "AP": Metric("precision"),
        "AP50": Metric("precision", 0.5),
        "AP75": Metric("precision", 0.75),
        "AP_small": Metric("precision", range="small"),
        "AP_medium": Metric("precision", range="medium"),
        "AP_large": Metric("precision", range="large"),
        "AR_best1": Metric("recall", best=0),
        "AR_best10": Metric("recall", best=1),
        "AR": Metric("recall"),
        "AR_small": Metric("recall", range="small"),
        "AR_medium": Metric("recall", range="medium"),
        "AR_large": Metric("recall", range="large"),
    },
}
"""COCO's ten metrics for keypoints and twelve for boxes, in COCO's order."""


def mean_of_known(table: Floats, axes: tuple[int, ...]) -> Floats:
    """Return the mean over axes without NaN entries; NaN where all are NaN."""
    known = ~np.isnan(table)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, table, 0.0).sum(axis=axes) / known.sum(axis=axes))


def doubled(weights: Floats) -> Integers:
    """Return how often images count, (samples, images) integers, as `averaged` adds them up: (samples, 2 images).

    The second half is for results that are hits: they count twice in a number, as results, and above `_HALF` bits as
    hits.
    """
    once = weights.astype(np.int64)
    return np.concatenate([once, once + (once << _HALF)], axis=1)


def least_hits(positives: Floats) -> Integers:
    """Return how many hits reach each of `RECALLS`, given how many annotations count, (samples,): (samples, R)."""
    shares = np.maximum(positives, 1)[:, None]
    least = np.ceil(RECALLS * shares)
    least -= (least - 1) / shares >= RECALLS
    least += least / shares < RECALLS
    return least.astype(np.int64)


def averaged(places: Integers, hits: Flags, judged: Flags, counts: Integers, least: Integers) -> tuple[Floats, Floats]:
    """Return average precision (samples,), and precision interpolated at `RECALLS` (samples, R), with images weighted.

    Args:
        places: (n,), indices of the images of results, by falling score.
        hits: (n,), whether each counts as correct.
        judged: (n,), whether each counts at all.
        counts: (samples, 2 images), the weights as `doubled`.
        least: (samples, R), as `least_hits`.

    Recall and interpolated precision change at hits only.
    """
    places, hits = places[judged], hits[judged]
    at, columns = np.flatnonzero(hits), places + counts.shape[1] // 2 * hits
    rows = max(1, _AT_ONCE // max(1, len(places)))
    parts = [
        _averaged(counts[start : start + rows].take(columns, axis=1).cumsum(axis=1).take(at, axis=1), reached)
        for start, reached in ((start, least[start : start + rows]) for start in range(0, len(counts), rows))
    ]
    average, precision = zip(*parts, strict=True)
    return np.concatenate(average), np.concatenate(precision)


def _averaged(sums: Integers, least: Integers) -> tuple[Floats, Floats]:
    """Return what `averaged` does, given the sums of `doubled` weights at each hit, (samples, hits)."""
    samples, count = sums.shape
    hits = sums >> _HALF
    exact = np.zeros((samples, count + 1))  # the last one: recalls that are not reached
    np.divide(hits, (sums & ((1 << _HALF) - 1)) + np.spacing(1), out=exact[:, :count])
    first = np.stack([row.searchsorted(wanted) for row, wanted in zip(hits, least, strict=True)])
    flat = (first + (count + 1) * np.arange(samples)[:, None]).ravel()
    highest = np.maximum.reduceat(exact.ravel(), flat).reshape(samples, -1)
    interpolated = np.maximum.accumulate(highest[:, ::-1], axis=1)[:, ::-1]
    leading = np.flatnonzero(np.diff(flat, prepend=-1))  # of the recalls that the same hit reaches, the lowest
    terms = np.zeros_like(exact)
    terms.ravel()[flat[leading]] = np.diff(leading, append=len(flat)) * interpolated.ravel()[leading]
    return terms[:, :count].sum(axis=1) / len(RECALLS), interpolated
