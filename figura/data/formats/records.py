"""Records of people: `normalise` brings an annotation of any honest tool into COCO's form and says what it changed.

What can be derived is derived (`num_keypoints`, a missing box, a wrong area). A fault costs the field, not the record.
`UnusableError` is raised only for what cannot be known; it has a reason (a fixed phrase, for counting) and a detail.
Nothing here allocates memory according to a number in a record.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as run_lengths

LARGEST_ID = 2**63 - 1

_SHOWN = 300  # characters of a detail
_MARGIN = 0.1  # around joints without a box, as a fraction of the person's height
_LEAST_AREA, _MOST_AREA = 0.05, 1.1  # plausible area without a mask, as a fraction of the box's
_AREA_ERROR = 0.25  # plausible area beside a mask, as a fraction of the mask's
_TIGHT = 1.0  # pixels; a box that is at most this far from its joints on all sides is made of them
AS_TEXT = "numbers written as text, or whole numbers as 1.0"
_COUNT = "num_keypoints that disagree with the joints"
_CROWD_KEYS = ("iscrowd", "isCrowd", "is_crowd", "ignore")


class UnusableError(Exception):
    """A record that cannot be used; `detail` has at most 300 characters."""

    def __init__(self, reason: str, detail: object = "") -> None:
        text = str(detail)
        self.reason, self.detail = reason, text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        super().__init__(reason, self.detail)

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Size(NamedTuple):
    """Width and height of an image, pixels."""

    width: int
    height: int


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
        boxes: `xywh`; `corners` for x1, y1, x2, y2; `joints` for boxes around the joints whatever the file says.
        coordinates: `pixels`, `relative` (0 to 1) or `percent` of the picture's sides.
        min_confidence: joints with a lower confidence, where there are confidences for flags, are unlabelled.
    """

    boxes: Literal["xywh", "corners", "joints"] | None = None
    coordinates: Literal["pixels", "relative", "percent"] | None = None
    min_confidence: float = 0.0


AS_COCO = Conventions()


def whole_number(value: Any) -> int | None:
    """Return a whole number of at most 64 bits, also of `12.0` and `"12"`; None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if len(text) < 20 and text.removeprefix("-").isdecimal() else real_number(text)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and abs(value) <= LARGEST_ID else None


def real_number(value: Any) -> float | None:
    """Return a finite number, also of a text; None for anything else."""
    try:
        if isinstance(value, str):
            value = float(value) if len(value) < 100 else None
        return value if type(value) in (int, float) and math.isfinite(value) else None
    except (ValueError, OverflowError):
        return None


def real_numbers(values: Any) -> list[float] | None:
    """Return a list of finite numbers, also of texts; None for anything else."""
    if not isinstance(values, list):
        return None
    numbers = [number for one in values if (number := real_number(one)) is not None]
    return numbers if len(numbers) == len(values) else None


def is_finite(numbers: Iterable[Any], farthest: float = math.inf) -> bool:
    """Return whether all are finite numbers in [-`farthest`, `farthest`].

    Strings, booleans and integers too large for a float are not numbers.
    """
    numbers = list(numbers)
    try:
        finite = {*map(type, numbers)} <= {int, float} and all(map(math.isfinite, numbers))
    except OverflowError:
        return False
    return finite and max(map(abs, numbers), default=0) <= farthest


def shown(value: Any) -> str:
    """Return a value in a few characters."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_id(record: Any) -> int:
    """Return the record's id; raises UnusableError if it is not a 64-bit integer."""
    if not isinstance(record, dict):
        raise UnusableError("not an object", repr(record)[:80])
    number = record.get("id")
    if type(number) is not int or abs(number) > LARGEST_ID:
        raise UnusableError("id is not a whole number", repr(number)[:80])
    return number


