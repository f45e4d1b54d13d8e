"""Published lists of pairs: which appearance is transferred to which pose (since PG2 and PATN, `from,to`)."""

import csv
import re
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path, PurePosixPath

from figura.base.errors import UserError
from figura.base.files import open_regular, replacing
from figura.formats.coco import read_records
from figura.preparation.outcome import Rejected

COLUMNS = ("from", "to")
HEADER = ("appearance_id", "annotation_id")


def write_pair_list(listing: Path, folder: Path, split: str) -> tuple[int, list[Rejected]]:
    """Convert the file names in `listing` to annotation ids, written to `folder/<split>.pairs.csv`.

    `listing` is a CSV file with the columns `from`, the appearance, and `to`, the target. A name is the path of an
    image of the split, a suffix of it, or the full path in one word, such as
    `fashionWOMENDressesid0000000202_1front.jpg` for `WOMEN/Dresses/id_00000002/02_1_front.jpg`. Return the number of
    pairs, and the rows whose images are missing.

    Raises:
        UserError: the list has other columns or cannot be read.
    """
    annotations = _by_name(folder / f"{split}.json", split)
    pairs, faults = 0, []
    with replacing(folder / f"{split}.pairs.csv") as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for row, names in _rows(listing):
            found = [annotations.get(key) for key in map(_key, names)]
            if None in found:
                missing = names[found.index(None)][:300]
                faults.append(Rejected(listing.name, "pair", f"row {row}", "image of the pair is not there", missing))
            elif -1 in found:
                unclear = names[found.index(-1)][:300]
                faults.append(Rejected(listing.name, "pair", f"row {row}", "several images have this name", unclear))
            else:
                writer.writerow(found)
                pairs += 1
    return pairs, faults


def _rows(listing: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    try:
        with TextIOWrapper(open_regular(listing), encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if not {*COLUMNS} <= {*(reader.fieldnames or ())}:
                found = ", ".join(reader.fieldnames or ())
                raise UserError(f"{listing}: the columns are {found[:80]!r}; needed are 'from' and 'to'")
            for number, row in enumerate(reader, 2):
                yield number, (row["from"] or "", row["to"] or "")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{listing}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _by_name(records: Path, split: str) -> dict[str, int]:
    """Map every suffix of an image's path, and the path in one word, to its annotation id; -1 if ambiguous."""
    of_image = {record["image_id"]: record["id"] for record in read_records(records, "annotations")}
    names: dict[str, int] = {}
    for image in read_records(records, "images"):
        if image["id"] not in of_image:
            continue
        parts = PurePosixPath(image["file_name"].removeprefix(f"{split}/")).with_suffix("").parts
        ends = {"/".join(parts[first:]) for first in range(len(parts))}
        for name in {*ends, _word("/".join(parts))}:
            names[name] = of_image[image["id"]] if name not in names else -1
    return names


def _key(name: str) -> str:
    """Return the key of a name in `_by_name`: without suffix; one word if it starts with `fashion`."""
    stem = re.sub(r"\.[0-9A-Za-z]+$", "", name.strip())
    for prefix in ("img/", "img_highres/"):
        stem = stem.removeprefix(prefix)
    return _word(stem.removeprefix("fashion")) if stem.startswith("fashion") else stem


def _word(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", name)
