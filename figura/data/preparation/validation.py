"""Checks of the records of a COCO keypoint file, and of its images; they raise `UnusableError`."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from figura.base.errors import UserError
from figura.base.pictures import LARGEST, Orientation, Reading, picture_facts, store_picture
from figura.data.formats.coco import to_json
from figura.data.formats.records import (
    Size,
    UnusableError,
    check_box,
    check_id,
    check_identity,
    check_keypoints,
    check_masks,
    check_size,
    is_finite,
)


class Rejected(NamedTuple):
    """A row of `rejected.csv`: the annotation file, `image` or `annotation`, the record's id, and why."""

    file: str
    kind: str
    id: str
    reason: str
    detail: str


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
    files: dict[str, str] = field(default_factory=dict)
    """The name of each image file in its record, by this name and by the file's resolved path."""
    annotations: set[int] = field(default_factory=set)


def inside(folder: Path, name: str, root: Path) -> Path:
    """Return `folder / name` with links resolved; raises UnusableError if it is outside `root`."""
    path = Path(os.path.realpath(folder / name))  # `resolve` raises RuntimeError for circular links
    if ".." in Path(name).parts or not path.is_relative_to(root.resolve()):
        raise UnusableError("path leaves the data root", name)
    return path


def check_image_record(record: Any, seen: Seen) -> Size:
    """Return the size in the record; raises UnusableError for an invalid record. Reads no image file."""
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
    except RecursionError:
        raise UnusableError("nested too deeply") from None
    return check_size(record)


def identity(path: Path) -> str | None:
    """Return the resolved path of a file, equal for all its symbolic links, or None.

    Hard links are separate files: DVC's cache may create them for any equal files, only on one machine.
    """
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL, or an invalid surrogate
        return None


def store_image(
    folder: Path, name: str, size: Size, root: Path, place: Path | None, orientation: Orientation | None = None
) -> Reading:
    """Read an image's file and store it at `place`, if any, as `store_picture` does.

    By default, it is stored with the size of its record: upright if possible.

    Raises:
        UnusableError: it is outside `root`, cannot be read completely, or has another size.
    """
    try:
        path = inside(folder, name, root)
        if not path.is_file():
            raise UnusableError("image file missing", name)
        if (length := path.stat().st_size) > LARGEST:
            raise UnusableError("image file too large", f"{name}: {length:,} bytes; at most {LARGEST:,} are allowed")
        facts = picture_facts(path)
        sizes: dict[Orientation, Size] = {"upright": Size(*facts.upright), "stored": Size(*facts.stored)}
        fitting = [one for one, actual in sizes.items() if actual == size]
        if not fitting:
            actual, declared = (f"{one.width} x {one.height}" for one in (sizes["upright"], size))
            raise UnusableError("image size disagrees", f"{name}: {actual} instead of {declared}")
        return store_picture(path, place, orientation or fitting[0])
    except (OSError, ValueError) as error:
        raise UnusableError("image file broken", f"{name}: {error}") from error
    except UserError as error:
        raise UnusableError("image file broken", f"{name}: {str(error).removeprefix(f'{path}: ')}") from error


def check_annotation(record: Any, seen: Seen, categories: Categories) -> None:
    """Raise UnusableError unless the annotation matches the images and categories of its file.

    Persons without keypoints, crowd regions, objects of other categories and annotations without a mask are usable.
    `person_id`, the identity, may be missing.
    """
    if check_id(record) in seen.annotations:
        raise UnusableError("id used twice")
    size = _image_size(record.get("image_id"), seen)
    if type(record.get("category_id")) is not int or record["category_id"] not in categories.ids:
        raise UnusableError("category unknown", repr(record.get("category_id"))[:80])
    if record.get("iscrowd", 0) not in (0, 1):
        raise UnusableError("iscrowd is neither 0 nor 1", repr(record["iscrowd"])[:80])
    check_box(record.get("bbox"), size)
    if record["category_id"] in categories.people:
        check_keypoints(record, size, categories.joints)
    check_masks(record, size)
    if not is_finite([record.get("area", 0)]) or record.get("area", 0) < 0:
        raise UnusableError("area is not a number of at least 0", repr(record["area"])[:80])
    check_identity(record)


def _image_size(image_id: Any, seen: Seen) -> Size:
    if type(image_id) is not int or image_id not in seen.images:
        raise UnusableError("annotation without image", f"image_id {image_id!r}")
    size = seen.images[image_id]
    if size is None:
        raise UnusableError("image of the annotation rejected", f"image_id {image_id}")
    return size
