"""Records of people: `normalise` brings an annotation of common tools into COCO's form and says what it changed.

What can be derived is derived (`num_keypoints`, a missing box, a wrong area). A fault costs the field, not the record.
`UnusableError` is raised only for what cannot be known; it has a reason (a fixed phrase, for counting) and a detail.
Nothing here allocates memory according to a number in a record.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as run_lengths

from figura.formats.records import (
    LARGEST_ID,
    Size,
    UnusableError,
    _numbers,
    is_finite,
    real_number,
    real_numbers,
    whole_number,
)

_MARGIN = 0.1  # around joints without a box, as a fraction of the person's height
_LEAST_AREA, _MOST_AREA = 0.05, 1.1  # plausible area without a mask, as a fraction of the box's
_AREA_ERROR = 0.25  # plausible area beside a mask, as a fraction of the mask's
_TIGHT = 1.0  # pixels; a box that is at most this far from its joints on all sides is made of them
AS_TEXT = "numbers written as text, or whole numbers as 1.0"
_COUNT = "num_keypoints that disagree with the joints"
_CROWD_KEYS = ("iscrowd", "isCrowd", "is_crowd", "ignore")
_NO_CROWD = ("", "no", "false", "none", "null")
_BOXES = (
    ("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"),
    ("x", "y", "width", "height"), ("x", "y", "w", "h"), ("left", "top", "width", "height"),
)  # fmt: skip
_VISIBILITY = ("v", "visibility", "visible", "confidence", "score")


class Repair(NamedTuple):
    """A change of a record: its kind, and the value before and after, shortened."""

    kind: str
    before: str
    after: str


class Joints(NamedTuple):
    """The names of the K joints, and the pose (K, 2) that estimates a person's height; None if there is none."""

    names: tuple[str, ...] = ()
    standing_pose: NDArray[np.float64] | None = None


class Conventions(NamedTuple):
    """How numbers of a file are read. None is as in COCO, after questions whether that can be.

    Attributes:
        boxes: `xywh`; `corners` for x1, y1, x2, y2; `centre` for x and y of the centre, width, height; `joints` for
            boxes around the joints whatever the file says; `picture` for people who fill their pictures.
        coordinates: `pixels`, `relative` (0 to 1) or `percent` of the picture's sides.
        min_confidence: joints with a lower confidence, where there are confidences for flags, are unlabelled.
        predicted: there are confidences for flags, even if all of a person are 0, 1 or 2.
        centred: the file has x and y of the centre, as YOLO's labels, and its records x, y, width and height already.
    """

    boxes: Literal["xywh", "corners", "centre", "joints", "picture"] | None = None
    coordinates: Literal["pixels", "relative", "percent"] | None = None
    min_confidence: float = 0.0
    predicted: bool = False
    centred: bool = False

    @property
    def of_frame(self) -> bool:
        """Whether no setting says what x and y are, so that they are asked about."""
        return self.coordinates is None or self.centred


AS_COCO = Conventions()


