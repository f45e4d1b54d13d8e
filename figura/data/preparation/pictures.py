"""Picture files as COCO records: one image each, with a person that fills it if there are identities."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.files import write_text
from figura.base.pictures import SUFFIXES, Orientation, picture_facts
from figura.data.formats.coco import PERSON, to_json
from figura.data.formats.records import Size
from figura.data.preparation.poses import PoseSource
from figura.data.preparation.validation import Rejected


@dataclass(frozen=True, kw_only=True)
class Person:
    """The person in a picture. Pictures of one `group` belong to one split; `notes` are further annotation keys."""

    id: int
    group: int
    notes: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """A picture file, relative to the folder of images, its split, and its person."""

    file: str
    split: str
    person: Person | None = None


@dataclass
class Reading:
    """The result of a reader: pictures, splits and faults of unusable files, and numbers of skipped ones by reason."""

    pictures: list[Picture] = field(default_factory=list)
    faults: list[tuple[str, Rejected]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def picture_files(folder: Path, left_out: Counter[str] | None = None) -> Iterator[str]:
    """Yield the image files below a folder as paths relative to it, sorted; hidden files and folders are skipped.

    Other files are counted in `left_out`.
    """
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if left_out is not None:
            left_out += other_files(files)
        for name in sorted(files):
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES:
                yield Path(parent, name).relative_to(folder).as_posix()


def other_files(names: Iterable[str]) -> Counter[str]:
    """Count the names of files that are no pictures, by suffix; hidden ones do not count."""
    suffixes = (os.path.splitext(name)[1].lower() for name in names if not name.startswith("."))
    return Counter(f"files of {suffix or 'no suffix'}" for suffix in suffixes if suffix not in SUFFIXES)


def left_out_line(left_out: Counter[str]) -> str:
    """Return the line of what is left out, by reason."""
    return "left out: " + ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))


def write_records(
    path: Path, images: Path, pictures: Sequence[Picture], first: int, poses: PoseSource | None, progress: bool
) -> None:
    """Write a COCO file of pictures below `images`, numbered from `first`; image and annotation have the same id.

    A person's box is the full picture; joints come from `poses`. Without persons, the file has only images, like COCO's
    `image_info_*.json`. Files that are not images get the size 1 x 1: `Preparation` reads each file completely and
    rejects them.
    """
    sizes = [size_of(images / one.file) for one in tqdm(pictures, f"{path.stem[1:]}: sizes", disable=not progress)]
    numbered = list(enumerate(zip(pictures, sizes, strict=True), first))
    content: dict[str, Any] = {"images": list(_images(numbered))}
    if any(one.person for one in pictures):
        content["annotations"] = list(_annotations(numbered, poses))
        content["categories"] = [poses.category if poses else {"id": 1, "name": PERSON}]
    write_text(path, to_json(content))


def _images(numbered: Iterable[tuple[int, tuple[Picture, Size]]]) -> Iterator[dict[str, Any]]:
    for number, (picture, size) in numbered:
        yield {"id": number, "file_name": picture.file, "width": size.width, "height": size.height}


def _annotations(
    numbered: Iterable[tuple[int, tuple[Picture, Size]]], poses: PoseSource | None
) -> Iterator[dict[str, Any]]:
    for number, (picture, size) in numbered:
        if picture.person is not None:
            yield {
                **picture.person.notes,
                **((poses.of(picture.file, size) if poses else None) or {}),
                "id": number,
                "image_id": number,
                "category_id": 1,
                "iscrowd": 0,
                "bbox": [0, 0, size.width, size.height],
                "area": size.width * size.height,
                "person_id": picture.person.id,
            }


def size_of(path: Path, orientation: Orientation = "upright") -> Size:
    """Return the size of a picture upright by EXIF, as most tools read it, or as stored; 1 x 1 if it is none."""
    try:
        facts = picture_facts(path)
    except UserError:
        return Size(1, 1)
    return Size(*(facts.upright if orientation == "upright" else facts.stored))
