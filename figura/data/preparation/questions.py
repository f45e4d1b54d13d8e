"""What is asked of an annotation file as a whole: whether its numbers can mean what COCO says.

Each record may be possible and all of them together not: boxes given as corners, coordinates from 0 to 1, joints and
boxes of different pictures. A contradiction that would make results meaningless is an error; its message names the
setting that says what the numbers are.
"""

import hashlib
import marshal
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
_NEAR = 0.1  # of a picture's sides, around it; predicted joints farther outside are of a picture of another size

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
            numbers = [3 if isinstance(one, dict) else len(one) if isinstance(one, list) else 1 for one in keypoints]
            count = sum(numbers) if nested else len(keypoints)
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
        fitting = [name for name, one in SETS.items() if len(one.keypoints) == found]
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


class Plausibility:
    """Counts over the boxes and joints of a file, before any repair.

    `names` are those of people's joints, `conventions` say how the file's numbers are read.
    """

    def __init__(self, names: Sequence[str], conventions: Conventions) -> None:
        self.names, self.conventions, self.least_flag = names, conventions, conventions.min_confidence
        self.boxes = self.beyond = self.corners = self.corner_areas = 0
        self.persons = self.in_corners = self.nearer = self.apart = self.left = self.right = 0
        self.posed = self.twice = self.predicted = self.far = 0
        self.farthest = 0.0
        self.seen: set[bytes] = set()
        self.least, self.largest = (math.inf, math.inf), (0.0, 0.0)
        self.sides = (math.inf, math.inf)

    def add(self, record: Mapping[str, Any], size: Size) -> None:
        """Count an annotation in a picture of this size."""
        box = real_numbers(record.get("bbox")) or []
        points = labelled_points(record.get("keypoints"), self.names, self.least_flag)
        self._add_content(record)
        width, height = size
        self.sides = min(self.sides[0], width), min(self.sides[1], height)
        across, down = [x for x, _ in points], [y for _, y in points]
        if points:
            self.posed += 1
            self._extend(across, down)
            if self.conventions.predicted:
                self.predicted += len(points)
                self.far += sum(max(abs(x / width - 0.5), abs(y / height - 0.5)) > 0.5 + _NEAR for x, y in points)
                self.farthest = max(self.farthest, *across, *down)
        if len(box) != 4:
            return
        x, y, a, b = box
        self.boxes += 1
        self._extend((x,), (y,))
        self.largest = max(self.largest[0], a), max(self.largest[1], b)
        self.beyond += x + a > _BEYOND * width or y + b > _BEYOND * height
        self.corners += x < a <= _BEYOND * width and y < b <= _BEYOND * height
        area = real_number(record.get("area"))
        if area is not None and math.isclose(area, (a - x) * (b - y), rel_tol=0.01):
            self.corner_areas += not math.isclose(area, a * b, rel_tol=0.01)  # a box from 0, 0 has both
        if len(points) >= 3 and a > 0 and b > 0:
            self._add_person(across, down, box)

    def _extend(self, across: Sequence[float], down: Sequence[float]) -> None:
        self.least = min(self.least[0], *across), min(self.least[1], *down)
        self.largest = max(self.largest[0], *across), max(self.largest[1], *down)

    def _add_content(self, record: Mapping[str, Any]) -> None:
        """Count an annotation that says nothing else than an earlier one of its picture."""
        what = "bbox" if record.get("bbox") else "segmentation"
        content = [record.get(key) for key in ("image_id", "category_id", "keypoints", what)]
        digest = hashlib.blake2b(marshal.dumps(content, 2), digest_size=12).digest()  # 2: equal values, equal bytes
        self.twice += digest in self.seen
        self.seen.add(digest)

    def _add_person(self, across: list[float], down: list[float], box: Sequence[float]) -> None:
        x, y, a, b = box
        self.persons += 1
        left, right, top, bottom = min(across), max(across), min(down), max(down)
        inside = x - 1 <= left and right <= a + 1 and y - 1 <= top and bottom <= b + 1
        self.in_corners += inside and right - left > _FILLED * (a - x) and bottom - top > _FILLED * (b - y)
        # From the middle of the joints to the middle of the box, read either way
        middle = sum(across) / len(across), sum(down) / len(down)
        as_corners = math.hypot(middle[0] - (x + a) / 2, middle[1] - (y + b) / 2)
        as_sides = math.hypot(middle[0] - x - a / 2, middle[1] - y - b / 2)
        self.nearer += 2 * as_corners < as_sides and as_sides > math.hypot(a, b) / 10
        self.left += middle[0] < x + 0.4 * a
        self.right += middle[0] > x + 0.6 * a
        near = x - a / 4, x + 1.25 * a, y - b / 4, y + 1.25 * b
        if not (near[0] <= left and right <= near[1] and near[2] <= top and bottom <= near[3]):
            within = sum(
                near[0] <= one <= near[1] and near[2] <= other <= near[3]
                for one, other in zip(across, down, strict=True)
            )
            self.apart += 2 * (len(across) - within) > len(across)

    def check(self, path: Path, key: str) -> list[str]:
        """Return warnings; raise UserError for a contradiction. `key` is the dotted key of the settings."""
        conventions = self.conventions
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
        if self.predicted and self.farthest <= 1 and conventions.coordinates in (None, "pixels"):
            raise UserError(
                f"{path}: all joints lie between 0 and 1, so they are fractions; write pixels (OpenPose: "
                "--keypoint_scale 0)"
            )
        if self.far > _SOME * self.predicted and conventions.coordinates in (None, "pixels"):
            raise UserError(
                f"{path}: {self.far} of {self.predicted} joints lie far outside of their pictures, so they belong to "
                "pictures of another size"
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