def shown(value: Any) -> str:
    """Return a value in a few characters."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def normalise(
    record: Mapping[str, Any], picture: Size, joints: Joints | None, conventions: Conventions = AS_COCO
) -> tuple[dict[str, Any], list[Repair]]:
    """Return an annotation as COCO defines it, and what was changed; a record that is right comes back as it is.

    Args:
        record: the annotation. `id`, `image_id` and `category_id` are not looked at.
        picture: the size of its picture.
        joints: those of people; None for other objects, whose keypoints stay.
        conventions: how its numbers are read.

    Raises:
        UnusableError: neither box, mask nor joints say where it is, or a joint is farther outside than the picture is
            large.
    """
    one = _Annotation(dict(record), picture, joints, conventions)
    one.make_right()
    if "iscrowd" not in record and not one.record["iscrowd"]:
        del one.record["iscrowd"]
    return one.record, one.repairs


class _Annotation:
    """An annotation that is made right, in `record`; `repairs` says what that changed."""

    def __init__(self, record: dict[str, Any], picture: Size, joints: Joints | None, conventions: Conventions) -> None:
        self.record, self.picture, self.joints, self.conventions = record, picture, joints, conventions
        self.names = joints.names if joints is not None else ()
        self.sides = _sides(picture, conventions)
        self.repairs: list[Repair] = []
        self.mask_area: float | None = None

    def note(self, kind: str, before: Any, after: Any) -> None:
        self.repairs.append(Repair(kind, shown(before), shown(after)))

    def set(self, key: str, value: Any, kind: str) -> None:
        """Replace a value, or delete it if it is None; null that becomes missing is not worth counting."""
        before = self.record.get(key)
        if value is not None:
            self.record[key] = value
        else:
            self.record.pop(key, None)
        if before is not None:
            self.note(kind, before, "dropped" if value is None else value)

    def make_right(self) -> None:
        record = self.record
        record["iscrowd"] = self.crowd()
        if isinstance(raw := record.get("bbox"), dict) or (isinstance(raw, list) and len(raw) == 2):
            self.set_box_form(raw)
        if self.sides:
            record |= {key: _scaled(record[key], self.sides) for key in ("bbox", "segmentation") if key in record}
            if isinstance(parts := record.get("parts"), dict):
                record["parts"] = {name: _scaled(mask, self.sides) for name, mask in parts.items()}
        if self.joints is not None:
            self.set_keypoints(self.joints)
        elif self.sides and "keypoints" in record:
            record["keypoints"] = _scaled(record["keypoints"], (*self.sides, None))
        if "segmentation" in record:
            record["segmentation"], self.mask_area = self.mask(record["segmentation"])
        if "parts" in record:
            self.set_parts(record["parts"])
        record["bbox"] = [0, 0, *self.picture] if self.conventions.boxes == "picture" else self.box()
        self.drop_mask_beside(record["bbox"])
        if record.get("keypoints") and self.names and max(record["bbox"][:2]) > 1:
            # A joint at 0, 0 though the box begins elsewhere: tools write 0, 0 for a missing joint
            self.unlabel_origin(least=1)
        self.set_area()
        person = record.get("person_id", 0)
        if type(person) is not int or abs(person) > LARGEST_ID:
            self.set("person_id", whole_number(person), "person_id that is no whole number")

    def crowd(self) -> int:
        for key in _CROWD_KEYS:
            value = self.record.get(key)
            if not value or (isinstance(value, str) and value.strip().lower() in _NO_CROWD):
                continue
            number = int(value) if type(value) is bool else real_number(value)
            if number == 0:
                continue
            if key == "ignore":
                self.note("ignored objects, treated as crowd regions", f"{key}: {shown(value)}", "iscrowd: 1")
            elif number != 1:
                kind = "objects whose iscrowd is neither 0 nor 1, treated as crowd regions"
                self.note(kind, f"{key}: {shown(value)}", "iscrowd: 1")
            return 1
        return 0

    # --- joints ---

    def set_keypoints(self, joints: Joints) -> None:
        """Replace `keypoints` by K triples with flags 0, 1 or 2 in the picture; count `num_keypoints`."""
        record, raw = self.record, self.record.get("keypoints")
        values = triples(raw, joints.names) if raw and joints.names else None
        if values is None:
            if raw and (not isinstance(raw, list) or any(raw)):
                named = (
                    f"keypoints that are not {len(joints.names)} joints" if joints.names else "keypoints without names"
                )
                self.note(named, f"{len(raw)} numbers" if isinstance(raw, list) else raw, "no joints")
                if record.pop("num_keypoints", None):
                    record["num_keypoints"] = 0
            record.pop("keypoints", None)
            if whole_number(record.get("num_keypoints", 0)) != 0:
                self.set("num_keypoints", 0, _COUNT)
            return
        if self.sides is not None:
            values = _scaled(values, (*self.sides, None))
        as_coco = not self.conventions.predicted and is_finite(values) and {*values[2::3]} <= {0, 1, 2}
        keypoints = values if as_coco else self.flagged(values)
        if not isinstance(raw, list) or len(raw) != len(keypoints):
            of_pairs = isinstance(raw, list) and len(raw) == 2 * len(joints.names)
            form = "joints without visibility, visible unless at 0, 0" if of_pairs else "keypoints in another form"
            self.note(form, raw, keypoints)
        stated, count = record.get("num_keypoints"), _count(keypoints)
        if stated is not None and (type(stated) is not int or stated != count):
            self.note(_COUNT if whole_number(stated) != count else AS_TEXT, stated, count)
        record |= {"keypoints": keypoints, "num_keypoints": count}
        self.drop_outside(keypoints)

    def flagged(self, values: list[Any]) -> list[float]:
        """Return finite numbers with flags 0, 1 or 2: of texts, missing values, confidences."""
        flags = [real_number(flag if type(flag) is not bool else 2 * flag) for flag in values[2::3]]
        predicted, least = self.conventions.predicted, self.conventions.min_confidence
        confidences = predicted or any(flag is not None and not float(flag).is_integer() for flag in flags)
        keypoints: list[float] = []
        lost: list[str] = []
        for name, x, y, flag in zip(self.names, values[::3], values[1::3], flags, strict=True):
            across, down = real_number(x), real_number(y)
            if across is None or down is None or flag is None:
                keypoints += (0, 0, 0)
                lost += [name] if x is not None or y is not None else []
            elif confidences:
                keypoints += (across, down, 2) if flag > 0 and flag >= least else (0, 0, 0)
                if predicted and 0 < flag < least:
                    self.note(f"joints below min_confidence {least:g}", f"{name}: {flag:g}", "unlabelled")
            else:
                keypoints += (across, down, int(min(max(flag, 0), 2)))
        if lost:
            self.repairs.append(Repair("joints that are no numbers, unlabelled", ", ".join(lost), "unlabelled"))
        if confidences and not predicted:
            self.note("confidences read as flags", values[2::3], f"{_count(keypoints)} of {len(flags)} labelled")
        elif not confidences and not {flag for flag in flags if flag is not None} <= {0, 1, 2}:
            self.note("visibility beyond 0, 1 and 2", values[2::3], keypoints[2::3])
        elif not lost and not is_finite(values):
            self.note(AS_TEXT, values, keypoints)
        return keypoints

    def drop_outside(self, keypoints: list[float]) -> None:
        """Make joints outside of the picture unlabelled, and those at 0, 0 if there are several."""
        (width, height), across, down = self.picture, keypoints[::3], keypoints[1::3]
        if not (min(across) >= 0 <= min(down) and max(across) <= width and max(down) <= height):
            for index, (x, y, flag) in enumerate(zip(across, down, keypoints[2::3], strict=True)):
                if flag and not self.conventions.predicted and _far(x, y, self.picture):
                    detail = f"{self.names[index]}: {x}, {y} in {width} x {height}"
                    raise UnusableError("keypoint far outside of the image", detail)
                if flag and not (0 <= x <= width and 0 <= y <= height):
                    self.unlabel(index, "joints outside of the image", f"{self.names[index]}: {x:g}, {y:g}")
        self.unlabel_origin(least=2)

    def unlabel_origin(self, least: int) -> None:
        """Make joints at 0, 0 unlabelled if there are at least as many."""
        keypoints = self.record["keypoints"] = list(self.record["keypoints"])
        points = zip(keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True)
        origin = [place for place, (x, y, flag) in enumerate(points) if flag and x == 0 == y]
        for place in origin if len(origin) >= least else ():
            self.unlabel(place, "joints at 0, 0, away from the person", f"{self.names[place]}: 0, 0")

    def unlabel(self, place: int, kind: str, before: str) -> None:
        self.repairs.append(Repair(kind, before, "unlabelled"))
        self.record["keypoints"][3 * place : 3 * place + 3] = (0, 0, 0)
        self.record["num_keypoints"] -= 1

    # --- masks ---

    def set_parts(self, parts: Any) -> None:
        if not isinstance(parts, dict):
            self.set("parts", None, "parts that are no masks by name")
        elif parts:
            masks = {name: self.mask(mask, f"masks of {name}")[0] for name, mask in parts.items()}
            self.record["parts"] = {name: mask for name, mask in masks.items() if mask is not None}

    def mask(self, mask: Any, what: str = "masks") -> tuple[Any, float | None]:
        """Return polygons or run lengths of the picture's size that pycocotools reads, and their area.

        Both are None if there are none; the area of polygons is that of the shoelace formula.
        """
        if not mask:
            return [] if isinstance(mask, list) else None, None
        if isinstance(mask, dict):
            return self.run_lengths(mask, what)
        if not isinstance(mask, list):
            self.note(f"{what} dropped: neither polygons nor run lengths", mask, "none")
            return None, None
        polygons = _polygons(mask)
        areas = [_usable_area(polygon, self.picture) for polygon in polygons]
        usable = [polygon for polygon, area in zip(polygons, areas, strict=True) if area]
        if len(usable) < len(polygons):
            kind = f"polygons of {what} dropped: fewer than three points, without area, or far outside of the image"
            self.note(kind, mask, f"{len(usable)} of {len(polygons)}")
        elif usable != mask:
            self.note(f"polygons of {what} in another form", mask, usable)
        return (usable, float(sum(areas))) if usable else (None, None)

    def run_lengths(self, mask: dict[str, Any], what: str) -> tuple[Any, float | None]:
        numbers = {
            key: list(map(whole_number, mask[key])) if isinstance(mask.get(key), list) else mask.get(key)
            for key in ("size", "counts")
        }
        runs = _runs(numbers, self.picture)
        if isinstance(runs, str):
            self.note(f"{what} dropped: {runs}", mask, "none")
            return None, None
        if all({*map(type, mask[key])} <= {int} for key in numbers if isinstance(mask[key], list)):
            return mask, float(sum(runs[1::2]))
        self.note(AS_TEXT, mask, numbers)
        return mask | numbers, float(sum(runs[1::2]))

    # --- box and area ---

    def set_box_form(self, raw: Any) -> None:
        """Replace a box by name, or of two points, by x, y, width and height."""
        of_points = isinstance(raw, list) and _is_points(raw)
        keys = next((keys for keys in _BOXES if isinstance(raw, dict) and raw.keys() >= {*keys}), None)
        box: list[Any] | None = [*raw[0], *raw[1]] if of_points else [raw[key] for key in keys or ()]
        if of_points or keys in _BOXES[:2]:
            numbers = real_numbers(box)
            box = numbers and [*numbers[:2], numbers[2] - numbers[0], numbers[3] - numbers[1]]
        if box:
            self.set("bbox", box, "boxes in another form")

    def box(self) -> list[float]:
        """Return x, y, width, height, partly in the picture: the record's, else the mask's, else the joints'."""
        keypoints, (width, height) = self.record.get("keypoints"), self.picture
        if self.conventions.boxes == "joints" and keypoints and self.names:
            self.unlabel_origin(least=1)
            if around := _around(self.record["keypoints"], self.joints, self.picture):
                return around
        raw = self.record.get("bbox")
        box = real_numbers(raw)
        if box is None or len(box) != 4:
            fault = "box is not four numbers"
        else:
            if not is_finite(raw or ()):
                self.note(AS_TEXT, raw, box)
            box = from_corner(box, self.conventions)
            if min(box[2:]) < 0:
                x, y, a, b = box
                turned = [min(x, x + a), min(y, y + b), abs(a), abs(b)]
                self.note("boxes of negative width or height", box, turned)
                box = turned
            if min(box[2:]) > 0:
                box = self.upright(box)
                if box[0] < width and box[1] < height and box[0] + box[2] > 0 and box[1] + box[3] > 0:
                    return self.reasonable(box)
                fault = "box outside of the image"
            else:
                fault = "box without extent"
        source, derived = "mask", _bounds(self.record.get("segmentation"), self.picture)
        if derived is None:
            source, derived = "joints", _around(keypoints, self.joints, self.picture)
        if derived is None:
            raise UnusableError(fault, f"{shown(raw)} in {width} x {height}, and no mask, no joint")
        self.note(f"boxes that are missing or empty, taken from the {source}", raw, derived)
        return derived

    def upright(self, box: list[float]) -> list[float]:
        """Return the box around one that is turned about its middle, by CVAT's attribute in degrees."""
        attributes = self.record.get("attributes")
        turn = real_number(attributes.get("rotation")) if isinstance(attributes, dict) else None
        if not turn or self.record.get("segmentation") or self.record.get("keypoints"):
            return box
        x, y, a, b = box
        cos, sin = abs(math.cos(math.radians(turn))), abs(math.sin(math.radians(turn)))
        wide, high = a * cos + b * sin, a * sin + b * cos
        around = [round(one, 2) for one in (x + (a - wide) / 2, y + (b - high) / 2, wide, high)]
        self.record["attributes"] = {key: value for key, value in (attributes or {}).items() if key != "rotation"}
        self.note("turned boxes (attributes.rotation), replaced by upright ones around them", box, around)
        return around

    def drop_mask_beside(self, box: list[float]) -> None:
        """Drop a mask if neither the middle of its box is in this one, nor the other way round."""
        if not (mask := self.record.get("segmentation")):
            return
        bounds = _bounds(mask, self.picture)
        if bounds is None or not (_has_middle(box, bounds) or _has_middle(bounds, box)):
            self.note("masks dropped: beside their box, as those of another picture or size", bounds or mask, "none")
            self.record["segmentation"] = self.mask_area = None
            self.record["bbox"] = self.reasonable(box)  # with a mask, a tight box stays

    def reasonable(self, box: list[float]) -> list[float]:
        """Return a box cut to the picture if it ends far outside, widened if it is that of the joints alone."""
        x, y, width, height = box
        keypoints = self.record.get("keypoints")
        if _far(x, y, self.picture) or _far(x + width, y + height, self.picture):
            kind, better = "boxes far outside, cut to the image", _cut(box, self.picture)
        elif self.joints is not None and not self.record.get("segmentation") and _is_tight(box, keypoints):
            kind = "boxes tight around their joints, widened"
            better = _around(keypoints, self.joints, self.picture) or box
        else:
            return box
        if better != box:
            self.note(kind, box, better)
        return better

    def set_area(self) -> None:
        """Replace an area that cannot be that of the mask, or without a mask that of an object in the box."""
        stated, box = real_number(self.record.get("area")), self.record["bbox"][2] * self.record["bbox"][3]
        derived = self.mask_area
        if derived is None:
            low, high, derived = _LEAST_AREA * box, _MOST_AREA * box, box
        else:
            low, high = (1 - _AREA_ERROR) * derived - 4, (1 + _AREA_ERROR) * derived + 4
        if stated is None or stated <= 0 or not low <= stated <= high:
            self.set("area", derived, "areas in another unit, or wrong")
        elif type(self.record["area"]) is str:
            self.record["area"] = stated


