"""Files that every prepared dataset has: `rejected.csv`, and `manifest.json` with a hash of the whole."""

import csv
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from models.base.files import replacing, write_text


def write_rejected(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rejected records as CSV with a header, atomically."""
    with replacing(path) as temporary, temporary.open("w", newline="", errors="backslashreplace") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def write_manifest(folder: Path) -> None:
    """Write `manifest.json`, `{"files": n, "sha256": hash}`, for the data in `folder`.

    The hash covers the paths and contents of all files in order, except `manifest.json` itself and `plots/`, whose
    bytes depend on matplotlib and its fonts.
    """
    total = hashlib.sha256()
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = [path.as_posix() for path in paths if path.parts[0] not in ("manifest.json", "plots")]
    for name in names:
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{name}\0{digest}\n".encode(errors="surrogateescape"))
    content = {"files": len(names), "sha256": total.hexdigest()}
    write_text(folder / "manifest.json", json.dumps(content, separators=(",", ":")) + "\n")
