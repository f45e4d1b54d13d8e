"""Inputs of the API: paths, folders, patterns, arrays, PIL pictures, and lists or iterators of them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from figura.base.pictures import Pixels
from figura.prediction.inputs import File, Photo, find_files, read_photos


def photos_from(images: Any, every: int, report: Callable[[str], None]) -> Iterator[Photo]:
    """Yield the photos of images, numbered from 1, with unique names; for a video, each `every`-th frame.

    For the types of images, see `Predictor.predict`. Non-images, unreadable images and missing files go to `report`.
    """
    number, names = 0, set[str]()
    for source in _sources(images, "images", report):
        photos: Iterable[Photo]
        if source is None:
            photos = []
        elif isinstance(source, File):
            photos = read_photos([source], every, report)
        else:
            name = f"{number + 1:06d}"
            photos = [Photo(Path(name), name, number + 1, frame=source)]
        before = number
        for photo in photos:
            number += 1
            name = photo.name
            while name in names:  # the longer name may be taken by a file, too
                name = f"{name}-{number:06d}"
            names.add(name)
            yield replace(photo, name=name, number=number)
        number = max(number, before + 1)  # a video without frames counts, too


def _sources(images: Any, what: str, report: Callable[[str], None]) -> Iterator[File | Pixels | None]:
    """Yield files and pixels; None for reported images, whose number is not reused."""
    if _is_path(images):
        yield from find_files([os.fspath(images)], report=report) or (None,)
    elif isinstance(images, np.ndarray):
        yield from _pixels(images, what, report)
    elif isinstance(images, Image.Image):
        yield _converted(images, what, report)
    elif not _is_collection(images):
        kind = repr(images) if isinstance(images, str) else type(images).__name__
        report(f"{what}: found {kind}; {ALLOWED}")
        yield None
    elif isinstance(images, Sequence) and all(map(_is_path, images)):
        yield from find_files([os.fspath(one) for one in images], report=report)
    else:
        for place, one in enumerate(images):
            yield from _sources(one, f"{what}[{place}]", report)


ALLOWED = "allowed are paths, uint8 RGB arrays (height, width, 3), PIL pictures, and lists or iterators of them"


def _is_path(one: Any) -> bool:
    """Whether this is a path; an empty string would be the working folder."""
    return isinstance(one, (str, os.PathLike)) and isinstance(os.fspath(one), str) and os.fspath(one) != ""


def _is_collection(one: Any) -> bool:
    """Whether its items may be images, unlike those of strings, bytes, mappings, tables, open files and tensors."""
    if isinstance(one, (str, bytes, bytearray, memoryview, Mapping)) or hasattr(one, "columns") or hasattr(one, "read"):
        return False
    return isinstance(one, Iterable) and type(one).__module__.partition(".")[0] != "torch"


def _pixels(array: np.ndarray[Any, Any], what: str, report: Callable[[str], None]) -> Iterator[Pixels | None]:
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or array.shape[-1] != 3 or 0 in array.shape[-3:]:
        report(f"{what}: found an array of {array.dtype} {array.shape}; {ALLOWED}, or (N, height, width, 3)")
        yield None
        return
    yield from map(np.array, array if array.ndim == 4 else array[None])  # copies: callers refill buffers


def _converted(picture: Image.Image, what: str, report: Callable[[str], None]) -> Pixels | None:
    """Return the pixels of a picture, or None after reporting it."""
    fault = f"found a PIL picture of mode {picture.mode}, whose range is not known; {ALLOWED}"
    if 0 in picture.size:
        fault = "found a PIL picture of {} x {} pixels; at least one is needed".format(*picture.size)
    elif picture.mode not in ("I", "F"):
        try:
            return _upright(picture)
        except Exception as error:  # noqa: BLE001  # read when asked for; of a damaged one, Pillow raises anything
            fault = f"no readable picture: {error or type(error).__name__}"
    report(f"{what}: {fault}")
    return None


def _upright(picture: Image.Image) -> Pixels:
    """Return the pixels of a picture as if read from a file: upright, in RGB, without transparency."""
    upright = ImageOps.exif_transpose(picture)
    if upright.mode.startswith("I;16"):  # Pillow would clip; file readers take the upper byte
        return np.repeat((np.asarray(upright) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    return np.array(upright.convert("RGB"), dtype=np.uint8)
