"""Files that every prepared dataset has: `rejected.csv`, and `manifest.json` with hashes of all files."""

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from figura.base.files import replacing, write_text
from figura.base.manifest import MANIFEST


def write_rejected(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rejected records as CSV with a header, atomically."""
    with replacing(path) as temporary, temporary.open("w", newline="", errors="backslashreplace") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def write_manifest(folder: Path) -> list[str]:
    """Write `manifest.json`, `{"files": n, "hashes": {path: hash}, "sha256": hash}`, for the data in `folder`.

    `hashes` has the SHA-256 of each file, `sha256` that of all paths and hashes in order. Neither covers
    `manifest.json` itself and `plots/`, whose bytes depend on matplotlib and its fonts.

    Returns a warning for every two splits that have pictures of the same bytes.
    """
    total, hashes = hashlib.sha256(), dict[str, str]()
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    for name in (path.as_posix() for path in paths if path.parts[0] not in (MANIFEST, "plots")):
        with (folder / name).open("rb") as file:
            hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{name}\0{hashes[name]}\n".encode(errors="surrogateescape"))
    content = {"files": len(hashes), "hashes": hashes, "sha256": total.hexdigest()}
    write_text(folder / MANIFEST, json.dumps(content, indent=0) + "\n")
    return _in_two_splits(hashes)


def _in_two_splits(hashes: Mapping[str, str]) -> list[str]:
    """Return a warning for every two splits with equal pictures; pairs in folders a and b are equal if both are."""
    pictures: dict[str, dict[str, str]] = {}  # split -> name, of pairs without a/ or b/ and suffix -> hashes
    for name, one in hashes.items():
        parts = Path(name).parts[1:] if name.startswith("images/") else Path(name).parts
        if len(parts) > 1:
            of_pair = len(parts) > 2 and parts[1] in "ab" and not name.startswith("images/")
            rest = str(Path(*parts[2:]).with_suffix("")) if of_pair else "/".join(parts[1:])
            of_split = pictures.setdefault(parts[0], {})
            of_split[rest] = of_split.get(rest, "") + one
    lines = []
    for one, other in combinations(pictures, 2):
        before = set(pictures[one].values())
        same = [name for name, picture in pictures[other].items() if picture in before]
        if same:
            lines.append(
                f"warning: {len(same)} of {len(pictures[other])} pictures of {other} have the bytes of one in {one}, "
                f"such as {same[0]}: scores on them say little about new pictures"
            )
    return lines
