"""Persons with identities, as published: by file name, in Market-1501 and in DeepFashion In-shop.

Market-1501 (Zheng et al., ICCV 2015): `0002_c1s1_000451_03.jpg` is person 2, seen by camera 1 in its sequence 1, frame
451, third box there. Person -1 is junk (a detection that slightly overlaps a person), 0000 a distractor (no person).

DeepFashion In-shop (Liu et al., CVPR 2016): `img/WOMEN/Dresses/id_00000002/02_1_front.jpg` shows item 2 in its variant
2 (a colour, mostly), as series 1, from the front. `Eval/list_eval_partition.txt` has the number of images, a row of
column names, and rows of an image's name, its item and its evaluation status: train, query or gallery.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from figura.base.errors import UserError
from figura.base.files import read_text
from figura.base.pictures import picture_files
from figura.preparation.outcome import Rejected
from figura.preparation.settings import Status

_STATUSES = get_args(Status)
_OF_MARKET = re.compile(r"(-1|\d+)_c(\d+)s(\d+)_(\d+)_(\d+)\.")  # person, camera, sequence, frame, box
_OF_FASHION = re.compile(r"(?:.*/)?id_(\d+)/(\d+)_(\d+)_(\w+)\.\w+")  # item, variant, number of the view, view
_LEFT_OUT = {-1: "junk (-1)", 0: "distractors (0000)"}


class Picture(NamedTuple):
    """A picture file, relative to the folder of images, and its split.

    `person` has the keys of an annotation of the person who fills it, such as `person_id`; None if nobody is known.
    Pictures of one `group` belong to one split.
    """

    file: str
    split: str
    person: dict[str, Any] | None = None
    group: int = 0


@dataclass
class Reading:
    """The result of a reader: pictures, splits and faults of unusable files, and numbers of skipped ones by reason."""

    pictures: list[Picture] = field(default_factory=list)
    faults: list[tuple[str, Rejected]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def reject(self, split: str, file: str, name: str, needed: str) -> None:
        """Note a name of another form in a folder or list."""
        self.faults.append((split, Rejected(file, "image", name[:80], "name of another form", f"needed: {needed}")))


def read_market1501(source: Path, folders: Mapping[str, Sequence[str]]) -> Reading:
    """Return the pictures of `folders` by split, relative to `source`, sorted by name within each folder."""
    reading = Reading()
    for split, folder in ((split, folder) for split, names in folders.items() for folder in names):
        for name in picture_files(source / folder, reading.left_out):
            parts = _OF_MARKET.match(Path(name).name)
            if parts is None:
                reading.reject(split, folder, name, "0002_c1s1_000451_03.jpg")
                continue
            number, camera, sequence, frame, _ = map(int, parts.groups())
            if number in _LEFT_OUT:
                reading.left_out[_LEFT_OUT[number]] += 1
                continue
            person = {"camera": camera, "sequence": sequence, "frame": frame, "person_id": number}
            reading.pictures.append(Picture(f"{folder}/{name}", split, person, group=number))
    return reading


def read_deepfashion(
    partition: Path, statuses: Mapping[str, Sequence[str]], identity: Literal["item", "variant"]
) -> Reading:
    """Return the pictures of the partition by split, relative to the folder of images, in the order of the list.

    A person is an item, or one variant of an item (item x 100 + variant). The variants of an item form one group.
    Raises UserError for a malformed list.
    """
    split_of = {status: split for split, several in statuses.items() for status in several}
    reading = Reading()
    for name, item, status in _rows(partition):
        if status not in split_of:
            reading.left_out[f"status {status}"] += 1
            continue
        parts = _OF_FASHION.fullmatch(name)
        if parts is None or f"id_{parts[1]}" != item:
            needed = ".../id_00000002/02_1_front.jpg, of the row's item"
            reading.reject(split_of[status], partition.name, name, needed)
            continue
        number, variant, view = int(parts[1]), int(parts[2]), parts[4]
        person = {"item": number, "variant": variant, "view": view}
        person["person_id"] = number if identity == "item" else 100 * number + variant
        reading.pictures.append(Picture(name.partition("/")[2], split_of[status], person, group=number))
    return reading


def _rows(partition: Path) -> Iterator[list[str]]:
    """Yield image name, item and status of each row."""
    lines = read_text(partition).splitlines()
    rows = [line.split() for line in lines[2:] if line.strip()]
    if not lines or lines[0].strip() != str(len(rows)):
        found = lines[0].strip()[:80] if lines else ""
        raise UserError(
            f"{partition}: the first row is {found!r}, and {len(rows)} rows follow the second; the published list has "
            "the number of images, a row of column names, and a row for each image"
        )
    for number, row in enumerate(rows, 3):
        if len(row) != 3 or row[2] not in _STATUSES or "/" not in row[0]:
            raise UserError(
                f"{partition}: row {number}: found {' '.join(row)[:80]!r}; expected an image's path, its item and one "
                f"of {', '.join(_STATUSES)}"
            )
        yield row
