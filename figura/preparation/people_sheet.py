"""A picture of the first images of each split with their annotations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import one_line
from figura.base.pictures import write_png
from figura.base.raw_pictures import read_picture
from figura.formats.skeletons import Side, Skeleton, side_of

COLUMNS = 4
SHOWN = 8  # images per split in the picture

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]
_CANDIDATES, _MOST = 64, 100  # candidate images, annotations per image
_SIDE, _LINE = 320, 18  # pixels: the longer side of an image, the height of a line of text
_LEFT, _RIGHT, _MIDDLE = (255, 159, 28), (46, 196, 255), (124, 252, 0)
_CROWD, _OTHER, _BOX = (255, 63, 208), (208, 208, 208), (255, 255, 255)
_LEGEND = {
    "left": _LEFT, "right": _RIGHT, "middle (filled: visible, ring: hidden)": _MIDDLE, "crowd": _CROWD,
    "other object": _OTHER,
}  # fmt: skip


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
    rows = []
    for one in splits.values():
        panels = [_panel(one, number, folder, skeleton) for number in one.chosen()]
        rows += [panels[start : start + COLUMNS] for start in range(0, len(panels), COLUMNS)]
    heights = [max(len(panel) for panel in row) for row in rows]
    sheet = np.full((sum(heights) + _LINE, COLUMNS * _SIDE, 3), 255, dtype=np.uint8)
    for row, top in zip(rows, accumulate(heights, initial=0), strict=False):
        for column, panel in enumerate(row):
            sheet[top : top + len(panel), column * _SIDE :][:, : panel.shape[1]] = panel
    for index, (label, colour) in enumerate(_LEGEND.items()):
        left = index * COLUMNS * _SIDE // len(_LEGEND)
        cv2.rectangle(sheet, (left + 4, len(sheet) - 12), (left + 12, len(sheet) - 4), colour, cv2.FILLED)
        _write(sheet, label, (left + 16, len(sheet) - 5))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_png(path, sheet)


def _write(picture: Pixels, text: str, place: tuple[int, int]) -> None:
    cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.38, (0, 0, 0), 1, cv2.LINE_AA)


def _panel(examples: Examples, number: int, folder: Path, skeleton: Skeleton | None) -> Pixels:
    """Draw an image and its annotations below its name."""
    name = examples.images[number]
    pixels = read_picture(folder / name)
    scale = _SIDE / max(pixels.shape[:2])
    size = max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale))
    picture = np.ascontiguousarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    for record in sorted(examples.annotations.get(number, []), key=lambda one: int(one["id"])):
        x, y, width, height = (int(scale * side) for side in record["bbox"])
        colour = _CROWD if record.get("iscrowd") else _BOX if record["is_person"] else _OTHER
        cv2.rectangle(picture, (x, y), (x + width, y + height), colour)
        if not record["is_person"]:
            label = one_line(record["label"])
            cv2.rectangle(picture, (x, y), (x + 7 * len(label), y + 13), _OTHER, cv2.FILLED)
            _write(picture, label, (x + 2, y + 10))
        elif skeleton is not None and not record.get("iscrowd") and record.get("keypoints"):
            joints = np.array(record["keypoints"], dtype=np.float64).reshape(-1, 3) * (scale, scale, 1)
            _draw_joints(picture, joints.astype(int).tolist(), skeleton)
    title = np.full((_LINE, _SIDE, 3), 255, dtype=np.uint8)
    _write(title, one_line(name)[-44:], (2, _LINE - 6))
    beside = np.full((len(picture), _SIDE - picture.shape[1], 3), 255, dtype=np.uint8)
    return np.concatenate([title, np.concatenate([picture, beside], axis=1)])


def _draw_joints(picture: Pixels, joints: Sequence[Sequence[int]], skeleton: Skeleton) -> None:
    colours = _colours(skeleton)
    for a, b in skeleton.connections:
        if joints[a][2] and joints[b][2]:
            sides = {colours[a], colours[b]} - {_MIDDLE}
            cv2.line(picture, joints[a][:2], joints[b][:2], sides.pop() if len(sides) == 1 else _MIDDLE)
    for (x, y, flag), colour in zip(joints, colours, strict=True):
        if flag:
            cv2.circle(picture, (x, y), 2, colour, cv2.FILLED if flag == 2 else 1)


def _colours(skeleton: Skeleton) -> list[Colour]:
    """Return a colour per joint: by the side in its name, or by the order of a pair of mirrored joints."""
    sides: dict[Side, Colour] = {"left": _LEFT, "right": _RIGHT}
    return [
        _MIDDLE if joint == other else sides[side_of(name) or ("left" if joint < other else "right")]
        for joint, (name, other) in enumerate(zip(skeleton.keypoints, skeleton.flip, strict=True))
    ]
