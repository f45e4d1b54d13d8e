"""Plots of an evaluation: precision over recall, the histogram of OKS, the worst images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import cv2
import numpy as np
from pydantic import Field

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.base.sampling import evenly_spaced
from figura.dump import Dump
from figura.report.curves import save_figure
from figura.report.interfaces import NotApplicableError, Picture
from figura.report.sheets import Pixels, pixels_of, side_by_side, with_header

from .argument_types import Count
from .average_precision import Kind
from .coco_evaluation import LEAST_OVERLAP, Evaluation, ImageMatches
from .coco_scores import NO_BOXES, NO_JOINTS, OfPeople
from .dump_evaluation import evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_THRESHOLDS = (0.5, 0.75, 0.9)
LEGEND = "light grey: the truth; in colours: what was found"
OVERLAP: dict[Kind, str] = {"keypoints": "OKS", "bbox": "IoU"}


@dataclass(eq=False)
class PrecisionRecall(OfPeople, Picture):
    """COCO's interpolated precision over recall at OKS or IoU of 0.5, 0.75, 0.9, and the mean over all ten thresholds.

    The legend gives the area under each curve, its AP.

    The first arguments, and `skeleton`, are those of `OfPeople`.

    Args:
        kind: `keypoints` (OKS) or `bbox` (IoU, mean over categories; the records may be objects).
    """

    kind: Kind = "keypoints"

    def __call__(self, dump: Dump, path: Path) -> None:
        evaluation = _evaluated(self, dump, self.kind)
        thresholds, recalls, precisions = evaluation.curves()
        figure, axis = _panel(f"recall ({len(evaluation.image_ids)} images)", "precision")
        overlap = OVERLAP[self.kind]
        for threshold in SHOWN_THRESHOLDS:
            curve = precisions[np.isclose(thresholds, threshold)][0]
            axis.plot(recalls, curve, label=f"{overlap} {threshold:g}: AP {curve.mean():.3f}", linewidth=1.5)
        mean = precisions.mean(axis=0)
        axis.plot(recalls, mean, "k--", label=f"mean of 0.5 to 0.95: AP {mean.mean():.3f}", linewidth=1.5)
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        axis.set(xlim=(0, 1), ylim=(0, 1.02))
        save_figure(figure, path)


class OKSHistogram(OfPeople, Picture):
    """Histogram of the annotated people by OKS: with their match, or for missed people with the nearest false result.

    A person with a match of OKS 0.5 or more is found. A missed person with an OKS above 0 has a false result nearby:
    badly localised, or a duplicate. Takes the arguments of `OfPeople`.
    """

    def __call__(self, dump: Dump, path: Path) -> None:
        from matplotlib.ticker import MaxNLocator

        images = _evaluated(self, dump, "keypoints").matches()
        overlaps, nearest = (np.concatenate([getattr(one, name) for one in images]) for name in ("overlaps", "nearest"))
        missed = overlaps < LEAST_OVERLAP
        figure, axis = _panel(f"OKS of {len(overlaps)} people", "people")
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
        axis.axvline(LEAST_OVERLAP, color="0.3", linewidth=1, linestyle="--")
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1, frameon=False)
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlim(0, 1)
        save_figure(figure, path)


def image_score(matches: ImageMatches) -> float:
    """Return the score of an image, from -1 (worst) to 1 (best).

    The score is the mean OKS (or IoU) of its people with their matches, 0 for missed people, minus the fraction of
    false results. Without people, the mean is 1. Results that match an ignored annotation are excluded.
    """
    results = int((matches.results >= 0).sum()) + len(matches.false)
    mean = float(matches.overlaps.mean()) if len(matches.overlaps) else 1.0
    return mean - (len(matches.false) / results if results else 0.0)


@dataclass(eq=False)
class FoundImages(OfPeople, Picture):
    """A sheet of `count` images, evenly spaced over those saved as `image`, which are overlays (`pose.Overlays`).

    Above each image are its id, its `image_score`, the number of people found and of false results; above all, the sums
    over every image, and what the colours of an overlay mean.

    The first arguments, and `skeleton`, are those of `OfPeople`.

    Args:
        image: name of the saved image.
        count: number of images.
        kind: `keypoints` or `bbox` (the records may be objects).
        cell: longer side of each image, pixels.
        least_score: minimum score of results; use the overlay's, so that both show the same results.
    """

    suffix = ".jpg"

    image: str
    count: Count
    kind: Kind = "keypoints"
    cell: Annotated[int, Field(ge=32)] = 320
    least_score: float = 0.0

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        evaluation = _evaluated(self, dump, self.kind, self.least_score)
        matches = dict(zip(evaluation.image_ids, evaluation.matches(), strict=True))
        column = f"file.{self.image}"
        if column not in rows.table or not rows.table[column].notna().any():
            raise UserError(
                f"{dump.folder}: mode {self.mode!r} has no image {self.image!r}; add it to the mode's `save`"
            )
        saved = np.flatnonzero(rows.table[column].notna()).tolist()
        ids = rows.numbers("image_id").astype(int).tolist()
        chosen = self.chosen(saved, [matches[ids[place]] for place in saved])
        images = [pixels_of(rows, place, self.image) for place in chosen]
        cells = sheet(images, [_label(ids[place], matches[ids[place]]) for place in chosen], self.cell)
        write_png(path, with_header(cells, f"all images: {_counts(*matches.values())}  {LEGEND}"))

    def chosen(self, saved: Sequence[int], matches: Sequence[ImageMatches]) -> list[int]:
        """Return the rows to show, of those that have an image, with the matches of each."""
        return [saved[place] for place in evenly_spaced(len(saved), self.count)]


class WorstImages(FoundImages):
    """As `FoundImages`, of the images with the lowest `image_score`, worst first.

    Among equal scores, the image with more missed people and false results comes first.
    """

    def chosen(self, saved: Sequence[int], matches: Sequence[ImageMatches]) -> list[int]:
        """Return the rows of the worst images."""
        order = sorted(range(len(saved)), key=lambda place: _badness(matches[place]))
        return [saved[place] for place in order[: self.count]]


def sheet(images: Sequence[Pixels], labels: Sequence[str], cell: int) -> Pixels:
    """Lay out images (H, W, 3) of any sizes in rows of four, each below its label, the longer side `cell` pixels."""
    cells = []
    for image, label in zip(images, labels, strict=True):
        factor = cell / max(image.shape[:2])
        height, width = (max(1, round(side * factor)) for side in image.shape[:2])
        how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
        fitted = np.asarray(cv2.resize(image, (width, height), interpolation=how), dtype=np.uint8)
        cells.append(with_header(fitted, label))
    rows = [cells[index : index + 4] for index in range(0, len(cells), 4)]
    return side_by_side(rows, [""] * len(rows[0]), gap=6)


def _badness(matches: ImageMatches) -> tuple[float, int]:
    return image_score(matches), -int((matches.results < 0).sum()) - len(matches.false)


def _label(image: int, matches: ImageMatches) -> str:
    return f"image {image}: score {image_score(matches):.2f}  {_counts(matches)}"


def _counts(*images: ImageMatches) -> str:
    hits, false = sum(int((one.results >= 0).sum()) for one in images), sum(len(one.false) for one in images)
    return f"{hits} of {sum(len(one.truth) for one in images)} found, {false} false"


def _panel(x: str, y: str) -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure  # lazy, because a training checks the recipe's pictures and draws none

    figure = Figure(figsize=(5.6, 4.6), layout="constrained")
    axis = figure.subplots()
    axis.set(xlabel=x, ylabel=y)
    axis.grid(alpha=0.3)
    axis.set_axisbelow(True)
    return figure, axis


def _evaluated(picture: OfPeople, dump: Dump, kind: Kind, least_score: float = 0.0) -> Evaluation:
    """Match people by keypoints or all categories by boxes; raises NotApplicableError if there is no annotation."""
    skeleton = picture.body if kind == "keypoints" else None
    evaluation = evaluate(dump, picture.mode, picture.results, picture.truth, skeleton, least_score)
    if not any(len(one.truth) for one in evaluation.matches()):
        raise NotApplicableError(NO_JOINTS if kind == "keypoints" else NO_BOXES)
    return evaluation
