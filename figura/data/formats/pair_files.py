"""Image pairs on disk: find and read the pairs of a folder.

A folder has one of two layouts. If it has subfolders `a` and `b`, two images with the same name (without suffix) are a
pair, and other files are ignored. Otherwise every image in the folder is a pair: A is its left half, B its right half.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.files import read_bytes
from figura.base.pictures import LARGEST, decode_picture

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""Suffixes of images, in upper or lower case; other files and hidden files are skipped."""

LAYOUTS = f"A|B images ({', '.join(SUFFIXES)}), or the folders a and b with files of the same names"


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
    """Both images, uint8 RGB `(height, width, 3)` of the same size, and the bytes of each file."""

    a: NDArray[np.uint8]
    b: NDArray[np.uint8]
    contents: tuple[bytes, ...]


def find_pairs(folder: Path, root: Path) -> tuple[list[Pair], list[Fault]]:
    """Return the pairs in `folder`, sorted by name, and the faults of the others; opens no file.

    No file may be outside `root`, also through links. `folder` must exist.
    """
    parts = ("a", "b") if (folder / "a").is_dir() and (folder / "b").is_dir() else (".",)
    for part in parts:
        if _leaves(folder / part, root):
            return [], [Fault(part, "path leaves the data root", _target(folder / part))]
    files = {part: _images(folder, part) for part in parts}
    pairs: list[Pair] = []
    faults: list[Fault] = []
    for name in sorted(set().union(*files.values())):
        one = _pair(folder, name, {part: images.get(name, []) for part, images in files.items()}, root)
        if isinstance(one, Pair):
            pairs.append(one)
        else:
            faults.append(one)
    return pairs, faults


def _images(folder: Path, part: str) -> dict[str, list[str]]:
    """Return name without suffix -> image files in `folder / part`, relative to `folder`."""
    images: dict[str, list[str]] = {}
    with os.scandir(folder / part) as entries:
        for entry in entries:
            stem, suffix = os.path.splitext(entry.name)
            if suffix.lower() in SUFFIXES and not entry.name.startswith(".") and not os.path.isdir(entry.path):
                images.setdefault(stem, []).append(entry.name if part == "." else f"{part}/{entry.name}")
    return images


def _pair(folder: Path, name: str, files: Mapping[str, list[str]], root: Path) -> Pair | Fault:
    first = min(file for same in files.values() for file in same)
    for part, same in files.items():
        if not same:
            return Fault(first, "missing partner", f"no image {name!r} in {part}")
        if len(same) > 1:
            return Fault(first, "two files with one name", ", ".join(sorted(same)))
        path = folder / same[0]
        if path.is_symlink() and _leaves(path, root):
            return Fault(first, "path leaves the data root", f"{same[0]} is a link to {_target(path)}")
    return Pair(name, tuple(same[0] for same in files.values()))


def _leaves(path: Path, root: Path) -> bool:
    return not Path(_target(path)).is_relative_to(_target(root))


def _target(path: Path) -> str:
    return os.path.realpath(path)  # Path.resolve raises on circular links


def load_pair(folder: Path, pair: Pair, read: Callable[[Path], bytes] | None = None) -> Loaded | Fault:
    """Read and decode a pair, each file once; scales 16 bits to 8, ignores transparency and EXIF orientation.

    `read` returns the content of a file, or raises UserError; by default it reads regular files of at most 1 GiB.
    """
    contents, images = [], []
    for file in pair.files:
        try:
            contents.append(read(folder / file) if read else read_bytes(folder / file, most=LARGEST))
        except UserError as error:
            return Fault(file, "image file unreadable", str(error).removeprefix(f"{folder / file}: "))
        try:
            flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
            images.append(decode_picture(contents[-1], folder / file, flags))
        except UserError:
            return Fault(file, "image file unreadable", "damaged, too large, or no image of 8 or 16 bits a channel")
    if len(images) == 1:
        width = images[0].shape[1]
        if width % 2:
            return Fault(pair.files[0], "odd width", f"{_size(images)}; A and B are halves of one image")
        images = [images[0][:, : width // 2], images[0][:, width // 2 :]]
    if images[0].shape != images[1].shape:
        return Fault(pair.files[0], "A and B differ in size", f"{_size(images)}")
    return Loaded(images[0], images[1], tuple(contents))


def _size(images: Sequence[NDArray[np.uint8]]) -> str:
    return " and ".join(f"{image.shape[1]} x {image.shape[0]}" for image in images)


def with_channels(image: NDArray[np.uint8], channels: Literal[1, 3]) -> NDArray[np.uint8]:
    """Return RGB `(height, width, 3)` or grey `(height, width, 1)`, 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601)."""
    if channels == 3:
        return image
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY), dtype=np.uint8)[..., None]
