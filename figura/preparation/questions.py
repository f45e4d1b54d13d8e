"""Plausibility checks of a whole annotation file: whether its numbers can mean what COCO says.

Each record may be possible and all of them together not: boxes given as corners, x and y exchanged, coordinates from 0
to 1, joints and boxes of different pictures. Each way of reading the numbers is compared with the pictures. If only
another way than COCO's fits them, that is an error; if another fits better, a warning. The message names the setting
that says what the numbers are.
"""

import hashlib
import marshal
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.formats.coco import KEYPOINTS
from figura.formats.keypoint_sets import HUMANART21, SETS, WHOLEBODY
from figura.formats.normalise import Conventions, labelled_points, triples
from figura.formats.records import Size, real_number, real_numbers, whole_number

_LEAST = 5  # records; fewer can be chance
_MOST, _MANY, _SOME, _FEW = 0.9, 0.6, 0.2, 0.05
_KEPT = 4096  # records that are read in each way, spread over the file
_BEYOND = 0.02  # of a picture's sides
_EMPTY = 0.1  # of a box's area; joints of people cover more
_OFF = 0.3  # of a box's sides: the middle of the joints from that of the box
_POINT = 4  # pixels
_PART = 0.6  # of the pictures' sides; all annotations of a file reach farther
_RELATIVE = 1.5  # shares of a picture's sides may end a little outside of it
_PER_CENT = 120  # pixels; coordinates up to 100 in pictures larger than this are suspicious
_LARGE = 200  # pixels; in pictures larger than this, with a smaller spread, too
_SPREAD, _SOME_SPREAD = 70, 40
_NEAR = 0.1  # of a picture's sides, around it; predicted joints farther outside are of a picture of another size

_ENDS = ("nose", "eye", "ear", "head"), ("hip", "pelvis", "knee", "ankle")
_LIES = {
    "left": "left of their hips: x and y are exchanged, or the pictures turned",
    "right": "right of their hips: the pictures are turned",
    "down": "below their hips: y counts from the bottom, or the pictures stand on their heads",
}

_ONE_TEXT = re.compile(r"[\s(\[-]*\d[\s\d.,;eE+()\[\]-]*")  # numbers that are no list
_IN_OTHER_KEYS = (len(WHOLEBODY.keypoints), len(HUMANART21.keypoints))  # `keypoints` has COCO's joints alone


