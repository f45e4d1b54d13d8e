"""What was found and what was missed, drawn: precision over recall, the spread of OKS, the worst images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from models.base.errors import UserError
from models.dump import Array, Dump
from models.pose.report.average_precision import Kind
from models.pose.report.coco_evaluation import FOUND, Found
from models.pose.report.dump_evaluation import evaluate, skeleton_of
from models.report.curves import save_figure
from models.report.interfaces import Picture
from models.report.sheets import Pixels, as_pixels, save_picture

SHOWN_THRESHOLDS = (0.5, 0.75, 0.9)
OVERLAP: dict[Kind, str] = {"keypoints": "OKS", "bbox": "IoU"}


class PrecisionRecall(Picture):
    """COCO's interpolated precision over recall at OKS or IoU of 0.5, 0.75, 0.9, and the mean over all ten thresholds.

    The legend gives the area under each, its AP.

    Args:
        mode: of the dump.
        results: records of people or objects.
        truth: records of annotations.
        kind: `keypoints` (OKS) or `bbox` (IoU, mean over categories).
        skeleton: as in `pose.Scenes`, for keypoints; COCO's unless given.
    """

    def __init__(
        self, mode: str, results: str, truth: str, kind: Kind = "keypoints", skeleton: dict[str, Any] | None = None
    ) -> None:
        self.mode, self.results, self.truth, self.kind = mode, results, truth, kind
        self.skeleton = None if kind == "bbox" else skeleton_of(skeleton)

    def __call__(self, dump: Dump, path: Path) -> None:
        evaluation = evaluate(dump.mode(self.mode), dump, self.results, self.truth, self.skeleton)
        thresholds, recalls, precisions = evaluation.curves()
        figure, axis = _panel(f"recall ({len(evaluation.image_ids)} images)", "precision")
        overlap = OVERLAP[self.kind]
        if np.isfinite(precisions).all():
            for threshold in SHOWN_THRESHOLDS:
                curve = precisions[np.isclose(thresholds, threshold)][0]
                axis.plot(recalls, curve, label=f"{overlap} {threshold:g}: AP {curve.mean():.3f}", linewidth=1.5)
            mean = precisions.mean(axis=0)
            axis.plot(recalls, mean, "k--", label=f"mean of 0.5 to 0.95: AP {mean.mean():.3f}", linewidth=1.5)
            axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        else:
            _say(axis, "there is nothing to be found")
        axis.set(xlim=(0, 1), ylim=(0, 1.02))
        save_figure(figure, path)


class OKSHistogram(Picture):
    """Each person to be found by the OKS of its match; those missed by the OKS of the nearest false result, or 0.

    Found is who has a match of OKS 0.5 or more. Missed with an OKS above 0: somebody was found there, but badly placed, or
    as two. Args as `PrecisionRecall`'s.
    """

    def __init__(self, mode: str, results: str, truth: str, skeleton: dict[str, Any] | None = None) -> None:
        self.mode, self.results, self.truth, self.skeleton = mode, results, truth, skeleton_of(skeleton)

    def __call__(self, dump: Dump, path: Path) -> None:
        images = evaluate(dump.mode(self.mode), dump, self.results, self.truth, self.skeleton).found()
        overlaps, nearest = (np.concatenate([getattr(one, name) for one in images]) for name in ("overlaps", "nearest"))
        missed = overlaps < FOUND
        figure, axis = _panel(f"OKS of {len(overlaps)} people", "people")
        if len(overlaps):
            groups = [overlaps[~missed], nearest[missed]]
            labels = [f"found: {len(groups[0])}, mean OKS {groups[0].mean() if len(groups[0]) else 0:.3f}"]
            labels.append(f"missed: {len(groups[1])}, {int((groups[1] < 0.05).sum())} of them with nobody near")
            axis.hist(
                groups,
                np.linspace(0, 1, 21).tolist(),
                stacked=True,
                color=["tab:blue", "tab:red"],
                label=labels,
                rwidth=0.92,
            )
            axis.axvline(FOUND, color="0.3", linewidth=1, linestyle="--")
            axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1, frameon=False)
            axis.yaxis.set_major_locator(MaxNLocator(integer=True))
        else:
            _say(axis, "there is nobody to be found")
        axis.set_xlim(0, 1)
        save_figure(figure, path)


def image_score(found: Found) -> float:
    """How well an image went, from -1 to 1, best 1.

    The mean over its people of the OKS (or IoU) of their matches, 0 for those missed, less the share of its results that
    are false. Where nobody is to be found the mean is 1; results that match something ignored do not count.
    """
    results = int((found.results >= 0).sum()) + len(found.false)
    mean = float(found.overlaps.mean()) if len(found.overlaps) else 1.0
    return mean - (len(found.false) / results if results else 0.0)


class WorstImages(Picture):
    """The `count` images with the lowest `image_score` as a sheet, worst first; those saved as `image` in the mode.

    Of equal scores, the one with more people missed and false results is worse.
    Below each are its id and score, how many of its people were found, and how many results are false.

    Args:
        mode: of the dump.
        results: records of people or objects.
        truth: records of annotations.
        image: name of the saved image.
        count: of images.
        kind: `keypoints` or `bbox`.
        cell: side of the square into which each image is fitted, pixels.
        least_score: of results that count; an overlay that leaves weaker ones out shows as many false ones then.
        skeleton: as in `pose.Scenes`, for keypoints; COCO's unless given.
    """

    def __init__(
        self,
        mode: str,
        results: str,
        truth: str,
        image: str,
        count: int,
        kind: Kind = "keypoints",
        cell: int = 320,
        least_score: float = 0.0,
        skeleton: dict[str, Any] | None = None,
    ) -> None:
        if count < 1 or cell < 32:
            raise ValueError(f"count {count}, cell {cell}: at least one image and 32 pixels are needed")
        self.mode, self.results, self.truth, self.image = mode, results, truth, image
        self.least_score = least_score
        self.count, self.cell, self.skeleton = count, cell, None if kind == "bbox" else skeleton_of(skeleton)

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        evaluation = evaluate(rows, dump, self.results, self.truth, self.skeleton, self.least_score)
        found = dict(zip(evaluation.image_ids, evaluation.found(), strict=True))
        column = f"file.{self.image}"
        if column not in rows.table or not rows.table[column].notna().any():
            raise UserError(
                f"{dump.folder}: mode {self.mode!r} has no image {self.image!r}; add it to the mode's `save`"
            )
        saved = np.flatnonzero(rows.table[column].notna()).tolist()
        ids = rows.table["image_id"].astype(int).tolist()
        worst = sorted(saved, key=lambda place: _badness(found[ids[place]]))[: self.count]
        images = [_pixels(rows.value(place, self.image)) for place in worst]
        save_picture(path, sheet(images, [_label(ids[place], found[ids[place]]) for place in worst], self.cell))


def sheet(images: Sequence[Pixels], labels: Sequence[tuple[str, str]], cell: int, columns: int = 4) -> Pixels:
    """Lay out images (H, W, 3) of any sizes, each fitted into a square of `cell` pixels above its two lines of text."""
    columns, gap, bar = min(columns, len(images)), 6, 40
    rows = -(-len(images) // columns)
    canvas = np.full((gap + rows * (cell + bar + gap), gap + columns * (cell + gap), 3), 255, np.uint8)
    for place, (image, lines) in enumerate(zip(images, labels, strict=True)):
        row, column = divmod(place, columns)
        y, x = gap + row * (cell + bar + gap), gap + column * (cell + gap)
        canvas[y : y + cell, x : x + cell] = 235
        factor = cell / max(image.shape[:2])
        height, width = (max(1, round(side * factor)) for side in image.shape[:2])
        how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
        top, left = y + (cell - height) // 2, x + (cell - width) // 2
        canvas[top : top + height, left : left + width] = cv2.resize(image, (width, height), interpolation=how)
        for line, text in enumerate(lines):
            origin = (x + 2, y + cell + 15 + 17 * line)
            cv2.putText(canvas, text, origin, cv2.FONT_HERSHEY_SIMPLEX, 0.45, (0, 0, 0), 1, cv2.LINE_AA)
    return canvas


def _badness(found: Found) -> tuple[float, int]:
    return image_score(found), -int((found.results < 0).sum()) - len(found.false)


def _label(image: int, found: Found) -> tuple[str, str]:
    hits = int((found.results >= 0).sum())
    return (
        f"image {image}: score {image_score(found):.2f}",
        f"{hits} of {len(found.truth)} found, {len(found.false)} false",
    )


def _pixels(array: Array) -> Pixels:
    return as_pixels(torch.from_numpy(array)[None])[0]


def _panel(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.6, 4.6), layout="constrained")
    axis = figure.subplots()
    axis.set(xlabel=x, ylabel=y)
    axis.grid(alpha=0.3)
    axis.set_axisbelow(True)
    return figure, axis


def _say(axis: Axes, text: str) -> None:
    axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center", color="0.4")
