"""The first thing in which what two versions of the code wrote differs, and by how much."""

import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from figura.base.checksums import SUMS
from figura.base.files import read_json
from figura.base.lock import NAME
from figura.base.raw_pictures import read_picture
from figura.base.tables import read_rows

NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?")
DIGEST = re.compile(r"[0-9a-f]{64}")


def in_values(old: Any, new: Any, key: str = "") -> str | None:
    """Return the first difference of nested maps and lists: the key, both values, and by how much they differ."""
    if isinstance(old, list) and isinstance(new, list):
        old, new = (dict(enumerate(one)) for one in (old, new))
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            where = f"{key}.{name}" if key else str(name)
            if name not in old or name not in new:
                return f"{where} is {'new' if name in new else 'missing'}"
            if found := in_values(old[name], new[name], where):
                return found
        return None if list(old) == list(new) else f"{key} is in another order"
    if old == new or str(old) == str(new) == "nan":
        return None
    if all(isinstance(one, str) and DIGEST.fullmatch(one) for one in (old, new)):
        return key
    finite = all(isinstance(one, int | float) and math.isfinite(one) for one in (old, new))
    return f"{key} {old!r:.60}, now {new!r:.60}" + (f", by {abs(new - old):.3g}" if finite else "")


def in_tensors(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> str | None:
    """Return the first tensor, by name, that differs in a bit, and its largest difference."""
    for name in dict.fromkeys([*old, *new]):
        if name not in old or name not in new or old[name].shape != new[name].shape:
            return f"{name} is {'new' if name not in old else 'missing' if name not in new else 'of another shape'}"
        bits = [one[name].contiguous().flatten().view(torch.uint8) for one in (old, new)]
        if not bits[0].equal(bits[1]):
            return f"{name} by at most {(new[name].double() - old[name].double()).abs().max():.3g}"
    return None


def in_folders(old: Path, new: Path) -> str | None:
    """Return the first file that differs in a byte, and where: a row and column, a tensor, pixels."""
    paths = [path.relative_to(one).as_posix() for one in (old, new) for path in one.rglob("*") if path.is_file()]
    for name in sorted(set(paths), key=lambda name: (Path(name).name == SUMS, name)):
        a, b = old / name, new / name
        if Path(name).name == NAME:
            continue
        if not a.is_file() or not b.is_file():
            return f"{name}, which is {'new' if b.is_file() else 'missing'}"
        if a.read_bytes() != b.read_bytes():
            return f"{name}: {_in_files(a, b) or 'other bytes'}"
    return None


def _in_files(old: Path, new: Path) -> str | None:
    match old.suffix:
        case ".csv":
            return in_values(_rows(old), _rows(new))
        case ".json":
            return in_values(read_json(old), read_json(new))
        case ".safetensors":
            return in_tensors(load_file(old), load_file(new))
        case ".zip":
            with TemporaryDirectory() as folder:
                sides = [Path(folder, name) for name in ("old", "new")]
                for archive, side in zip((old, new), sides, strict=True):
                    shutil.unpack_archive(archive, side)
                return in_folders(*sides)
        case ".png" | ".jpg":
            a, b = (np.asarray(read_picture(path), np.int64) for path in (old, new))
            if a.shape == b.shape and (differs := (a != b).reshape(*a.shape[:2], -1).any(axis=2)).any():
                return f"{differs.sum()} of {differs.size} pixels, by at most {np.abs(a - b).max()}"
    return None


def _rows(path: Path) -> dict[str, dict[str, Any]]:
    first = path.read_text(encoding="utf-8").partition("\n")[0].partition(",")[0]
    return {
        f"row {number}": {key: float(text) if NUMBER.fullmatch(text) else text for key, text in row.items()}
        for number, row in enumerate(read_rows(path, first), 1)
    }


def in_iterations(old: Path, new: Path) -> tuple[int, str] | None:
    """Return the first iteration that differs in the notes of two trainings (probe.py), and in what."""
    rows = [[json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()] for folder in (old, new)]
    for a, b in zip(*rows, strict=False):
        if found := in_values(a["row"], b["row"]) or in_values(a["weights"], b["weights"], "sum of"):
            return int(a["row"]["step"]), found
    if len(rows[0]) != len(rows[1]):
        return len(rows[0]), f"{len(rows[0])} iterations, now {len(rows[1])}"
    return None