def check_size(record: Mapping[str, Any]) -> Size:
    """Return the size in an image's record; raises UnusableError unless both sides are in [1, 65535]."""
    size = Size(record.get("width"), record.get("height"))  # type: ignore[arg-type]
    if not all(type(side) is int and 0 < side < 2**16 for side in size):
        sides = f"width {repr(size.width)[:80]}, height {repr(size.height)[:80]}"
        raise UnusableError("image size is not two whole numbers", f"{sides}; each must be from 1 to {2**16 - 1}")
    return size


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
    repairs: list[Repair] = []
    fixed = dict(record)
    fixed["iscrowd"] = _crowd(fixed, repairs)
    if conventions.coordinates not in (None, "pixels"):
        _to_pixels(fixed, picture, 100 if conventions.coordinates == "percent" else 1)
    if joints is not None:
        _set_keypoints(fixed, picture, joints, conventions, repairs)
    _set_masks(fixed, picture, repairs)
    fixed["bbox"] = _box(fixed, picture, joints, conventions, repairs)
    _set_area(fixed, repairs)
    person = fixed.get("person_id", 0)
    if type(person) is not int or abs(person) > LARGEST_ID:
        _set(fixed, "person_id", whole_number(person), "person_id that is no whole number", repairs)
    if "iscrowd" not in record and not fixed["iscrowd"]:
        del fixed["iscrowd"]
    return fixed, repairs


def _set(record: dict[str, Any], key: str, value: Any, kind: str, repairs: list[Repair]) -> None:
    """Replace a value, or delete it if it is None; null that becomes missing is not worth counting."""
    before = record.get(key)
    if value is not None:
        record[key] = value
    else:
        record.pop(key, None)
    if before is not None:
        repairs.append(Repair(kind, shown(before), shown("dropped" if value is None else value)))


def _crowd(record: dict[str, Any], repairs: list[Repair]) -> int:
    crowd = record.get("iscrowd", 0)
    if type(crowd) is int and 0 <= crowd <= 1 and "ignore" not in record and not record.keys() & _CROWD_KEYS[1:]:
        return crowd
    for key in _CROWD_KEYS:
        value = record.get(key)
        if value and value not in ("0", "false", "False"):
            if value is not True and (type(value) is not int or value != 1 or key != "iscrowd"):
                kind = "ignored objects" if key == "ignore" else "objects whose iscrowd is neither 0 nor 1"
                repairs.append(Repair(f"{kind}, treated as crowd regions", f"{key}: {shown(value)}", "iscrowd: 1"))
            return 1
    return 0


def _to_pixels(record: dict[str, Any], picture: Size, unit: float) -> None:
    """Multiply the coordinates of box, joints and polygons by the sides of the picture divided by `unit`."""
    sides = picture.width / unit, picture.height / unit

    def scaled(values: Any, step: int) -> Any:
        if not isinstance(values, list):
            return values
        if values and isinstance(values[0], list):
            return [scaled(one, len(one) if len(one) in (2, 3) else 2) for one in values]
        return [
            value if place % step == 2 or real_number(value) is None else float(value) * sides[place % step]
            for place, value in enumerate(values)
        ]

    record["bbox"] = scaled(record.get("bbox"), 2)
    record["segmentation"] = scaled(record.get("segmentation"), 2)
    if "keypoints" in record:
        record["keypoints"] = scaled(record["keypoints"], 3)


# --- joints ---


def _set_keypoints(
    record: dict[str, Any], picture: Size, joints: Joints, conventions: Conventions, repairs: list[Repair]
) -> None:
    """Replace `keypoints` by K triples with flags 0, 1 or 2 in the picture; count `num_keypoints`."""
    raw = record.get("keypoints")
    if not raw or not joints.names:
        for key in ("keypoints", "num_keypoints"):
            if record.get(key, 0) is None or (key == "keypoints" and key in record and not raw):
                del record[key]
        if whole_number(record.get("num_keypoints", 0)):
            _set(record, "num_keypoints", 0, _COUNT, repairs)
        return
    values = _triples(raw, len(joints.names))
    if values is None:
        count = f"{len(raw)} numbers" if isinstance(raw, list) else shown(raw)
        repairs.append(Repair(f"keypoints that are not {len(joints.names)} joints", count, "no joints"))
        del record["keypoints"]
        if record.get("num_keypoints"):
            record["num_keypoints"] = 0
        return
    right = is_finite(values) and {*values[2::3]} <= {0, 1, 2}
    keypoints = values if right else _flagged(values, joints, conventions, repairs)
    stated, before = record.get("num_keypoints"), sum(flag > 0 for flag in keypoints[2::3])
    if stated is not None and stated != before:
        repairs.append(Repair(_COUNT, shown(stated), str(before)))
    _drop_outside(keypoints, picture, joints, repairs)
    record |= {"keypoints": keypoints, "num_keypoints": sum(flag > 0 for flag in keypoints[2::3])}


