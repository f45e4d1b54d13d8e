"""DeepFashion In-shop Clothes Retrieval (Liu et al., CVPR 2016) as published: items by file name.

`Eval/list_eval_partition.txt` has the number of images, a row of column names, and rows of an image's name, its item
and its evaluation status: train, query or gallery. `img/WOMEN/Dresses/id_00000002/02_1_front.jpg` shows item 2 in its
variant 2 (a colour, mostly), as series 1, from the front.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from figura.base.errors import UserError
from figura.base.files import read_text
from figura.data.preparation.outcome import Rejected
from figura.data.preparation.pictures import Picture, Reading
from figura.data.preparation.settings import Status

STATUSES = get_args(Status)
NAME = re.compile(r"(?:.*/)?id_(\d+)/(\d+)_(\d+)_(\w+)\.\w+")
"""Item, variant, number of the view, view."""


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
        parts = NAME.fullmatch(name)
        if parts is None or f"id_{parts[1]}" != item:
            detail = "needed: .../id_00000002/02_1_front.jpg, of the row's item"
            fault = Rejected(partition.name, "image", name[:80], "name of another form", detail)
            reading.faults.append((split_of[status], fault))
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
        if len(row) != 3 or row[2] not in STATUSES or "/" not in row[0]:
            raise UserError(
                f"{partition}: row {number}: found {' '.join(row)[:80]!r}; expected an image's path, its item and one "
                f"of {', '.join(STATUSES)}"
            )
        yield row