def _sides(picture: Size, conventions: Conventions) -> tuple[float, float] | None:
    """Return the pixels of one unit of x and y; None if the coordinates are pixels."""
    if conventions.coordinates in (None, "pixels"):
        return None
    unit = 100 if conventions.coordinates == "percent" else 1
    return picture.width / unit, picture.height / unit


def _scaled(values: Any, sides: Sequence[float | None], nested: int = 2) -> Any:
    """Return x, y, x, y, ... multiplied by the sides, in thousandths, also in nested lists.

    What is no number stays, and so do flags, whose side is None.
    """
    if not isinstance(values, list):
        return values
    if nested and any(isinstance(one, list) for one in values):
        return [_scaled(one, sides, nested - 1) for one in values]
    return [
        value if side is None or (number := real_number(value)) is None else round(number * side, 3)
        for value, side in zip(values, cycle(sides), strict=False)
    ]


# --- joints ---


def _count(keypoints: Sequence[float]) -> int:
    """Return the number of joints with a flag above 0."""
    return len(keypoints) // 3 - keypoints[2::3].count(0)


def triples(raw: Any, names: Sequence[str]) -> list[Any] | None:
    """Return 3 values a joint: x, y and visibility; None if there are not as many joints as names.

    `raw` is a list of triples or of pairs (which are visible unless at 0, 0), flat or nested, or of objects with `x`,
    `y` and the visibility as `v`, `visibility`, `confidence` or `score`; or such triples by name, in any spelling.
    """
    if isinstance(raw, dict):
        spelt = {_plain(name): point for name, point in raw.items()}
        raw = [spelt.get(_plain(name)) for name in names] if spelt.keys() & {*map(_plain, names)} else None
    if not isinstance(raw, list):
        return None
    if len(raw) == 3 != len(names) and all(isinstance(axis, list) and len(axis) == len(names) for axis in raw):
        raw = [list(point) for point in zip(*raw, strict=True)]  # of MATLAB, a row for x, for y and for the flags
    if {*map(type, raw)} & {list, dict}:
        raw = [value for one in raw for value in _triple(one)] if len(raw) == len(names) else []
    if len(raw) == 2 * len(names):
        raw = [value for pair in zip(raw[::2], raw[1::2], strict=True) for value in _triple(pair)]
    return list(raw) if len(raw) == 3 * len(names) else None


