"""COCO's figures of average precision and recall, and how they come from matches counted by weights.

Sources: Lin et al. 2014, "Microsoft COCO"; the list of figures: specification 9.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["keypoints", "bbox"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """One of COCO's figures: a mean over categories and thresholds.

    Attributes:
        of: `precision`, averaged over 101 recalls, or `recall`, the highest reached.
        threshold: the overlap that a match needs; None: the mean of 0.5, 0.55, ... 0.95.
        range: name of the range of sizes that is judged.
        best: place in the list of how many results an image may have; -1: the most.
    """

    of: Literal["precision", "recall"]
    threshold: float | None = None
    range: str = "all"
    best: int = -1


FIGURES: dict[Kind, dict[str, Figure]] = {
    "keypoints": {
        "AP": Figure("precision"),
        "AP50": Figure("precision", 0.5),
        "AP75": Figure("precision", 0.75),
        "AP_medium": Figure("precision", range="medium"),
        "AP_large": Figure("precision", range="large"),
        "AR": Figure("recall"),
        "AR50": Figure("recall", 0.5),
        "AR75": Figure("recall", 0.75),
        "AR_medium": Figure("recall", range="medium"),
        "AR_large": Figure("recall", range="large"),
    },
    "bbox": {
        "AP": Figure("precision"),
        "AP50": Figure("precision", 0.5),
        "AP75": Figure("precision", 0.75),
        "AP_small": Figure("precision", range="small"),
        "AP_medium": Figure("precision", range="medium"),
        "AP_large": Figure("precision", range="large"),
        "AR_best1": Figure("recall", best=0),
        "AR_best10": Figure("recall", best=1),
        "AR": Figure("recall"),
        "AR_small": Figure("recall", range="small"),
        "AR_medium": Figure("recall", range="medium"),
        "AR_large": Figure("recall", range="large"),
    },
}
"""COCO's ten and twelve figures, in COCO's order."""


def mean_of_known(table: Floats, axes: tuple[int, ...]) -> Floats:
    """The mean over axes of what is not NaN; NaN where nothing is left."""
    there = ~np.isnan(table)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, table, 0.0).sum(axis=axes) / there.sum(axis=axes))


def accumulated(
    cell: list[tuple[int, dict[str, Any]]], weights: Floats, recalls: Floats, most: Sequence[int]
) -> tuple[Floats, Floats]:
    """Precision (samples, T), averaged over `recalls`, and recall (samples, T, M) with images counted by `weights`."""
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
            # Recall rises, and interpolated precision is taken, at hits only.
            found = np.cumsum(drawn[:, hit], axis=1)
            given = np.cumsum(drawn * counts, axis=1)[:, hit]
            exact = found / (given + np.spacing(1))
            interpolated = np.maximum.accumulate(exact[:, ::-1], axis=1)[:, ::-1]
            reached = np.searchsorted(recalls, found / positives[:, None], side="right")
            precision[:, place] = (np.diff(reached, axis=1, prepend=0) * interpolated).sum(axis=1) / len(recalls)
            for column, limit in enumerate(most):
                recall[:, place, column] = drawn[:, hit & (rank < limit)].sum(axis=1) / positives
    precision[positives == 0], recall[positives == 0] = np.nan, np.nan
    return precision, recall
