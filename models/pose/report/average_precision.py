"""COCO's metrics of average precision and recall, and their computation from weighted matches.

Sources: Lin et al. 2014, "Microsoft COCO"; the lists of metrics: `summarize` of pycocotools/cocoeval.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["keypoints", "bbox"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """One of COCO's metrics: a mean over categories and thresholds.

    Attributes:
        of: `precision`, averaged over 101 recalls, or `recall`, the highest recall.
        threshold: least overlap of a match; None averages over 0.5, 0.55, ... 0.95.
        range: name of the range of sizes.
        best: index into the list of result counts per image (`maxDets`); -1 is the largest.
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


def accumulated(
    cell: list[tuple[int, dict[str, Any]]], weights: Floats, recalls: Floats, most: Sequence[int]
) -> tuple[Floats, Floats]:
    """Return precision (samples, T), averaged over `recalls`, and recall (samples, T, M), with images weighted."""
    places = [place for place, _ in cell]
    ones = [one for _, one in cell]
    positives = weights[:, places] @ np.array([np.count_nonzero(one["gtIgnore"] == 0) for one in ones], dtype=float)
    scores = np.concatenate([one["dtScores"] for one in ones])
    order = np.argsort(-scores, kind="stable")
    rank = np.concatenate([np.arange(len(one["dtScores"])) for one in ones])[order]
    judged = ~np.concatenate([one["dtIgnore"] for one in ones], axis=1)[:, order]
    hits = (np.concatenate([one["dtMatches"] for one in ones], axis=1)[:, order] > 0) & judged
    drawn = weights[:, np.repeat(places, [len(one["dtScores"]) for one in ones])[order]]
    precision, recall = np.zeros((len(weights), len(hits))), np.zeros((len(weights), len(hits), len(most)))
    with np.errstate(divide="ignore", invalid="ignore"):
        for place, (hit, counts) in enumerate(zip(hits, judged, strict=True)):
            # recall and interpolated precision change at hits only
            hits_so_far = np.cumsum(drawn[:, hit], axis=1)
            results_so_far = np.cumsum(drawn * counts, axis=1)[:, hit]
            exact = hits_so_far / (results_so_far + np.spacing(1))
            interpolated = np.maximum.accumulate(exact[:, ::-1], axis=1)[:, ::-1]
            reached = np.searchsorted(recalls, hits_so_far / positives[:, None], side="right")
            precision[:, place] = (np.diff(reached, axis=1, prepend=0) * interpolated).sum(axis=1) / len(recalls)
            for column, limit in enumerate(most):
                recall[:, place, column] = drawn[:, hit & (rank < limit)].sum(axis=1) / positives
    precision[positives == 0], recall[positives == 0] = np.nan, np.nan
    return precision, recall
