"""Checks of people records: ids, boxes, keypoints, masks. Applied to everything read from files.

Each check raises `UnusableError` with a reason (a fixed phrase, for counting) and a detail. No check allocates memory
according to a number in the record.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

LARGEST_ID = 2**63 - 1

_SHOWN = 300  # characters of a detail


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


def _far(x: float, y: float, size: Size) -> bool:
    """Return whether a point is farther from the image than its size; such numbers are errors, and cost memory."""
    return not (-size.width <= x <= 2 * size.width and -size.height <= y <= 2 * size.height)


def _numbers(box: Any) -> list[float]:
    if not isinstance(box, list) or len(box) != 4 or not is_finite(box):
        raise UnusableError("box is not four finite numbers", repr(box)[:80])
    return box


def check_box(box: Any, size: Size) -> None:
    """Raise UnusableError unless `box` is x, y, width, height of an area that is partly in the image."""
    x, y, width, height = _numbers(box)
    if width <= 0 or height <= 0:
        raise UnusableError("box without extent", box)
    overlaps = x < size.width and y < size.height and x + width > 0 and y + height > 0
    if not overlaps or _far(x, y, size) or _far(x + width, y + height, size):
        raise UnusableError("box outside of the image", f"{box} in {size.width} x {size.height}")


def check_keypoints(record: dict[str, Any], size: Size, joints: Sequence[str]) -> None:
    """Raise UnusableError unless `keypoints` are x, y, visibility of the joints in the image, or missing."""
    keypoints = _triples(record.get("keypoints", [0] * 3 * len(joints)), len(joints))
    labelled = 0
    for joint, x, y, flag in zip(joints, keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True):
        if flag not in (0, 1, 2):
            raise UnusableError("visibility is not 0, 1 or 2", f"{joint}: {flag}")
        if flag and not (0 <= x <= size.width and 0 <= y <= size.height):
            raise UnusableError("keypoint outside of the image", f"{joint}: {x}, {y} in {size.width} x {size.height}")
        labelled += flag > 0
    if record.get("num_keypoints", labelled) != labelled:
        raise UnusableError("num_keypoints disagrees", f"{record['num_keypoints']!r} instead of {labelled}")


def _triples(keypoints: Any, joints: int) -> list[float]:
    if not isinstance(keypoints, list) or len(keypoints) != 3 * joints:
        length = f"{len(keypoints)} numbers" if isinstance(keypoints, list) else repr(keypoints)[:80]
        raise UnusableError(f"keypoints are not {joints} x 3 numbers", length)
    if not is_finite(keypoints):
        raise UnusableError("keypoint not finite", next(one for one in keypoints if not is_finite([one])))
    return keypoints


def check_person(record: Any, size: Size, joints: Sequence[str], categories: Collection[int]) -> None:
    """Raise UnusableError if a person annotation of a prepared dataset cannot be an example.

    Joints may be missing. `categories` are those of people; other annotations pass.
    """
    check_id(record)
    if type(record.get("category_id")) is not int:
        raise UnusableError("category unknown", repr(record.get("category_id"))[:80])
    if record["category_id"] not in categories:
        return
    check_box(record.get("bbox"), size)
    if record.get("keypoints"):
        check_keypoints(record, size, joints)
    check_masks(record, size)
    check_identity(record)


def check_identity(record: dict[str, Any]) -> None:
    """Raise UnusableError if `person_id` exists and is not a 64-bit integer."""
    if type(record.get("person_id", 0)) is not int or abs(record.get("person_id", 0)) > LARGEST_ID:
        raise UnusableError("person_id is not a whole number", repr(record["person_id"])[:80])


def check_result(record: Any, size: Size, joints: int) -> None:
    """Raise UnusableError unless a record is a COCO result: a person detected in an image.

    Joints have a confidence as third number. Boxes and joints may be outside the image, but near it.
    """
    if not isinstance(record, dict):
        raise UnusableError("not an object", repr(record)[:80])
    if type(record.get("category_id")) is not int:
        raise UnusableError("category_id is not a whole number", repr(record.get("category_id"))[:80])
    x, y, width, height = box = _numbers(record.get("bbox"))
    if width < 0 or height < 0 or _far(x, y, size) or _far(x + width, y + height, size):
        raise UnusableError("box outside of the image", f"{box} in {size.width} x {size.height}")
    keypoints = _triples(record.get("keypoints"), joints)
    for x, y, confidence in zip(keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True):
        if confidence > 0 and _far(x, y, size):
            raise UnusableError("keypoint outside of the image", f"{x}, {y} in {size.width} x {size.height}")
    if not is_finite([record.get("score", 1)]):
        raise UnusableError("score is not a finite number", repr(record["score"])[:80])
    check_mask(record.get("segmentation"), size)


def check_masks(record: Mapping[str, Any], size: Size) -> None:
    """Raise UnusableError unless `segmentation` and each of `parts` is a mask of the image's size, or missing."""
    check_mask(record.get("segmentation"), size)
    parts = record.get("parts", {})
    if not isinstance(parts, dict):
        raise UnusableError("parts are not masks by name", repr(parts)[:80])
    for mask in parts.values():
        check_mask(mask, size)


def check_mask(mask: Any, size: Size) -> None:
    """Raise UnusableError unless `mask` is missing, a list of polygons, or run lengths of the image's size."""
    if mask is None:
        return
    if isinstance(mask, dict):
        _check_runs(mask, size)
        return
    if not isinstance(mask, list):
        raise UnusableError("mask is neither polygons nor run lengths", repr(mask)[:80])
    for polygon in mask:
        if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2 or not is_finite(polygon):
            raise UnusableError("polygon is not three or more finite points", repr(polygon)[:80])
        if any(_far(x, y, size) for x, y in zip(polygon[::2], polygon[1::2], strict=True)):
            raise UnusableError("polygon outside of the image", repr(polygon)[:80])


def _check_runs(mask: dict[str, Any], size: Size) -> None:
    declared, pixels = mask.get("size"), size.width * size.height
    if declared != [size.height, size.width] or {*map(type, declared)} != {int}:
        raise UnusableError(
            "run lengths of another image size", f"{repr(declared)[:80]}, not {[size.height, size.width]}"
        )
    counts = mask.get("counts")
    if isinstance(counts, str) and len(counts) > 8 * (pixels + 1):  # more than one run per pixel
        runs = None
    else:
        runs = decode_runs(counts) if isinstance(counts, str) else counts
    whole = isinstance(runs, list) and {*map(type, runs)} <= {int} and min(runs, default=0) >= 0
    if not whole or sum(runs or ()) != pixels:
        raise UnusableError("run lengths do not fill the image", repr(counts)[:80])


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
