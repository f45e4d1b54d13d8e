"""What is asked of an annotation file as a whole: whether its numbers can mean what COCO says.

Each record may be possible and all of them together not: boxes given as corners, coordinates from 0 to 1, joints and
boxes of different pictures. A contradiction that would make results meaningless is an error; its message names the
setting that says what the numbers are.
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.data.formats.coco import KEYPOINTS
from figura.data.formats.keypoint_sets import HUMANART21, SETS, WHOLEBODY
from figura.data.formats.records import Conventions, Size, real_number, real_numbers

_LEAST = 5  # records; fewer can be chance
_MOST, _MANY, _SOME = 0.95, 0.8, 0.2
_BEYOND = 1.02
_PER_CENT = 120  # pixels; coordinates up to 100 in pictures larger than this are suspicious
_SPREAD = 70

_IN_OTHER_KEYS = (len(WHOLEBODY.keypoints), len(HUMANART21.keypoints))  # `keypoints` has COCO's joints alone


class JointCounts:
    """How many numbers the keypoints of each category's annotations have."""

    def __init__(self) -> None:
        self.numbers: dict[Any, Counter[int]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Count an annotation."""
        keypoints = record.get("keypoints")
        if isinstance(keypoints, list) and keypoints:
            count = sum(len(one) if isinstance(one, list) else 1 for one in keypoints)
            category = record.get("category_id")
            self.numbers.setdefault(category if isinstance(category, int) else None, Counter())[count] += 1

    def check(self, path: Path, members: Mapping[int, Any] | None, joints: int, key: str) -> None:
        """Raise UserError if most annotations have another number of joints than are named, or none is named.

        `members` are the categories of people; None if there are none, then all categories count.
        """
        counts: Counter[int] = Counter()
        for category, numbers in self.numbers.items():
            if members is None or category in members:
                counts += numbers
        usual = {2 * joints, 3 * joints} | ({3 * len(KEYPOINTS)} if joints in _IN_OTHER_KEYS else set())
        wrong = {count: many for count, many in counts.items() if count not in usual}
        if sum(wrong.values()) * 2 <= counts.total() or not wrong:
            return
        most = max(wrong, key=lambda count: wrong[count])
        found = most // 3 if most % 3 == 0 else most // 2
        fitting = [name for name, one in SETS.items() if len(one.skeleton.keypoints) == found]
        cure = f"`keypoints: {fitting[0]}` or " if fitting else ""
        named = f"the category names {joints}" if joints else "no category names them"
        raise UserError(
            f"{path}: {wrong[most]} of {counts.total()} annotations have {most} numbers, {found} joints, and {named}; "
            f"write {cure}the names in their order, `keypoints: {{keypoints: [nose, ...]}}`, to {key}"
        )


class Plausibility:
    """Counts over the boxes and joints of a file, before any repair."""

    def __init__(self) -> None:
        self.boxes = self.beyond = self.corners = self.corner_areas = 0
        self.persons = self.in_corners = self.in_first_half = self.apart = self.left = self.right = 0
        self.least, self.largest = [math.inf, math.inf], [0.0, 0.0]
        self.sides = [math.inf, math.inf]

    def add(self, record: Mapping[str, Any], size: Size) -> None:
        """Count an annotation in a picture of this size."""
        box = real_numbers(record.get("bbox")) or []
        points = _points(record.get("keypoints"))
        self.sides = [min(known, side) for known, side in zip(self.sides, size, strict=True)]
        for point in points:
            self.largest = [max(pair) for pair in zip(self.largest, point, strict=True)]
        if len(box) != 4:
            return
        x, y, a, b = box
        self.boxes += 1
        self.least = [min(pair) for pair in zip(self.least, (x, y), strict=True)]
        self.largest = [max(three) for three in zip(self.largest, (x, y), (a, b), strict=True)]
        self.beyond += x + a > _BEYOND * size.width or y + b > _BEYOND * size.height
        self.corners += x < a <= _BEYOND * size.width and y < b <= _BEYOND * size.height
        area = real_number(record.get("area"))
        self.corner_areas += area is not None and math.isclose(area, (a - x) * (b - y), rel_tol=0.01)
        if len(points) >= 3 and a > 0 and b > 0:
            self._add_person(points, x, y, a, b)

    def _add_person(self, points: list[tuple[float, float]], x: float, y: float, a: float, b: float) -> None:
        self.persons += 1
        across, down = (sum(one[axis] for one in points) / len(points) for axis in (0, 1))
        self.in_corners += all(x - 1 <= one <= a + 1 and y - 1 <= other <= b + 1 for one, other in points)
        self.in_first_half += across < x + a / 2 and down < y + b / 2
        self.left += across < x + 0.4 * a
        self.right += across > x + 0.6 * a
        outside = sum(
            not (x - a / 4 <= one <= x + 1.25 * a and y - b / 4 <= other <= y + 1.25 * b) for one, other in points
        )
        self.apart += 2 * outside > len(points)

    def check(self, path: Path, conventions: Conventions, key: str) -> list[str]:
        """Return warnings; raise UserError for a contradiction. `key` is the dotted key of the settings."""
        if self.boxes + self.persons == 0:
            return []
        if conventions.coordinates is None and min(self.sides) > 8 and 0 < max(self.largest) <= 1:
            raise UserError(
                f"{path}: all coordinates of {self.boxes} boxes are at most 1, as shares of the pictures' sides; "
                f"write `coordinates: relative` to {key} (or pixels to the file)"
            )
        if conventions.coordinates is None and self._in_per_cent():
            raise UserError(
                f"{path}: no coordinate of {self.boxes} boxes is above 100, though every picture is larger than "
                f"{_PER_CENT} pixels: they look like percent; write `coordinates: percent` to {key}, or "
                "`coordinates: pixels` if they are pixels"
            )
        if conventions.boxes is None and self._are_corners():
            raise UserError(
                f"{path}: {self.boxes} boxes fit x1, y1, x2, y2 better than x, y, width, height: {self.beyond} reach "
                f"beyond their picture, {self.in_first_half} of {self.persons} people with joints are in the first "
                f"half of theirs; write `boxes: corners` to {key}, or `boxes: joints` for boxes around the joints"
            )
        if conventions.boxes is None and self.persons >= _LEAST:
            return self._of_joints(path, key)
        return []

    def _in_per_cent(self) -> bool:
        spread = min(most - least for least, most in zip(self.least, self.largest, strict=True))
        reaches = spread > _SPREAD and max(self.largest) <= 100
        return self.boxes >= 2 * _LEAST and min(self.sides) > _PER_CENT and reaches

    def _are_corners(self) -> bool:
        if self.boxes < _LEAST or self.corners < _MOST * self.boxes:
            return False
        with_joints = self.persons >= _LEAST
        joints = with_joints and min(self.in_first_half / _MANY, self.in_corners / _MOST) >= self.persons
        return joints or self.beyond > _SOME * self.boxes or self.corner_areas > _MANY * self.boxes

    def _of_joints(self, path: Path, key: str) -> list[str]:
        if 2 * self.apart > self.persons:
            raise UserError(
                f"{path}: in {self.apart} of {self.persons} people most joints are outside of the box: boxes and "
                f"joints are of different pictures or people; correct one of them, or write `boxes: joints` to {key} "
                "for boxes around the joints"
            )
        if self.persons >= 2 * _LEAST and max(self.left, self.right) > 0.9 * self.persons:
            side = "left" if self.left > self.right else "right"
            line = (
                f"warning: {path}: in {max(self.left, self.right)} of {self.persons} people the joints lie in the "
                f"{side} part of the box: crops would show people off their centre; `boxes: joints` in {key} makes "
                "boxes around the joints"
            )
            return [line]
        return []


def _points(keypoints: Any) -> list[tuple[float, float]]:
    if not isinstance(keypoints, list) or len(keypoints) % 3:
        return []
    try:
        return [
            (float(x), float(y))
            for x, y, flag in zip(keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True)
            if flag and math.isfinite(x) and math.isfinite(y)
        ]
    except (TypeError, ValueError, OverflowError):
        return []
