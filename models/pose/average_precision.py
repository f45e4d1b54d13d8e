"""COCO's metrics of average precision and recall, and their computation from weighted matches.

Sources: Lin et al. 2014, "Microsoft COCO"; the lists of metrics: `summarize` of pycocotools/cocoeval.py.
"""

from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

Kind = Literal["keypoints", "bbox"]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)  # the minimum overlaps of a match (T,)
EPSILON = float(np.spacing(1))  # COCOeval adds this to the number of results
RECALLS: Floats = np.linspace(0.0, 1.0, 101)  # the recalls (R,) over which precision is averaged

_SMALL, _MEDIUM, _ANY = 32.0**2, 96.0**2, 1e5**2
AREAS: dict[Kind, dict[str, tuple[float, float]]] = {
    "keypoints": {"all": (0.0, _ANY), "medium": (_SMALL, _MEDIUM), "large": (_MEDIUM, _ANY)},
    "bbox": {"all": (0.0, _ANY), "small": (0.0, _SMALL), "medium": (_SMALL, _MEDIUM), "large": (_MEDIUM, _ANY)},
}
"""Ranges of areas in pixels, both ends included."""

MOST: dict[Kind, tuple[int, ...]] = {"keypoints": (20,), "bbox": (1, 10, 100)}
"""The maximum numbers of results per image and category (`maxDets`)."""


@dataclass(frozen=True)
class Metric:
    """One of COCO's metrics: a mean over categories and thresholds.

    Attributes:
        of: `precision`, averaged over 101 recalls, or `recall`, the highest recall.
        threshold: minimum overlap of a match; None averages over 0.5, 0.55, ... 0.95.
        range: name of the range of sizes.
        best: index into `MOST`; -1 is the largest.
    """

    of: Literal["precision", "recall"]
    threshold: float | None = None
    range: str = "all"
    best: int = -1


def _metrics(kind: Kind, name: str, of: Literal["precision", "recall"], *thresholds: float) -> dict[str, Metric]:
    metrics = {name: Metric(of)} | {f"{name}{100 * least:g}": Metric(of, least) for least in thresholds}
    return metrics | {f"{name}_{size}": Metric(of, range=size) for size in AREAS[kind] if size != "all"}


METRICS: dict[Kind, dict[str, Metric]] = {
    "keypoints": (
        _metrics("keypoints", "AP", "precision", 0.5, 0.75) | _metrics("keypoints", "AR", "recall", 0.5, 0.75)
    ),
    "bbox": (
        _metrics("bbox", "AP", "precision", 0.5, 0.75)
        | {"AR_best1": Metric("recall", best=0), "AR_best10": Metric("recall", best=1)}
        | _metrics("bbox", "AR", "recall")
    ),
}
"""COCO's ten metrics for keypoints and twelve for boxes, in COCO's order."""


def mean_of_known(table: Floats, axes: tuple[int, ...]) -> Floats:
    """Return the mean over axes without NaN entries; NaN where all are NaN."""
    known = ~np.isnan(table)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, table, 0.0).sum(axis=axes) / known.sum(axis=axes))


def least_hits(positives: Floats) -> Integers:
    """Return the hits (samples, R) needed for each of `RECALLS`, given the numbers of annotations (samples,)."""
    shares = np.maximum(positives, 1)[:, None]
    least = np.ceil(RECALLS * shares)
    least -= (least - 1) / shares >= RECALLS
    least += least / shares < RECALLS
    return least.astype(np.int64)


def averaged(places: Integers, hits: Flags, judged: Flags, counts: Integers, least: Integers) -> tuple[Floats, Floats]:
    """Return average precision (samples,), and precision interpolated at `RECALLS` (samples, R), with images weighted.

    Args:
        places: (n,), image indices of the results, by descending score.
        hits: (n,), whether each counts as correct.
        judged: (n,), whether each counts at all.
        counts: (samples, images), multiplicity of the images.
        least: (samples, R), from `least_hits`.
    """
    precision = np.zeros(least.shape)
    _interpolate(places[judged], hits[judged], counts, least, precision)
    return precision.sum(axis=1) / len(RECALLS), precision


@numba.njit(cache=True, nogil=True)
def _interpolate(places: Integers, hits: Flags, counts: Integers, least: Integers, precision: Floats) -> None:
    """Fill the zeroed `precision` with the highest one from the first hit that reaches each recall on.

    Recall and interpolated precision change only at hits.
    """
    reached, exact = np.empty(len(hits), np.int64), np.empty(len(hits))
    for sample in range(len(counts)):
        correct, total, count = 0, 0, 0
        for index in range(len(places)):
            weight = counts[sample, places[index]]
            total += weight
            if hits[index]:
                correct += weight
                reached[count], exact[count] = correct, correct / (total + EPSILON)
                count += 1
        highest = 0.0
        for recall in range(least.shape[1] - 1, -1, -1):
            while count and reached[count - 1] >= least[sample, recall]:
                count -= 1
                highest = max(highest, exact[count])
            precision[sample, recall] = highest
