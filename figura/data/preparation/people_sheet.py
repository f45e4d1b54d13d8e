"""A picture of the first images of each split with their annotations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from PIL import Image

from figura.base.errors import one_line
from figura.data.formats.skeletons import Side, Skeleton, side_of

COLUMNS = 4
DPI = 100
SHOWN = 8
"""Images per split in the picture."""

_CANDIDATES, _MOST = 64, 100  # candidate images, annotations per image
_PANEL, _NAME, _TITLE = 3.2, 0.25, 0.45  # inches: the width of a picture, the heights of its name and of a heading
_LEFT, _RIGHT, _MIDDLE = "#ff9f1c", "#2ec4ff", "#7CFC00"
_CROWD, _OTHER, _BOX = "#ff3fd0", "#d0d0d0", "#ffffff"


@dataclass
class Examples:
    """The first images of a split, and the parts of their annotations to draw."""

    images: dict[int, str] = field(default_factory=dict)
    annotations: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def add_image(self, record: Mapping[str, Any]) -> None:
        """Keep the image's file name if it is one of the first."""
        if len(self.images) < _CANDIDATES:
            self.images[record["id"]] = record["file_name"]

    def add_annotation(self, record: Mapping[str, Any], label: str, is_person: bool) -> None:
        """Keep the annotation if its image is one of the first and has few; add all images before."""
        number = record["image_id"]
        if number in self.images and len(self.annotations.setdefault(number, [])) < _MOST:
            kept = {key: record[key] for key in ("id", "bbox", "keypoints", "iscrowd") if key in record}
            self.annotations[number].append({**kept, "label": label, "is_person": is_person})

    def chosen(self) -> list[int]:
        """Return the ids of the images to show: first those with joints, then those with annotations, then others."""

        def rank(number: int) -> tuple[int, int]:
            records = self.annotations.get(number, [])
            joints = any(one["is_person"] and any(one.get("keypoints", ())[2::3]) for one in records)
            return (0 if joints else 1 if records else 2), number

        return sorted(sorted(self.images, key=rank)[:SHOWN])