def _plain(name: Any) -> str:
    """Return a joint's name without case, spaces and signs."""
    return "".join(filter(str.isalnum, str(name).lower()))


def labelled_points(raw: Any, names: Sequence[str], least: float = 0.0) -> list[tuple[float, float]]:
    """Return x and y of the joints labelled with at least `least`, as they are written, of keypoints in any form."""
    values = triples(raw, names) if raw and names else None
    if values and is_finite(values):
        points = zip(values[::3], values[1::3], values[2::3], strict=True)
        return [(x, y) for x, y, flag in points if (flag >= least if least else flag)]
    points = zip(*(map(real_number, (values or [])[axis::3]) for axis in (0, 1, 2)), strict=True)
    return [(x, y) for x, y, flag in points if x is not None and y is not None and flag and flag >= least]


def _triple(point: Any) -> list[Any]:
    """Return x, y and visibility of a joint in any form; of nothing, they are 0; "" for what has another form."""
    if isinstance(point, dict):
        flags = [point[key] for key in _VISIBILITY if point.get(key) is not None]
        point = [*(point.get(axis) for axis in "xy"), *flags[:1]] if point else None
    values = list(point) if isinstance(point, list | tuple) else point
    if not values:
        return [0, 0, 0]
    if not isinstance(values, list) or not 2 <= len(values) <= 3:
        return ["", "", ""]
    return values if len(values) == 3 else [*values, 2 if any(values) else 0]


