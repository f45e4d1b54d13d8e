"""What people predict from: paths, folders, patterns, arrays, PIL pictures, and lists or iterators of them."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from models.base.errors import UserError
from models.base.pictures import Pixels
from models.prediction.inputs import File, Photo, find_files, read_photos


def photos_from(images: Any, every: int, report: Callable[[str], None]) -> Iterator[Photo]:
    """Yield the photos of images, numbered from 1; of a video, each `every`-th frame. `Predictor.predict` says what
    images may be.

    Raises:
        UserError: something is no image, or a path names nothing.
    """
    number, names = 0, set[str]()
    for source in _sources(images, "images"):
        photos: Iterable[Photo]
        if isinstance(source, File):
            photos = read_photos([source], every, report)
        else:
            name = f"{number + 1:06d}"
            photos = [Photo(Path(name), name, number + 1, frame=source)]
        for photo in photos:
            number += 1
            name = f"{photo.name}-{number:06d}" if photo.name in names else photo.name
            names.add(name)
            yield replace(photo, name=name, number=number)


def _sources(images: Any, what: str) -> Iterator[File | Pixels]:
    if _is_path(images):
        yield from find_files([os.fspath(images)])
    elif isinstance(images, np.ndarray):
        yield from _pixels(images, what)
    elif isinstance(images, Image.Image):
        yield _converted(images, what)
    elif isinstance(images, Sequence) and all(map(_is_path, images)) and not isinstance(images, bytes):
        yield from find_files([os.fspath(one) for one in images])
    elif isinstance(images, Iterable) and type(images).__module__.partition(".")[0] != "torch":
        for place, one in enumerate(images):
            yield from _sources(one, f"{what}[{place}]")
    else:
        raise UserError(f"{what}: found {type(images).__name__}; {ALLOWED}")


ALLOWED = "allowed are paths, uint8 RGB arrays (height, width, 3), PIL pictures, and lists or iterators of them"


def _is_path(one: Any) -> bool:
    return isinstance(one, (str, os.PathLike))


def _pixels(array: np.ndarray[Any, Any], what: str) -> Iterator[Pixels]:
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or array.shape[-1] != 3 or 0 in array.shape[-3:]:
        raise UserError(f"{what}: found an array of {array.dtype} {array.shape}; {ALLOWED}, or (N, height, width, 3)")
    yield from map(np.array, array if array.ndim == 4 else array[None])  # copies: callers refill buffers


def _converted(picture: Image.Image, what: str) -> Pixels:
    """Return the pixels of a picture as files of it are read: upright, in RGB, without transparency."""
    if picture.mode in ("I", "F"):
        raise UserError(f"{what}: found a PIL picture of mode {picture.mode}, whose range is not known; {ALLOWED}")
    try:
        upright = ImageOps.exif_transpose(picture)
        if upright.mode.startswith("I;16"):  # Pillow would clip, where readers of files take the upper byte
            return np.repeat((np.asarray(upright) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
        return np.array(upright.convert("RGB"), dtype=np.uint8)
    except (OSError, ValueError) as error:  # read when asked for
        raise UserError(f"{what}: no readable picture: {error}") from None