def _triples(raw: Any, joints: int) -> list[Any] | None:
    """Return 3 values a joint: of triples, of pairs (visible), flat or nested; None for another number of them."""
    if not isinstance(raw, list):
        return None
    if any(isinstance(one, list) for one in raw):
        points = [one if isinstance(one, list) and 2 <= len(one) <= 3 else [0, 0, 0] for one in raw]
        raw = [value for point in points for value in (*point, 2)[:3]]
    if len(raw) == 2 * joints:
        raw = [value for x, y in zip(raw[::2], raw[1::2], strict=True) for value in (x, y, 2 if x or y else 0)]
    return list(raw) if len(raw) == 3 * joints else None


def _flagged(values: list[Any], joints: Joints, conventions: Conventions, repairs: list[Repair]) -> list[float]:
    """Return finite numbers with flags 0, 1 or 2: of texts, missing values, confidences."""
    flags = [real_number(flag if type(flag) is not bool else int(flag)) for flag in values[2::3]]
    confidences = any(flag is not None and not float(flag).is_integer() for flag in flags)
    keypoints: list[float] = []
    lost: list[str] = []
    for name, x, y, flag in zip(joints.names, values[::3], values[1::3], flags, strict=True):
        across, down = real_number(x), real_number(y)
        if across is None or down is None or flag is None:
            keypoints += (0, 0, 0)
            lost += [name] if x is not None or y is not None else []
        elif confidences:
            keypoints += (across, down, 2) if flag > 0 and flag >= conventions.min_confidence else (0, 0, 0)
        else:
            keypoints += (across, down, int(min(max(flag, 0), 2)))
    if lost:
        repairs.append(Repair("joints that are no numbers, unlabelled", ", ".join(lost), "unlabelled"))
    if confidences:
        kept = sum(flag > 0 for flag in keypoints[2::3])
        repairs.append(Repair("confidences read as flags", shown(values[2::3]), f"{kept} of {len(flags)} labelled"))
    elif not {flag for flag in flags if flag is not None} <= {0, 1, 2}:
        repairs.append(Repair("visibility beyond 0, 1 and 2", shown(values[2::3]), shown(keypoints[2::3])))
    elif not lost:
        repairs.append(Repair(AS_TEXT, shown(values), shown(keypoints)))
    return keypoints