def _far(x: float, y: float, size: Size) -> bool:
    """Return whether a point is farther from the image than its size; such numbers are errors, and cost memory."""
    return not (-size.width <= x <= 2 * size.width and -size.height <= y <= 2 * size.height)


# --- masks ---


def _runs(mask: dict[str, Any], picture: Size) -> list[int] | str:
    """Return the run lengths, or why they are not those of a mask in the picture."""
    pixels, counts = picture.width * picture.height, mask["counts"]
    if mask["size"] != [picture.height, picture.width]:
        return "run lengths of another image size"
    if isinstance(counts, str):
        counts = decode_runs(counts) if len(counts) <= 8 * (pixels + 1) else None  # more than one run per pixel
    if not isinstance(counts, list) or None in counts or min(counts, default=0) < 0 or sum(counts) != pixels:
        return "run lengths do not fill the image"
    return counts if any(counts[1::2]) else "run lengths without a pixel"


def _polygons(mask: list[Any]) -> list[Any]:
    """Return lists of x and y: of one flat list, of one list of points, of lists of points."""
    if not any(isinstance(one, list) for one in mask):
        return [_numbers(mask)]
    if all(isinstance(one, list) and len(one) == 2 and not isinstance(one[0], list) for one in mask):
        return [_numbers([value for point in mask for value in point])]
    return [
        _numbers([value for point in one for value in point] if _is_points(one) else one)
        if isinstance(one, list)
        else one
        for one in mask
    ]


