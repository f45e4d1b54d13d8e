"""Checks of the records of a COCO keypoint file.

Each check raises `UnusableError` with a reason (a fixed phrase, for counting) and a detail.
"""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from data.formats.coco import to_json

FORMATS = ("JPEG", "PNG", "BMP", "WEBP")
"""Formats that both Pillow and OpenCV read in process; for some other formats Pillow starts programs."""

_NOT_READ = ("GIF", "TIFF")
"""Formats that are told from broken files."""

LARGEST_ID = 2**63 - 1


class UnusableError(Exception):
    """A record that cannot be used."""

    def __init__(self, reason: str, detail: object = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, str(detail)


class Rejected(NamedTuple):
    """A row of `rejected.csv`: the annotation file, `image` or `annotation`, the record's id, and why."""

    file: str
    kind: str
    id: str
    reason: str
    detail: str


class Size(NamedTuple):
    """Width and height of an image, pixels."""

    width: int
    height: int


@dataclass(frozen=True)
class Categories:
    """The category ids of a file, those of people among them, and the names of people's joints."""

    ids: frozenset[int]
    people: frozenset[int]
    joints: tuple[str, ...]


@dataclass
class Seen:
    """The records of a file so far, to check the next record against."""

    images: dict[int, Size | None] = field(default_factory=dict)
    """The usable images; None for the id of an image that was rejected."""
    files: set[str] = field(default_factory=set)
    annotations: set[int] = field(default_factory=set)


def inside(folder: Path, name: str, root: Path) -> Path:
    """Return `folder / name` with links resolved; raises UnusableError if that lies outside `root`."""
    path = Path(os.path.realpath(folder / name))  # `resolve` raises RuntimeError for links in a circle
    if ".." in Path(name).parts or not path.is_relative_to(root.resolve()):
        raise UnusableError("path leaves the data root", name)
    return path


def check_id(record: Any) -> int:
    """Return the record's id; raises UnusableError if it is no whole number of 64 bits."""
    if not isinstance(record, dict):
        raise UnusableError("not an object", repr(record)[:80])
    number = record.get("id")
    if type(number) is not int or abs(number) > LARGEST_ID:
        raise UnusableError("id is not a whole number", repr(number)[:80])
    return number


def check_image_record(record: Any, seen: Seen) -> Size:
    """Return the size that the record states; raises UnusableError for a faulty record. Reads no image file."""
    if check_id(record) in seen.images:
        raise UnusableError("id used twice")
    name = record.get("file_name")
    if not isinstance(name, str) or not name:
        raise UnusableError("file name missing", repr(name))
    if name in seen.files:
        raise UnusableError("image file used twice", name)
    try:
        to_json(record)
    except ValueError as error:
        raise UnusableError("number not finite") from error
    size = Size(record.get("width"), record.get("height"))
    if not all(type(side) is int and 0 < side < 2**16 for side in size):
        raise UnusableError("image size is not two whole numbers", f"width {size.width!r}, height {size.height!r}")
    return size


def check_image_file(folder: Path, name: str, size: Size, root: Path) -> Path:
    """Return the image's path; raises UnusableError unless it lies in `root`, decodes completely and has this size."""
    try:
        path = inside(folder, name, root)
        if not path.is_file():
            raise UnusableError("image file missing", name)
        with Image.open(path, formats=(*FORMATS, *_NOT_READ)) as image:
            if image.format not in FORMATS:
                raise UnusableError(
                    "image format not read", f"{name}: {image.format}; allowed are {', '.join(FORMATS)}"
                )
            image.load()
            actual = Size(*image.size)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnusableError("image file broken", f"{name}: {error}") from error
    if actual != size:
        declared = f"{size.width} x {size.height}"
        raise UnusableError("image size disagrees", f"{name}: {actual.width} x {actual.height} instead of {declared}")
    return path


def check_annotation(record: Any, seen: Seen, categories: Categories) -> None:
    """Raise UnusableError unless the annotation fits the images and categories of its file.

    Persons without keypoints, crowd regions, objects of other categories and annotations without a mask are usable.
    `person_id`, the identity, may be missing.
    """
    if check_id(record) in seen.annotations:
        raise UnusableError("id used twice")
    size = _image_size(record.get("image_id"), seen)
    if type(record.get("category_id")) is not int or record["category_id"] not in categories.ids:
        raise UnusableError("category unknown", repr(record.get("category_id")))
    if record.get("iscrowd", 0) not in (0, 1):
        raise UnusableError("iscrowd is neither 0 nor 1", repr(record["iscrowd"]))
    _check_box(record.get("bbox"), size)
    if record["category_id"] in categories.people:
        _check_keypoints(record, size, categories.joints)
    check_mask(record.get("segmentation"), size)
    parts = record.get("parts", {})
    if not isinstance(parts, dict):
        raise UnusableError("parts are not masks by name", repr(parts)[:80])
    for mask in parts.values():
        check_mask(mask, size)
    if not is_finite([record.get("area", 0)]) or record.get("area", 0) < 0:
        raise UnusableError("area is not a number of at least 0", repr(record["area"]))
    if type(record.get("person_id", 0)) is not int or abs(record.get("person_id", 0)) > LARGEST_ID:
        raise UnusableError("person_id is not a whole number", repr(record["person_id"]))


def _image_size(image_id: Any, seen: Seen) -> Size:
    if type(image_id) is not int or image_id not in seen.images:
        raise UnusableError("annotation without image", f"image_id {image_id!r}")
    size = seen.images[image_id]
    if size is None:
        raise UnusableError("image of the annotation rejected", f"image_id {image_id}")
    return size


def is_finite(numbers: Any) -> bool:
    """Tell whether all are finite numbers."""
    return all(isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in numbers)


def _far(x: float, y: float, size: Size) -> bool:
    """Tell whether a point is farther from the image than its size; such numbers are mistakes, and cost memory."""
    return not (-size.width <= x <= 2 * size.width and -size.height <= y <= 2 * size.height)


def _check_box(box: Any, size: Size) -> None:
    if not isinstance(box, list) or len(box) != 4 or not is_finite(box):
        raise UnusableError("box is not four finite numbers", repr(box)[:80])
    x, y, width, height = box
    if width <= 0 or height <= 0:
        raise UnusableError("box without extent", box)
    overlaps = x < size.width and y < size.height and x + width > 0 and y + height > 0
    if not overlaps or _far(x, y, size) or _far(x + width, y + height, size):
        raise UnusableError("box outside of the image", f"{box} in {size.width} x {size.height}")


def _check_keypoints(record: dict[str, Any], size: Size, joints: tuple[str, ...]) -> None:
    keypoints = record.get("keypoints", [0] * 3 * len(joints))
    if not isinstance(keypoints, list) or len(keypoints) != 3 * len(joints):
        length = f"{len(keypoints)} numbers" if isinstance(keypoints, list) else repr(keypoints)[:80]
        raise UnusableError(f"keypoints are not {len(joints)} x 3 numbers", length)
    if not is_finite(keypoints):
        raise UnusableError("keypoint not finite", next(one for one in keypoints if not is_finite([one])))
    labelled = 0
    for joint, x, y, flag in zip(joints, keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True):
        if flag not in (0, 1, 2):
            raise UnusableError("visibility is not 0, 1 or 2", f"{joint}: {flag}")
        if flag and not (0 <= x <= size.width and 0 <= y <= size.height):
            raise UnusableError("keypoint outside of the image", f"{joint}: {x}, {y} in {size.width} x {size.height}")
        labelled += flag > 0
    if record.get("num_keypoints", labelled) != labelled:
        raise UnusableError("num_keypoints disagrees", f"{record['num_keypoints']!r} instead of {labelled}")


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
    if mask.get("size") != [size.height, size.width]:
        raise UnusableError(
            "run lengths of another image size", f"{mask.get('size')!r}, not {[size.height, size.width]}"
        )
    counts = mask.get("counts")
    runs = decode_runs(counts) if isinstance(counts, str) else counts
    whole = isinstance(runs, list) and all(type(run) is int and run >= 0 for run in runs)
    if not whole or sum(runs or ()) != size.width * size.height:
        raise UnusableError("run lengths do not fill the image", repr(counts)[:80])


def decode_runs(text: str) -> list[int] | None:
    """Decode the run lengths of COCO's compressed encoding; None for faulty text, which pycocotools would read past.

    Each character holds five bits, least significant first, with offset 48; 32 means that more follow, 16 in the last
    one is the sign. From the fourth run on, values are differences to the run two before (`rleToString` of the COCO
    API).
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
