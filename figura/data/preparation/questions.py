"""What is asked of an annotation file as a whole: whether its numbers can mean what COCO says.

Each record may be possible and all of them together not: boxes given as corners, coordinates from 0 to 1, joints and
boxes of different pictures. A contradiction that would make results meaningless is an error; its message names the
setting that says what the numbers are.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.data.formats.coco import KEYPOINTS
from figura.data.formats.keypoint_sets import HUMANART21, SETS, WHOLEBODY
from figura.data.formats.records import Conventions, Size, labelled_points, real_number, real_numbers, whole_number

_LEAST = 5  # records; fewer can be chance
_MOST, _MANY, _SOME = 0.95, 0.8, 0.2
_BEYOND = 1.02
_RELATIVE = 1.5  # shares of a picture's sides may end a little outside of it
_PER_CENT = 120  # pixels; coordinates up to 100 in pictures larger than this are suspicious
_LARGE = 200  # pixels; in pictures larger than this, with a smaller spread, too
_SPREAD, _SOME_SPREAD = 70, 40
_FILLED = 0.4  # of a box's sides, by its joints

_IN_OTHER_KEYS = (len(WHOLEBODY.keypoints), len(HUMANART21.keypoints))  # `keypoints` has COCO's joints alone


class JointCounts:
    """How many numbers the keypoints of each category's annotations have."""

    def __init__(self) -> None:
        self.numbers: dict[Any, Counter[int]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Count an annotation; keypoints of zeros alone do not count."""
        keypoints = record.get("keypoints")
        if isinstance(keypoints, list) and any(keypoints):
            nested = {*map(type, keypoints)} & {list, dict}
            count = sum(map(_numbers_of, keypoints)) if nested else len(keypoints)
            category = whole_number(record.get("category_id"))
            self.numbers.setdefault(category, Counter())[count] += 1

    def check(self, path: Path, members: Mapping[int, Any] | None, joints: int, key: str) -> None:
        """Raise UserError if most annotations have another number of joints than are named, or none is named.

        `members` are the categories of people; None if there are none, then all categories count.
        """
        counts = self._of(members)
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

    def _of(self, members: Mapping[int, Any] | None) -> Counter[int]:
        counts: Counter[int] = Counter()
        for category, numbers in self.numbers.items():
            if members is None or category is None or category in members:
                counts += numbers
        return counts

    def unlabelled(self, path: Path, members: Mapping[int, Any], labelled: int) -> list[str]:
        """Return a warning if annotations have joints, and none of them is labelled; `labelled` people have some."""
        count = self._of(members).total()
        if labelled or count < _LEAST:
            return []
        line = (
            f"warning: {path}: {count} annotations have joints, none of which counts: visibilities must be 1 or 2, or "
            "confidences of at least `min_confidence`"
        )
        return [line]


def _numbers_of(joint: Any) -> int:
    if isinstance(joint, dict):
        return 3
    return len(joint) if isinstance(joint, list) else 1


class Plausibility:
    """Counts over the boxes and joints of a file, before any repair. `names` are those of people's joints."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = names
        self.boxes = self.beyond = self.corners = self.corner_areas = 0
        self.persons = self.in_corners = self.nearer = self.apart = self.left = self.right = 0
        self.posed = 0
        self.seen: set[bytes] = set()
        self.twice = 0
        self.least, self.largest = [math.inf, math.inf], [0.0, 0.0]
        self.sides = [math.inf, math.inf]

    def add(self, record: Mapping[str, Any], size: Size) -> None:
        """Count an annotation in a picture of this size."""
        box = real_numbers(record.get("bbox")) or []
        points = labelled_points(record.get("keypoints"), self.names)
        self.posed += bool(points)
        self._add_content(record)
        self.sides = [min(known, side) for known, side in zip(self.sides, size, strict=True)]
        for point in points:
            self.least = [min(pair) for pair in zip(self.least, point, strict=True)]
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
        areas = [area is not None and math.isclose(area, one, rel_tol=0.01) for one in ((a - x) * (b - y), a * b)]
        self.corner_areas += areas == [True, False]  # a box from 0, 0 has both
        if len(points) >= 3 and a > 0 and b > 0:
            self._add_person(points, x, y, a, b)

    def _add_content(self, record: Mapping[str, Any]) -> None:
        """Count an annotation that says nothing else than an earlier one of its picture."""
        what = "bbox" if record.get("bbox") else "segmentation"
        content = repr([record.get(key) for key in ("image_id", "category_id", "keypoints", what)])
        digest = hashlib.blake2b(content.encode(errors="surrogatepass"), digest_size=12).digest()
        self.twice += digest in self.seen
        self.seen.add(digest)

    def _add_person(self, points: list[tuple[float, float]], x: float, y: float, a: float, b: float) -> None:
        self.persons += 1
        across, down = (sum(one[axis] for one in points) / len(points) for axis in (0, 1))
        inside = all(x - 1 <= one <= a + 1 and y - 1 <= other <= b + 1 for one, other in points)
        extent = [max(one) - min(one) for one in zip(*points, strict=True)]
        self.in_corners += inside and extent[0] > _FILLED * (a - x) and extent[1] > _FILLED * (b - y)
        # From the middle of the joints to the middle of the box, read either way
        as_corners = math.hypot(across - (x + a) / 2, down - (y + b) / 2)
        as_sides = math.hypot(across - x - a / 2, down - y - b / 2)
        self.nearer += 2 * as_corners < as_sides and as_sides > math.hypot(a, b) / 10
        self.left += across < x + 0.4 * a
        self.right += across > x + 0.6 * a
        outside = sum(
            not (x - a / 4 <= one <= x + 1.25 * a and y - b / 4 <= other <= y + 1.25 * b) for one, other in points
        )
        self.apart += 2 * outside > len(points)

    def check(self, path: Path, conventions: Conventions, key: str) -> list[str]:
        """Return warnings; raise UserError for a contradiction. `key` is the dotted key of the settings."""
        count = f"{self.boxes} boxes and {self.posed} poses"
        if conventions.coordinates is None and min(self.sides) > 8 and 0 < max(self.largest) <= _RELATIVE:
            raise UserError(
                f"{path}: all coordinates of {count} are about 1 or less, as shares of the pictures' sides; "
                f"write `coordinates: relative` to {key} (or pixels to the file)"
            )
        if conventions.coordinates is None and self._in_per_cent():
            raise UserError(
                f"{path}: no coordinate of {count} is above 100, though every picture is larger than "
                f"{_PER_CENT} pixels: they look like percent; write `coordinates: percent` to {key}, or "
                "`coordinates: pixels` if they are pixels"
            )
        if conventions.boxes == "corners" and self.boxes >= _LEAST and 2 * self.corners < self.boxes:
            raise UserError(
                f"{path}: {self.boxes - self.corners} of {self.boxes} boxes cannot be x1, y1, x2, y2, as `boxes: "
                f"corners` in {key} says: the second corner is left of or above the first, or outside of the picture"
            )
        lines = []
        if self.twice:
            lines.append(
                f"warning: {path}: {self.twice} annotations say the same as another of their image: each counts, so "
                "one person is to be found twice"
            )
        if conventions.boxes is None and self._are_corners():
            line = (
                f"{path}: {self.boxes} boxes fit x1, y1, x2, y2 better than x, y, width, height: {self.beyond} reach "
                f"beyond their picture, {self.nearer} of {self.persons} people with joints are in the middle of such "
                f"boxes alone; write `boxes: corners` to {key}, `boxes: joints` for boxes around the joints, or "
                "`boxes: xywh` if they are right"
            )
            if self.boxes >= _LEAST:
                raise UserError(line)
            lines.append(f"warning: {line}")
        elif conventions.boxes is None and self.persons >= _LEAST:
            lines += self._of_joints(path, key)
        return lines

    def _in_per_cent(self) -> bool:
        spread = min(most - least for least, most in zip(self.least, self.largest, strict=True))
        needed = _SOME_SPREAD if min(self.sides) >= _LARGE else _SPREAD
        many = max(self.boxes, self.posed) >= 2 * _LEAST
        return many and min(self.sides) > _PER_CENT and needed < spread and max(self.largest) <= 100

    def _are_corners(self) -> bool:
        if not self.boxes or self.corners < _MOST * self.boxes:
            return False
        with_joints = self.persons >= min(self.boxes, _LEAST)
        joints = with_joints and min(self.nearer / _MANY, self.in_corners / _MOST) >= self.persons
        return joints or self.beyond > _SOME * self.boxes or self.corner_areas > _MANY * self.boxes

    def _of_joints(self, path: Path, key: str) -> list[str]:
        if 2 * self.apart > self.persons:
            raise UserError(
                f"{path}: in {self.apart} of {self.persons} people most joints are outside of the box: boxes and "
                f"joints are of different pictures or people; correct one of them, or write `boxes: joints` to {key} "
                "for boxes around the joints"
            )
        if self.apart > _SOME * self.persons:
            line = (
                f"warning: {path}: in {self.apart} of {self.persons} people most joints are outside of the box; "
                f"correct them, or write `boxes: joints` to {key} for boxes around the joints"
            )
            return [line]
        if self.persons >= 2 * _LEAST and max(self.left, self.right) > 0.9 * self.persons:
            side = "left" if self.left > self.right else "right"
            line = (
                f"warning: {path}: in {max(self.left, self.right)} of {self.persons} people the joints lie in the "
                f"{side} part of the box: crops would show people off their centre; `boxes: joints` in {key} makes "
                "boxes around the joints"
            )
            return [line]
        return []