def _is_points(polygon: list[Any]) -> bool:
    return bool(polygon) and all(isinstance(point, list) and len(point) == 2 for point in polygon)


def _usable_area(polygon: Any, picture: Size) -> float:
    """Return a polygon's area (the shoelace formula); 0 for one that cannot be used."""
    if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2 or None in polygon:
        return 0.0
    x, y = polygon[::2], polygon[1::2]
    if _far(min(x), min(y), picture) or _far(max(x), max(y), picture):
        return 0.0
    before = zip([x[-1], *x], [y[-1], *y], x, y, strict=False)
    return abs(sum([x0 * y1 - x1 * y0 for x0, y0, x1, y1 in before])) / 2


def decode_runs(text: str) -> list[int] | None:
    """Decode the run lengths of COCO's compressed encoding; None for invalid text, which pycocotools would read beyond.

    Each character holds five bits, least significant first, with offset 48; 32 marks a continuation, 16 in the last one
    is the sign. From the fourth run on, values are differences to the run two before (`rleToString` of the COCO API).
    """
    runs: list[int] = []
    value = shift = 0
    for character in text.encode("utf-8", "replace"):
        symbol = character - 48
        if not 0 <= symbol < 64 or shift > 35:  # 2^35 pixels are more than an image has
            return None
        value |= (symbol & 31) << shift
        shift += 5
        if not symbol & 32:
            value -= (symbol & 16) << (shift - 4)
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    return runs if shift == 0 else None


