"""What is wrong with raw records, and where their files are."""

import os
from pathlib import Path
from typing import NamedTuple

from figura.data.formats.records import UnusableError

FORMATS = ("JPEG", "PNG", "BMP", "WEBP")
"""Formats that both Pillow and OpenCV read in process; for some others, Pillow starts programs."""


class Rejected(NamedTuple):
    """A row of `rejected.csv`: the annotation file, `image` or `annotation`, the record's id, and why."""

    file: str
    kind: str
    id: str
    reason: str
    detail: str


def inside(folder: Path, name: str, root: Path) -> Path:
    """Return `folder / name` with links resolved; raises UnusableError if it is outside `root`."""
    path = Path(os.path.realpath(folder / name))  # `resolve` raises RuntimeError for circular links
    if ".." in Path(name).parts or not path.is_relative_to(root.resolve()):
        raise UnusableError("path leaves the data root", name)
    return path


def identity(path: Path) -> str | None:
    """Return the resolved path of a file, equal for all its symbolic links, or None.

    Hard links are separate files: DVC's cache may create them for any equal files, only on one machine.
    """
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL, or an invalid surrogate
        return None