def write_people(splits: Mapping[str, Examples], folder: Path, skeleton: Skeleton | None, path: Path) -> None:
    """Draw the first images of every split with boxes, joints and connections as a PNG; same input, same bytes."""
    chosen = {split: one.chosen() for split, one in splits.items()}
    rows = {split: _row_heights(splits[split], numbers, folder) for split, numbers in chosen.items()}
    heights = [sum(one) + _TITLE for one in rows.values()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(matplotlib.rcParamsDefault):  # ignore the user's matplotlibrc
        figure = Figure(figsize=(COLUMNS * _PANEL, sum(heights) + _TITLE), layout="constrained")
        FigureCanvasAgg(figure)
        bands = np.ravel(figure.subfigures(len(splits) + 1, 1, height_ratios=[*heights, _TITLE], squeeze=False))
        for band, (split, numbers) in zip(bands, chosen.items(), strict=False):
            band.suptitle(split)
            ratios = {"height_ratios": rows[split]}
            every = band.subplots(len(rows[split]), COLUMNS, squeeze=False, gridspec_kw=ratios)
            for axes in every.flat:
                axes.set_axis_off()
            for axes, number in zip(every.flat, numbers, strict=False):
                _draw(axes, splits[split], number, folder, skeleton)
        if any(one.annotations for one in splits.values()):
            bands[-1].legend(handles=_legend(skeleton), loc="center", ncols=8, frameon=False, fontsize="small")
        figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _row_heights(examples: Examples, numbers: Sequence[int], folder: Path) -> list[float]:
    """Return the height of each row of pictures, inches: that of the tallest at full width, but at most square."""
    shapes = []
    for number in numbers:
        with Image.open(folder / examples.images[number]) as image:
            shapes.append(min(1.0, image.height / image.width))
    rows = [shapes[start : start + COLUMNS] for start in range(0, len(shapes), COLUMNS)]
    return [max(row) * _PANEL + _NAME for row in rows] or [_PANEL]


def _legend(skeleton: Skeleton | None) -> list[Line2D | Patch]:
    entries: list[Line2D | Patch] = [
        Patch(facecolor="none", edgecolor=_CROWD, hatch="//", label="crowd"),
        Patch(facecolor="none", edgecolor="0.6", label="other object"),
    ]
    if skeleton is not None:
        for colour, label in ((_LEFT, "left"), (_RIGHT, "right"), (_MIDDLE, "middle")):
            entries.append(Line2D([], [], color=colour, linewidth=2, label=label))
        for fill, label in (("0.2", "visible"), ("none", "hidden")):
            entries.append(Line2D([], [], linestyle="none", marker="o", color="0.2", markerfacecolor=fill, label=label))
    return entries


def _draw(axes: Axes, examples: Examples, number: int, folder: Path, skeleton: Skeleton | None) -> None:
    name = examples.images[number]
    with Image.open(folder / name) as image:
        width, height = image.size
        scale = _PANEL * DPI / max(width, height)
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        image.draft("RGB", size)
        pixels = np.asarray(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))
    axes.imshow(pixels, extent=(0, width, height, 0), interpolation="nearest")
    title = one_line(name)
    axes.set_title(title if len(title) <= 36 else f"…{title[-35:]}", fontsize="small", parse_math=False)
    for record in sorted(examples.annotations.get(number, []), key=lambda one: int(one["id"])):
        x, y, wide, high = record["bbox"]
        colour = _BOX if record["is_person"] else _OTHER
        if record.get("iscrowd"):
            style: dict[str, Any] = {"edgecolor": _CROWD, "hatch": "//", "linewidth": 1.0}
        else:
            style = {"edgecolor": colour, "linewidth": 1.0}
        axes.add_patch(Rectangle((x, y), wide, high, facecolor="none", **style))
        if not record["is_person"]:
            text: dict[str, Any] = {"color": "black", "fontsize": 6, "parse_math": False, "clip_on": True}
            back = {"facecolor": _OTHER, "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
            axes.text(x, y, one_line(record["label"]), verticalalignment="bottom", bbox=back, **text)
        elif skeleton is not None and not record.get("iscrowd") and record.get("keypoints"):
            _draw_joints(axes, np.array(record["keypoints"], dtype=np.float64).reshape(-1, 3), skeleton)
    axes.set(xlim=(0, width), ylim=(height, 0), anchor="N")


def _draw_joints(axes: Axes, joints: np.ndarray, skeleton: Skeleton) -> None:
    colours = _colours(skeleton)
    thin = len(skeleton.keypoints) > 40
    for a, b in skeleton.connections:
        if joints[a, 2] > 0 and joints[b, 2] > 0:
            sides = {colours[a], colours[b]} - {_MIDDLE}
            colour = sides.pop() if len(sides) == 1 else _MIDDLE
            axes.plot(joints[[a, b], 0], joints[[a, b], 1], color=colour, linewidth=0.7 if thin else 1.4)
    size, edge = (1.2, 0.2) if thin else (3.0, 0.5)
    for x, y, flag, colour in sorted(zip(*joints.T, colours, strict=True), key=lambda one: one[2]):  # visible ones last
        if flag > 0:
            fill = {"markerfacecolor": "none", "markeredgecolor": colour}
            fill = fill if flag == 1 else {"markerfacecolor": colour, "markeredgecolor": "black"}
            axes.plot(x, y, marker="o", markersize=size, markeredgewidth=edge, **fill)


def _colours(skeleton: Skeleton) -> list[str]:
    """Return a colour per joint: by the side in its name, or by the order of a pair of mirrored joints."""
    sides: dict[Side, str] = {"left": _LEFT, "right": _RIGHT}
    return [
        _MIDDLE if joint == other else sides[side_of(name) or ("left" if joint < other else "right")]
        for joint, (name, other) in enumerate(zip(skeleton.keypoints, skeleton.flip, strict=True))
    ]
