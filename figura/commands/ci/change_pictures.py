"""Draws the images of `figura changes`: new curves over old ones, new pictures beside old ones."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from matplotlib.figure import Figure

from figura.base.files import read_bytes, replacing
from figura.base.pictures import read_picture, write_png

COLUMNS = 4
GAP = 12  # pixels between two pictures


@dataclass(frozen=True)
class Curve:
    """A curve of the base and of the rerun: points with `step` and `value` (numbers or text); empty if missing."""

    base: Sequence[Mapping[str, Any]]
    rerun: Sequence[Mapping[str, Any]]

    def differs(self) -> bool:
        """Whether any point differs."""
        return _numbers(self.base) != _numbers(self.rerun)


def _numbers(points: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(str(point["step"]), str(point["value"])) for point in points]


def draw_curves(curves: Mapping[str, Curve], path: Path) -> None:
    """Draw each curve in its own panel, the base in gray below the rerun in blue, and write the PNG atomically."""
    columns = min(COLUMNS, len(curves))
    rows = math.ceil(len(curves) / columns)
    figure = Figure(figsize=(3 * columns, 2.2 * rows), dpi=100, layout="constrained")
    for place, (name, curve) in enumerate(sorted(curves.items()), start=1):
        axes = figure.add_subplot(rows, columns, place)
        for points, colour, width in ((curve.base, "0.6", 3.0), (curve.rerun, "C0", 1.2)):
            steps, values = ([float(point[key]) for point in points] for key in ("step", "value"))
            axes.plot(steps, values, color=colour, linewidth=width)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def beside(before: Path | None, after: Path | None, path: Path) -> bool:
    """Write two pictures side by side, padded white to the same height, or only one if the other is None.

    Returns False, and writes nothing, if both have the same bytes. Raises UserError if a file is not a picture.
    """
    if before and after and read_bytes(before) == read_bytes(after):
        return False
    images = [read_picture(file) for file in (before, after) if file]
    height = max(image.shape[0] for image in images)
    white = (255, 255, 255)
    padded = [
        cv2.copyMakeBorder(image, 0, height - image.shape[0], 0, GAP, cv2.BORDER_CONSTANT, value=white)
        for image in images
    ]
    write_png(path, np.asarray(np.hstack(padded)[:, :-GAP], dtype=np.uint8))
    return True