class JointCounts:
    """How many numbers the keypoints of each category's annotations have."""

    def __init__(self) -> None:
        self.numbers: dict[Any, Counter[int]] = {}
        self.records = self.texts = self.grouped = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Count an annotation; keypoints of zeros alone and of crowd regions do not count, joints by name are 0."""
        keypoints = record.get("keypoints")
        self.records += 1
        self.texts += any(isinstance(one, str) and _ONE_TEXT.fullmatch(one) for one in (record.get("bbox"), keypoints))
        if whole_number(record.get("iscrowd")) == 1:
            return
        if isinstance(keypoints, dict) and keypoints:
            self.numbers.setdefault(whole_number(record.get("category_id")), Counter())[0] += 1
        if isinstance(keypoints, list) and any(keypoints):
            nested = {*map(type, keypoints)} & {list, dict}
            numbers = [3 if isinstance(one, dict) else len(one) if isinstance(one, list) else 1 for one in keypoints]
            count = sum(numbers) if nested else len(keypoints)
            self.grouped += _is_grouped(real_numbers(keypoints) or ())
            category = whole_number(record.get("category_id"))
            self.numbers.setdefault(category, Counter())[count] += 1

    def check(self, path: Path, members: Mapping[int, Any] | None, joints: int, key: str) -> None:
        """Raise UserError if most annotations have another number of joints than are named, none is named, or texts.

        `members` are the categories of people; None if there are none, then all categories count.
        """
        if 2 * self.texts > self.records:
            raise UserError(
                f"{path}: in {self.texts} of {self.records} annotations, bbox or keypoints are one text, as of a "
                "table; write lists of numbers"
            )
        if 2 * self.grouped > self.records:
            raise UserError(
                f"{path}: in {self.grouped} of {self.records} annotations, keypoints are x of all joints, then y, then "
                "the flags; write x, y and flag of one joint after another"
            )
        counts = self._of(members)
        usual = {0, 2 * joints, 3 * joints} | ({3 * len(KEYPOINTS)} if joints in _IN_OTHER_KEYS else set())
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

    def left_out(self, path: Path, members: Mapping[int, Any], names: Mapping[int, str], key: str) -> list[str]:
        """Return a warning if annotations of categories without joints, which have these `names`, have some."""
        others = {number: one.total() for number, one in self.numbers.items() if number in names.keys() - members}
        if not others:
            return []
        named = ", ".join(names[number] for number in sorted(others))
        line = f"{sum(others.values())} annotations of {named} have joints, which do not count"
        return [f"warning: {path}: {line}; `category` in {key} says whose count, of several too"]

    def unlabelled(self, path: Path, members: Mapping[int, Any], labelled: int) -> list[str]:
        """Return a warning if annotations have joints, and none of them is labelled; `labelled` people have some."""
        count = self._of(members).total()
        if labelled or count < _LEAST:
            return []
        line = (
            f"warning: {path}: {count} annotations have joints, none of which counts: they need the category's names, "
            "and visibilities of 1 or 2, or confidences of at least `min_confidence`"
        )
        return [line]


def _is_grouped(keypoints: Sequence[float]) -> bool:
    """Whether the last third of the numbers are COCO's flags, and every third number is none, nor a confidence."""
    flags = keypoints[2 * len(keypoints) // 3 :]
    return len(keypoints) % 3 == 0 and any(flags) and {*flags} <= {0, 1, 2} and max(keypoints[2::3]) > 2


class _Known(NamedTuple):
    """An annotation: the picture's sides, the box as written, and the labelled joints (K, 2), in pixels.

    `exchange` are the pixels of a unit of x and y in those of y and x: exchanged shares are of other sides.
    `of_corners` is whether its area is that of a box x1, y1, x2, y2. `head` is where the head is from the hips: `up`,
    `down`, `left` or `right`; empty if that is not known.
    """

    sides: NDArray[np.float64]
    box: list[float] | None
    points: NDArray[np.float64]
    exchange: NDArray[np.float64]
    of_corners: bool
    head: str


class _Way(NamedTuple):
    """A way of reading a file: what the numbers of a box are, and whether x and y of boxes and of joints are exchanged.

    `told` says it in messages. `boxes` is empty if boxes are not asked about.
    """

    told: str
    boxes: str
    boxes_exchanged: bool = False
    joints_exchanged: bool = False

    def edges(self, one: _Known) -> NDArray[np.float64]:
        """Return the upper left and the lower right corner of the box, (2, 2)."""
        x, y, a, b = one.box or (0, 0, 0, 0)
        first, second = {
            "xywh": ((x, y), (x + a, y + b)),
            "xyhw": ((x, y), (x + b, y + a)),
            "centre": ((x - a / 2, y - b / 2), (x + a / 2, y + b / 2)),
            "corners": ((x, y), (a, b)),
        }[self.boxes]
        edges = np.array([first, second])
        return edges[:, ::-1] * one.exchange if self.boxes_exchanged else edges

    def fits(self, one: _Known) -> bool:
        """Whether an annotation lies in its picture, and its joints around the middle of its box."""
        points = one.points[:, ::-1] * one.exchange if self.joints_exchanged else one.points
        if 10 * _outside(points, one.sides).sum() > len(points):
            return False
        if one.box is None or not self.boxes:
            return True
        edges = self.edges(one)
        extent = edges[1] - edges[0]
        if min(extent) <= 0 or _outside(edges, one.sides).any() or (one.of_corners and self.boxes != "corners"):
            return False
        return len(points) < 3 or bool((abs(points.mean(0) - edges.mean(0)) <= _OFF * extent).all())


_READ = {
    "xywh": "x, y, width, height",
    "corners": "x1, y1, x2, y2",
    "centre": "x and y of the centre, width, height",
    "xyhw": "x, y, height, width",
}
_EXCHANGED, _TURNED = "x and y exchanged", "pictures turned by 90 degrees, as before EXIF was stripped"


def _outside(points: NDArray[np.float64], sides: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.any((points < -_BEYOND * sides) | (points > (1 + _BEYOND) * sides), axis=-1, keepdims=False)


class Plausibility:
    """Counts over the boxes and joints of a file, before any repair.

    `names` are those of people's joints, `conventions` say how the file's numbers are read.
    """

    def __init__(self, names: Sequence[str], conventions: Conventions) -> None:
        self.names, self.conventions, self.least_flag = names, conventions, conventions.min_confidence
        plain = [name.lower() for name in names]
        self.ends = [[place for place, name in enumerate(plain) if any(one in name for one in end)] for end in _ENDS]
        self.boxes = self.corners = self.posed = self.twice = self.predicted = self.far = self.records = self.crowds = 0
        self.farthest, self.relative = 0.0, 0
        self.seen: set[bytes] = set()
        self.least, self.largest = (math.inf, math.inf), (0.0, 0.0)
        self.sides = (math.inf, math.inf)
        self.known: list[_Known] = []
        self.added, self.every = 0, 1

    def add(self, record: Mapping[str, Any], size: Size) -> None:
        """Count an annotation in a picture of this size."""
        box = real_numbers(record.get("bbox")) or self._of_mask(record)
        points = labelled_points(record.get("keypoints"), self.names, self.least_flag)
        self._add_content(record)
        self.records += 1
        self.crowds += whole_number(record.get("iscrowd")) == 1
        width, height = size
        self.sides = min(self.sides[0], width), min(self.sides[1], height)
        if points:
            across, down = [x for x, _ in points], [y for _, y in points]
            self.posed += 1
            self._extend(across, down)
            if self.conventions.predicted:
                self.predicted += len(points)
                self.far += sum(max(abs(x / width - 0.5), abs(y / height - 0.5)) > 0.5 + _NEAR for x, y in points)
                self.farthest = max(self.farthest, *across, *down)
        if len(box) == 4:
            x, y, a, b = box
            self.boxes += 1
            self._extend((x,), (y,))
            self.largest = max(self.largest[0], a), max(self.largest[1], b)
            self.corners += x < a <= (1 + _BEYOND) * width and y < b <= (1 + _BEYOND) * height
        if points or len(box) == 4:
            self.relative += max(*box, *(max(point) for point in points), 0, 0) <= _RELATIVE and min(size) > 8
            self._keep(record, box, points, size)

    def _of_mask(self, record: Mapping[str, Any]) -> list[float]:
        """Return the box of the polygons of a record that has none, as they are written; empty if they are unclear."""
        polygons = record.get("segmentation")
        if self.conventions.boxes is not None or self.conventions.centred or not isinstance(polygons, list):
            return []
        flat = [number for one in polygons for number in (one if isinstance(one, list) else [one])]
        numbers = real_numbers(flat) or []
        if len(numbers) < 6 or len(numbers) % 2:
            return []
        x, y = min(numbers[::2]), min(numbers[1::2])
        return [x, y, max(numbers[::2]) - x, max(numbers[1::2]) - y]

    def _keep(self, record: Mapping[str, Any], box: list[float], points: list[tuple[float, float]], size: Size) -> None:
        """Keep an annotation to read it in each way; of large files, every second, fourth, ... one."""
        self.added += 1
        if self.added % self.every:
            return
        unit = {"relative": 1, "percent": 100}.get(self.conventions.coordinates or "")
        sides = np.array(size, np.float64)
        scale = sides / unit if unit else np.ones(2)
        known = (np.array(box[:4]) * np.tile(scale, 2)).tolist() if len(box) == 4 else None
        if known and self.conventions.centred:  # as the file has it
            known = [known[0] + known[2] / 2, known[1] + known[3] / 2, *known[2:]]
        area, of_corners = real_number(record.get("area")), False
        if known and area is not None and not unit:
            x, y, a, b = known  # a box from 0, 0 has both areas
            of_corners = math.isclose(area, (a - x) * (b - y), rel_tol=0.01) and not math.isclose(
                area, a * b, rel_tol=0.01
            )
        flat = np.array(points, np.float64).reshape(-1, 2) * scale
        exchange = scale / scale[::-1]
        self.known.append(_Known(sides, known, flat, exchange, of_corners, self._head(record, scale)))
        if len(self.known) == _KEPT:
            self.known, self.every = self.known[::2], 2 * self.every

    def _head(self, record: Mapping[str, Any], scale: NDArray[np.float64]) -> str:
        values, ends = triples(record.get("keypoints"), self.names) if all(self.ends) else None, []
        for places in self.ends if values else ():
            of_end = [number for place in places for number in (values or [])[3 * place : 3 * place + 3]]
            points = labelled_points(of_end, [self.names[place] for place in places], self.least_flag)
            ends += [np.mean(points, axis=0)] if points else []
        if len(ends) < 2:
            return ""
        x, y = ((ends[0] - ends[1]) * scale).tolist()
        return ("left" if x < 0 else "right") if abs(x) > abs(y) else "up" if y < 0 else "down"

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

    @property
    def are_points(self) -> bool:
        """Whether no box is larger than a point that was clicked."""
        sides = [max(one.box[2:]) for one in self.known if one.box]
        return bool(sides) and max(sides) <= _POINT

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
        if conventions.coordinates is None and self.relative >= _LEAST:
            lines.append(
                f"warning: {path}: all coordinates of {self.relative} of {self.records} annotations are about 1 or "
                "less, as shares of the pictures' sides: correct them if the others are pixels"
            )
        if self.twice:
            lines.append(
                f"warning: {path}: {self.twice} annotations say the same as another of their image: each counts, so "
                "one person is to be found twice"
            )
        if self.crowds == self.records >= _LEAST:
            lines.append(
                f"warning: {path}: all {self.records} annotations have iscrowd 1, so training and evaluation ignore "
                "them; write 0 where an annotation is one object"
            )
        return lines + self._compare(path, key)

    def _in_per_cent(self) -> bool:
        spread = min(most - least for least, most in zip(self.least, self.largest, strict=True))
        needed = _SOME_SPREAD if min(self.sides) >= _LARGE else _SPREAD
        many = max(self.boxes, self.posed) >= 2 * _LEAST
        return many and min(self.sides) > _PER_CENT and needed < spread and max(self.largest) <= 100

    def _compare(self, path: Path, key: str) -> list[str]:
        """Compare the ways of reading the file with the one that the settings or COCO say."""
        written, count = self._written(), len(self.known)
        faults = {way: sum(not way.fits(one) for one in self.known) for way in (written, *self._ways(written))}
        best = min(faults, key=faults.__getitem__)
        if faults[written] > max(_FEW * count, 1) and 4 * faults[best] <= faults[written]:
            line = self._better(path, key, written, best, faults)
            by_joints = self.posed > count / 2 or {best.boxes, written.boxes} != {"xywh", "centre"}
            if count >= _LEAST and by_joints and faults[written] > _SOME * count and faults[best] <= _FEW * count:
                raise UserError(line)
            return [f"warning: {line}"]
        lines = self._of_joints(path, key, written) if self.conventions.boxes is None else []
        lines = lines or (self._of_places(path, written) if self.conventions.of_frame else [])
        return lines + self._of_some(path, written)

    def _of_some(self, path: Path, written: _Way) -> list[str]:
        """Ask whether those that do not fit as written fit one other way, as in a file of two sources."""
        misfits, count = [one for one in self.known if not written.fits(one)], len(self.known)
        fitting = {way.told: sum(map(way.fits, misfits)) for way in self._ways(written)}
        best = max(fitting, key=fitting.__getitem__, default="")
        if len(misfits) < max(_LEAST, _FEW * count) or not best or fitting[best] < _MOST * len(misfits):
            return []
        line = f"{len(misfits)} of {count} boxes leave their picture or their joints, and {fitting[best]} of these fit"
        return [f"warning: {path}: {line} {best}: correct them if they are of another source"]

    def _written(self) -> _Way:
        stated = self.conventions.boxes
        boxes = "" if stated in ("joints", "picture") else stated or ("centre" if self.conventions.centred else "xywh")
        return _Way(_READ[boxes] if boxes else "", boxes)

    def _ways(self, written: _Way) -> list[_Way]:
        """Return the other ways of reading the file that no setting excludes."""
        boxes, frame, ways = self.conventions.boxes is None, self.conventions.of_frame, []
        if boxes:
            ways += [_Way(told, one) for one, told in _READ.items() if one != written.boxes]
        with_box = [one for one in self.known if one.box and written.boxes]
        beyond = sum(bool(_outside(written.edges(one), one.sides).any()) for one in with_box)
        if beyond > _FEW * len(with_box):  # else no exchange of boxes is better
            ways += [_Way("x and y of the boxes exchanged", written.boxes, True)] if boxes and self.posed else []
            ways += [_Way("y1, x1, y2, x2", "corners", True)] if boxes else []
        if frame and (beyond > _FEW * len(with_box) or not with_box):
            heads = self._heads()
            told = f"{_EXCHANGED}, or {_TURNED}" if not heads else _TURNED if heads[0][0] == "up" else _EXCHANGED
            ways.append(_Way(told, written.boxes, True, True))
        if frame and self.posed and with_box:
            ways.append(_Way("x and y of the joints exchanged", written.boxes, False, True))
        return ways

    def _better(self, path: Path, key: str, written: _Way, best: _Way, faults: Mapping[_Way, int]) -> str:
        conventions, known = self.conventions, len(self.known)
        if of_frame := best.joints_exchanged:
            what, unit = "pictures" if best.told == _TURNED else "file", "relative" if conventions.centred else "pixels"
            cure = f"correct the {what}, or write `coordinates: {unit}` to {key}"
        else:
            setting = f"write `boxes: {best.boxes}` to {key}"
            settable = best.boxes in ("corners", "centre") and not best.boxes_exchanged and not conventions.centred
            cure = f"{setting if settable else 'correct the file'}, `boxes: joints` for boxes around the joints, or "
            cure += "`boxes: xywh`" if settable else f"`boxes: xywh` to {key}"
        return (
            f"{path}: {known} {'annotations' if of_frame else 'boxes'} fit {best.told} better than "
            f"{'as written' if of_frame else written.told}: so, {faults[best]} leave their picture or their joints, "
            f"and {faults[written]} as written; {cure} if they are right"
        )

    def _of_joints(self, path: Path, key: str, written: _Way) -> list[str]:
        """Ask whether people's joints lie in their boxes, and around the middle."""
        persons = apart = left = right = loose = 0
        for one in self.known:
            edges = written.edges(one) if one.box and len(one.points) >= 3 else np.zeros((2, 2))
            extent = edges[1] - edges[0]
            if min(extent) > 0:
                near = (one.points >= edges[0] - extent / 4) & (one.points <= edges[1] + extent / 4)
                middle = (one.points[:, 0].mean() - edges[0, 0]) / extent[0]
                persons += 1
                apart += 2 * int(near.all(axis=1).sum()) < len(one.points)
                left += middle < 0.4
                right += middle > 0.6
                loose += len(one.points) >= _LEAST and np.ptp(one.points, axis=0).prod() < _EMPTY * extent.prod()
        if persons < _LEAST:
            return []
        if apart > _SOME * persons:
            line = f"{path}: in {apart} of {persons} people most joints are outside of the box"
            cure = f"correct them, or write `boxes: joints` to {key} for boxes around the joints"
            if 2 * apart > persons:
                raise UserError(f"{line}: boxes and joints are of different pictures or people; {cure}")
            return [f"warning: {line}; {cure}"]
        if loose > _MANY * persons:
            line = f"in {loose} of {persons} people the joints cover less than {_EMPTY:.0%} of the box"
            cure = f"`boxes: joints` in {key} makes boxes around the joints"
            return [f"warning: {path}: {line}, as if it were the picture: scores depend on boxes; {cure}"]
        if persons >= 2 * _LEAST and max(left, right) > _MOST * persons:
            side = "left" if left > right else "right"
            line = (
                f"warning: {path}: in {max(left, right)} of {persons} people the joints lie in the {side} part of the "
                f"box: crops would show people off their centre; `boxes: joints` in {key} makes boxes around the joints"
            )
            return [line]
        return []

    def _of_places(self, path: Path, written: _Way) -> list[str]:
        """Ask where in their pictures annotations lie, and which way up people stand."""
        lines = list[str]()
        boxes = [written.edges(one) / one.sides for one in self.known if one.box and written.boxes]
        joints = [one.points / one.sides for one in self.known]
        places = np.concatenate([*joints, *(one.mean(0, keepdims=True) for one in boxes), np.zeros((1, 2))])
        outside = int(_outside(places, np.ones(2)).sum())
        if outside > _SOME * len(places) and not self.conventions.predicted:
            lines.append(
                f"warning: {path}: {outside} of {len(places) - 1} joints and middles of boxes are outside of their "
                "pictures: are they of pictures of another size?"
            )
        reach = np.max(np.concatenate([places, *boxes]), axis=0)
        if len(self.known) >= 4 * _LEAST and reach.max() < _PART:
            lines.append(
                f"warning: {path}: all of {len(self.known)} annotations lie in the upper left {reach[0]:.0%} x "
                f"{reach[1]:.0%} of their pictures: are they those of smaller pictures?"
            )
        heads = self._heads()
        (way, most), count = heads[0] if heads else ("up", 0), sum(number for _, number in heads)
        if way != "up" and count >= 2 * _LEAST and most > _MANY * count:
            lines.append(f"warning: {path}: {most} of {count} people have their head {_LIES[way]}")
        return lines

    def _heads(self) -> list[tuple[str, int]]:
        """Return where people have their heads, and how many, the most frequent first."""
        return Counter(one.head for one in self.known if one.head).most_common()