# --- boxes ---


def from_corner(box: list[float], conventions: Conventions) -> list[float]:
    """Return x, y, width and height of a box."""
    x, y, a, b = box
    if conventions.boxes == "corners":
        return [x, y, a - x, b - y]
    return [x - a / 2, y - b / 2, a, b] if conventions.boxes == "centre" else box


def _cut(box: Sequence[float], picture: Size) -> list[float]:
    """Return the part of a box in the picture."""
    x, y, width, height = box
    left, top = max(x, 0), max(y, 0)
    return [left, top, min(x + width, picture.width) - left, min(y + height, picture.height) - top]


def _has_middle(box: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the middle of the other box is in a box."""
    return all(0 <= other[axis] + other[axis + 2] / 2 - box[axis] <= box[axis + 2] for axis in (0, 1))


def _bounds(mask: Any, picture: Size) -> list[float] | None:
    """Return the box of a mask, cut to the picture; None without one that has extent there."""
    if not mask:
        return None
    if isinstance(mask, dict):
        counts = mask["counts"]
        runs = run_lengths.frPyObjects(mask, *mask["size"]) if isinstance(counts, list) else mask
        box = run_lengths.toBbox(runs).tolist()
    else:
        across, down = ([one for polygon in mask for one in polygon[axis::2]] for axis in (0, 1))
        box = _cut([min(across), min(down), max(across) - min(across), max(down) - min(down)], picture)
    return box if min(box[2:]) > 0 else None


def _labelled(keypoints: Sequence[float]) -> list[tuple[int, float, float]]:
    return [
        (index // 3, keypoints[index], keypoints[index + 1])
        for index in range(0, len(keypoints), 3)
        if keypoints[index + 2] > 0
    ]


def _around(keypoints: Sequence[float] | None, joints: Joints | None, picture: Size) -> list[float] | None:
    """Return the box of the labelled joints with a margin, cut to the picture; None without a labelled joint.

    The margin is a tenth of the person's height, which follows from the extent of the same joints in the standing pose;
    without a pose, it is a tenth of the joints' extent; a single joint counts as a fifth of the picture.
    """
    if joints is None or not keypoints or not (points := _labelled(keypoints)):
        return None
    left, right = min(x for _, x, _ in points), max(x for _, x, _ in points)
    top, bottom = min(y for _, _, y in points), max(y for _, _, y in points)
    extent = height = math.hypot(right - left, bottom - top)
    if joints.standing_pose is not None:
        pose = joints.standing_pose[[place for place, _, _ in points]]
        usual = float(np.hypot(*np.ptp(pose, axis=0)))
        height = extent * float(np.ptp(joints.standing_pose[:, 1])) / usual if usual else 0.0
    if not height:
        height = min(picture) / 5
    margin = max(_MARGIN * min(height, max(picture)), 2 * _TIGHT)
    around = _cut([left - margin, top - margin, right - left + 2 * margin, bottom - top + 2 * margin], picture)
    return [round(one, 2) for one in around]


def _is_tight(box: Sequence[float], keypoints: Sequence[float] | None) -> bool:
    """Return whether a box is that of at least three joints without a margin."""
    points = _labelled(keypoints or ())
    if len(points) < 3 or min(box[2:]) < 16:
        return False
    x, y, width, height = box
    across, down = [one for _, one, _ in points], [one for _, _, one in points]
    edges = (min(across) - x, x + width - max(across), min(down) - y, y + height - max(down))
    return max(map(abs, edges)) <= _TIGHT


def drop_unwritable(record: dict[str, Any]) -> list[str]:
    """Drop keys whose values JSON does not have, NaN, infinity and nesting without end; return their names."""
    dropped = []
    for key in list(record):
        try:
            json.dumps(record[key], allow_nan=False)
        except (ValueError, RecursionError):
            del record[key]
            dropped.append(key)
    return dropped


def place_of(record: Mapping[str, Any], picture: Size, conventions: Conventions = AS_COCO) -> list[float] | None:
    """Return a box around what is known of an unusable object, in the picture; None if nothing is."""
    known = {key: record.get(key) for key in ("bbox", "segmentation", "keypoints")}
    numbers = known["keypoints"] if isinstance(known["keypoints"], list) else ()
    joints = Joints(tuple(map(str, range(len(numbers) // 3))))
    try:  # far joints of predictions are unlabelled
        return _cut(normalise(known, picture, joints, conventions._replace(predicted=True))[0]["bbox"], picture)
    except UnusableError:
        return None


# --- checks of records that are right already ---


def check_result(record: Any, size: Size, joints: int) -> None:
    """Raise UnusableError unless a record is a COCO result: a person detected in an image.

    Joints have a confidence as third number. Boxes and joints may be outside the image, but near it.
    """
    if not isinstance(record, dict):
        raise UnusableError("not an object", repr(record)[:80])
    if type(record.get("category_id")) is not int:
        raise UnusableError("category_id is not a whole number", repr(record.get("category_id"))[:80])
    box = record.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not is_finite(box):
        raise UnusableError("box is not four finite numbers", repr(box)[:80])
    x, y, width, height = box
    if width < 0 or height < 0 or _far(x, y, size) or _far(x + width, y + height, size):
        raise UnusableError("box outside of the image", f"{box} in {size.width} x {size.height}")
    _check_found_joints(record.get("keypoints"), size, joints)
    if not is_finite([record.get("score", 1)]):
        raise UnusableError("score is not a finite number", repr(record["score"])[:80])
    one = _Annotation({}, size, None, AS_COCO)
    one.mask(record.get("segmentation"))
    if one.repairs:
        raise UnusableError(one.repairs[0].kind.removeprefix("masks dropped: "), one.repairs[0].before)


def _check_found_joints(keypoints: Any, size: Size, joints: int) -> None:
    if not isinstance(keypoints, list) or len(keypoints) != 3 * joints:
        length = f"{len(keypoints)} numbers" if isinstance(keypoints, list) else repr(keypoints)[:80]
        raise UnusableError(f"keypoints are not {joints} x 3 numbers", length)
    if not is_finite(keypoints):
        raise UnusableError("keypoint not finite", next(one for one in keypoints if not is_finite([one])))
    for x, y, confidence in zip(keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True):
        if confidence > 0 and _far(x, y, size):
            raise UnusableError("keypoint outside of the image", f"{x}, {y} in {size.width} x {size.height}")
