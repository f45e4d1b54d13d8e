"""Image pairs on disk: find and read the pairs of a folder.

A folder has one of two layouts. If it has subfolders `a` and `b` (or `A` and `B`, or `LR` and `HR`), two images with
the same name (without suffix) are a pair, and other files are ignored. Otherwise every image in the folder is a pair: A
is its left half, B its right half. `split_folders` also finds the folders of a split as other tools lay them out.
"""

import os
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.files import read_bytes
from figura.base.links import real_path
from figura.base.pictures import SUFFIXES
from figura.base.raw_pictures import LARGEST, Reading, decode_raw

LAYOUTS = f"A|B images ({', '.join(SUFFIXES)}), or the folders a and b with files of the same names"

_SIDES = (("a", "b"), ("A", "B"), ("lr", "hr"), ("LR", "HR"))


@dataclass(frozen=True, slots=True)
class Pair:
    """`name` is the file name without suffix; `files` are an A|B image or those of A and B, relative to the folder."""

    name: str
    files: tuple[str, ...]


class Fault(NamedTuple):
    """Why a pair is unusable. `reason` is a fixed phrase, for counting; `file` is its first file, below the folder."""

    file: str
    reason: str
    detail: str


class Loaded(NamedTuple):
    """Both images, uint8 RGB `(height, width, 3)` of the same size, and of each file its bytes and what was read."""

    a: NDArray[np.uint8]
    b: NDArray[np.uint8]
    contents: tuple[bytes, ...]
    readings: tuple[Reading, ...]


def sides(folder: Path) -> tuple[str, ...]:
    """Return the names of the folders of A and of B in a folder, or `.` for A|B images."""
    return next((pair for pair in _SIDES if all((folder / side).is_dir() for side in pair)), (".",))


def split_folders(folder: Path) -> tuple[Path, tuple[str, ...]] | None:
    """Return the folder of a split's pairs, and the folders of A and B in it, for `find_pairs`; None if there are none.

    If there is no folder `train`, the pairs may be in `trainA` and `trainB`, or in `A/train` and `B/train`.
    """
    if folder.is_dir():
        return folder, sides(folder)
    name, parent = folder.name, folder.parent
    places = [
        tuple(form.format(name, side) for side in pair) for form in ("{}{}", "{}_{}", "{1}/{0}") for pair in _SIDES
    ]
    found = (pair for pair in places if all((parent / side).is_dir() for side in pair))
    return next(((parent, pair) for pair in found), None)


def find_pairs(
    folder: Path, root: Path, parts: tuple[str, ...] | None = None, archived: Collection[str] = ()
) -> tuple[list[Pair], list[Fault]]:
    """Return the pairs in `folder`, sorted by name, and the faults of the others; opens no file.

    No file may be outside `root`, also through links. `parts` are the folders of A and of B in it, or `.`; default: its
    `sides`. `archived` are the pairs' files in archives, relative to the folder, which then need not exist.
    """
    if parts is None and archived:
        parts = ("a", "b") if any("/" in file for file in archived) else (".",)
    parts = parts or sides(folder)
    for part in parts:
        if real_path(folder / part, root) is None:
            return [], [Fault(part, "path leaves the data root", _target(folder / part))]
    files = {part: _images(folder, part, archived) for part in parts}
    pairs: list[Pair] = []
    faults: list[Fault] = []
    for name in sorted(set().union(*files.values())):
        one = _pair(folder, name, {part: images.get(name, []) for part, images in files.items()}, root)
        if isinstance(one, Pair):
            pairs.append(one)
        else:
            faults.append(one)
    return pairs, faults


def _images(folder: Path, part: str, archived: Collection[str]) -> dict[str, list[str]]:
    """Return name without suffix -> image files in `folder / part`, relative to `folder`.

    Names are composed (NFC): macOS takes accents apart, so A and B of two machines may differ in bytes alone.
    """
    images: dict[str, list[str]] = {}
    names = {Path(file).name for file in archived if str(Path(file).parent) == part}
    if not archived or (folder / part).is_dir():
        with os.scandir(folder / part) as entries:
            names |= {entry.name for entry in entries if not os.path.isdir(entry.path)}
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in SUFFIXES and not name.startswith("."):
            images.setdefault(unicodedata.normalize("NFC", stem), []).append(name if part == "." else f"{part}/{name}")
    return images


def _pair(folder: Path, name: str, files: Mapping[str, list[str]], root: Path) -> Pair | Fault:
    first = min(file for same in files.values() for file in same)
    for part, same in files.items():
        if not same:
            return Fault(first, "missing partner", f"no image {name!r} in {part}")
        if len(same) > 1:
            return Fault(first, "two files with one name", ", ".join(sorted(same)))
        path = folder / same[0]
        if path.is_symlink() and real_path(path, root) is None:
            return Fault(first, "path leaves the data root", f"{same[0]} is a link to {_target(path)}")
    return Pair(name, tuple(same[0] for same in files.values()))


def _target(path: Path) -> str:
    return os.path.realpath(path)  # Path.resolve raises on circular links


def load_pair(folder: Path, pair: Pair, read: Callable[[Path], bytes] | None = None) -> Loaded | Fault:
    """Read and decode a pair, each file once, as `decode_raw` reads pictures.

    `read` returns the content of a file, or raises UserError; by default it reads regular files of at most 1 GiB.
    """
    contents, readings = [], []
    for file in pair.files:
        try:
            contents.append(read(folder / file) if read else read_bytes(folder / file, most=LARGEST))
            readings.append(decode_raw(contents[-1], folder / file))
        except UserError as error:
            return Fault(file, "image file unreadable", str(error).removeprefix(f"{folder / file}: "))
    images = [one.pixels for one in readings]
    if len(images) == 1:
        width = images[0].shape[1]
        if width % 2:
            return Fault(pair.files[0], "odd width", f"{_size(images)}; A and B are halves of one image")
        images = [images[0][:, : width // 2], images[0][:, width // 2 :]]
    if images[0].shape != images[1].shape:
        low = Path(pair.files[0]).parent.name.lower() == "lr"
        cure = "; super-resolution takes HR alone, a dataset of kind images" if low else ""
        return Fault(pair.files[0], f"A and B differ in size{cure}", f"{_size(images)}")
    return Loaded(images[0], images[1], tuple(contents), tuple(readings))


def _size(images: Sequence[NDArray[np.uint8]]) -> str:
    return " and ".join(f"{image.shape[1]} x {image.shape[0]}" for image in images)


def with_channels(image: NDArray[np.uint8], channels: Literal[1, 3]) -> NDArray[np.uint8]:
    """Return RGB `(height, width, 3)` or grey `(height, width, 1)`, 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601)."""
    if channels == 3:
        return image
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY), dtype=np.uint8)[..., None]