def _drop_outside(keypoints: list[float], picture: Size, joints: Joints, repairs: list[Repair]) -> None:
    """Make joints outside of the picture unlabelled, and those at 0, 0 if there are several."""
    across, down, flags = keypoints[::3], keypoints[1::3], keypoints[2::3]
    inside = min(across) >= 0 <= min(down) and max(across) <= picture.width and max(down) <= picture.height
    if inside and across.count(0) < flags.count(0) + 2:
        return
    origin = [
        3 * place
        for place, point in enumerate(zip(across, down, flags, strict=True))
        if point[2] and not any(point[:2])
    ]
    for place in range(0, len(keypoints), 3):
        x, y, flag = keypoints[place : place + 3]
        if not flag:
            continue
        name = joints.names[place // 3]
        if _far(x, y, picture):
            raise UnusableError(
                "keypoint far outside of the image", f"{name}: {x}, {y} in {picture.width} x {picture.height}"
            )
        if not (0 <= x <= picture.width and 0 <= y <= picture.height):
            kind = "joints outside of the image"
        elif len(origin) > 1 and place in origin:
            kind = "joints at 0, 0 beside others there"
        else:
            continue
        repairs.append(Repair(kind, f"{name}: {x:g}, {y:g}", "unlabelled"))
        keypoints[place : place + 3] = (0, 0, 0)


def _far(x: float, y: float, size: Size) -> bool:
    """Return whether a point is farther from the image than its size; such numbers are errors, and cost memory."""
    return not (-size.width <= x <= 2 * size.width and -size.height <= y <= 2 * size.height)


# --- masks ---


def _set_masks(record: dict[str, Any], picture: Size, repairs: list[Repair]) -> None:
    if "segmentation" in record:
        record["segmentation"] = _mask(record["segmentation"], picture, "masks", repairs)
    parts = record.get("parts", {})
    if not isinstance(parts, dict):
        _set(record, "parts", None, "parts that are no masks by name", repairs)
    elif parts:
        masks = {name: _mask(mask, picture, f"masks of {name}", repairs) for name, mask in parts.items()}
        record["parts"] = {name: mask for name, mask in masks.items() if mask is not None}


def _mask(mask: Any, picture: Size, what: str, repairs: list[Repair]) -> Any:
    """Return polygons or run lengths of the picture's size that pycocotools reads; None if there are none."""
    if not mask:
        return [] if isinstance(mask, list) else None
    if isinstance(mask, dict):
        fault = _fault_of_runs(mask, picture)
        if fault is not None:
            repairs.append(Repair(f"{what} dropped: {fault}", shown(mask), "none"))
        return mask if fault is None else None
    if not isinstance(mask, list):
        repairs.append(Repair(f"{what} dropped: neither polygons nor run lengths", shown(mask), "none"))
        return None
    polygons = _polygons(mask)
    usable = [polygon for polygon in polygons if _is_polygon(polygon, picture)]
    if len(usable) < len(polygons):
        kind = f"polygons of {what} dropped: fewer than three points, or far outside of the image"
        repairs.append(Repair(kind, shown(mask), f"{len(usable)} of {len(polygons)}"))
    elif usable != mask:
        repairs.append(Repair(f"polygons of {what} in another form", shown(mask), shown(usable)))
    return usable or None


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


def _numbers(values: list[Any]) -> list[Any]:
    return values if is_finite(values) else [real_number(one) for one in values]


def _is_polygon(polygon: Any, picture: Size) -> bool:
    if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2 or not is_finite(polygon):
        return False
    return not any(_far(x, y, picture) for x, y in zip(polygon[::2], polygon[1::2], strict=True))


def _fault_of_runs(mask: dict[str, Any], picture: Size) -> str | None:
    declared, pixels = mask.get("size"), picture.width * picture.height
    if declared != [picture.height, picture.width] or {*map(type, declared)} != {int}:
        return "run lengths of another image size"
    counts = mask.get("counts")
    if isinstance(counts, str) and len(counts) > 8 * (pixels + 1):  # more than one run per pixel
        return "run lengths do not fill the image"
    runs = decode_runs(counts) if isinstance(counts, str) else counts
    whole = isinstance(runs, list) and {*map(type, runs)} <= {int} and min(runs, default=0) >= 0
    return None if whole and sum(runs or ()) == pixels else "run lengths do not fill the image"


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


# --- boxes and areas ---


def _box(
    record: dict[str, Any], picture: Size, joints: Joints | None, conventions: Conventions, repairs: list[Repair]
) -> list[float]:
    """Return x, y, width, height, partly in the picture: those of the record, else of its mask, else of its joints."""
    if conventions.boxes == "joints" and (around := _around(record.get("keypoints"), joints, picture)):
        return around
    raw = record.get("bbox")
    box = real_numbers(raw)
    if box is not None and len(box) == 4:
        if not is_finite(raw or ()):
            repairs.append(Repair(AS_TEXT, shown(raw), shown(box)))
        if conventions.boxes == "corners":
            box[2:] = box[2] - box[0], box[3] - box[1]
        box = _turned(box, repairs)
        x, y, width, height = box
        overlaps = x < picture.width and y < picture.height and x + width > 0 and y + height > 0
        if width > 0 and height > 0 and overlaps:
            return _reasonable(box, record, picture, joints, repairs)
    source, derived = "mask", _bounds(record.get("segmentation"), picture)
    if derived is None:
        source, derived = "joints", _around(record.get("keypoints"), joints, picture)
    if derived is None:
        kind = "box outside of the image" if box and min(box[2:]) > 0 else "box without extent"
        raise UnusableError(kind, f"{shown(raw)} in {picture.width} x {picture.height}, and no mask, no joint")
    repairs.append(Repair(f"boxes that are missing or empty, taken from the {source}", shown(raw), shown(derived)))
    return derived


def _reasonable(
    box: list[float], record: Mapping[str, Any], picture: Size, joints: Joints | None, repairs: list[Repair]
) -> list[float]:
    """Return a box cut to the picture if it ends far outside, widened if it is that of the joints without a margin."""
    x, y, width, height = box
    if _far(x, y, picture) or _far(x + width, y + height, picture):
        kind, better = "boxes far outside, cut to the image", _cut(box, picture)
    elif joints is not None and not record.get("segmentation") and _is_tight(box, record.get("keypoints")):
        kind, better = "boxes tight around their joints, widened", _around(record["keypoints"], joints, picture) or box
    else:
        return box
    repairs.append(Repair(kind, shown(box), shown(better)))
    return better


def _turned(box: list[float], repairs: list[Repair]) -> list[float]:
    x, y, width, height = box
    if width >= 0 and height >= 0:
        return box
    turned = [min(x, x + width), min(y, y + height), abs(width), abs(height)]
    repairs.append(Repair("boxes of negative width or height", shown(box), shown(turned)))
    return turned


def _cut(box: Sequence[float], picture: Size) -> list[float]:
    """Return the part of a box in the picture."""
    x, y, width, height = box
    left, top = max(x, 0), max(y, 0)
    return [left, top, min(x + width, picture.width) - left, min(y + height, picture.height) - top]


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
        (place // 3, keypoints[place], keypoints[place + 1])
        for place in range(0, len(keypoints), 3)
        if keypoints[place + 2] > 0
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
    margin = max(_MARGIN * min(height, max(picture)), 1.0)
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


def _set_area(record: dict[str, Any], repairs: list[Repair]) -> None:
    """Replace an area that cannot be that of the mask, or without a mask that of an object in the box."""
    stated, box = real_number(record.get("area")), record["bbox"][2] * record["bbox"][3]
    derived = _mask_area(record.get("segmentation"))
    if derived is None:
        low, high, derived = _LEAST_AREA * box, _MOST_AREA * box, box
    else:
        low, high = (1 - _AREA_ERROR) * derived - 4, (1 + _AREA_ERROR) * derived + 4
    if stated is None or not low <= stated <= high:
        _set(record, "area", derived, "areas in another unit, or wrong", repairs)
    elif type(record["area"]) is str:
        record["area"] = stated


def _mask_area(mask: Any) -> float | None:
    """Return the area of run lengths, or of polygons (the shoelace formula)."""
    if not mask:
        return None
    if isinstance(mask, dict):
        runs = decode_runs(mask["counts"]) if isinstance(mask["counts"], str) else mask["counts"]
        return float(sum((runs or [])[1::2]))
    return float(sum(map(_polygon_area, mask)))


def _polygon_area(polygon: Sequence[float]) -> float:
    x, y = polygon[::2], polygon[1::2]
    return abs(sum(x[place - 1] * y[place] - x[place] * y[place - 1] for place in range(len(x)))) / 2


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
    keypoints = known.pop("keypoints")
    try:
        return _cut(normalise(known, picture, None, conventions)[0]["bbox"], picture)
    except UnusableError:
        points = _numbers(keypoints) if isinstance(keypoints, list) and len(keypoints) % 3 == 0 else []
        inside = [
            value
            for x, y, flag in zip(points[::3], points[1::3], points[2::3], strict=True)
            if x is not None and y is not None and flag and 0 <= x <= picture.width and 0 <= y <= picture.height
            for value in (x, y, flag)
        ]
        return _around(inside, Joints(), picture)


# --- checks of records that are right already ---


def check_person(record: Any, size: Size, joints: Sequence[str], categories: Collection[int]) -> None:
    """Raise UnusableError if a person annotation of a prepared dataset is not as `normalise` writes it.

    Joints may be missing. `categories` are those of people; other annotations pass.
    """
    check_id(record)
    if type(record.get("category_id")) is not int:
        raise UnusableError("category unknown", repr(record.get("category_id"))[:80])
    if record["category_id"] not in categories:
        return
    repairs = normalise(record, size, Joints(tuple(joints)))[1]
    if repairs:
        raise UnusableError(repairs[0].kind, f"{repairs[0].before} (right: {repairs[0].after})")


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
    repairs: list[Repair] = []
    _mask(record.get("segmentation"), size, "masks", repairs)
    if repairs:
        raise UnusableError(repairs[0].kind, repairs[0].before)


def _check_found_joints(keypoints: Any, size: Size, joints: int) -> None:
    if not isinstance(keypoints, list) or len(keypoints) != 3 * joints:
        length = f"{len(keypoints)} numbers" if isinstance(keypoints, list) else repr(keypoints)[:80]
        raise UnusableError(f"keypoints are not {joints} x 3 numbers", length)
    if not is_finite(keypoints):
        raise UnusableError("keypoint not finite", next(one for one in keypoints if not is_finite([one])))
    for x, y, confidence in zip(keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True):
        if confidence > 0 and _far(x, y, size):
            raise UnusableError("keypoint outside of the image", f"{x}, {y} in {size.width} x {size.height}")
