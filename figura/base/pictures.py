"""Read and write our 8-bit pictures; `raw_pictures` reads those of others.

OpenCV only encodes and decodes in memory, so that a full disk or an odd name raises an error.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.files import write_bytes

Pixels = NDArray[np.uint8]

SUFFIXES = (
    ".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo", ".png", ".tif", ".tiff", ".webp",
)  # fmt: skip
"""Suffixes of pictures, in upper or lower case. They choose the files of a folder; the content tells the format."""
VIDEOS = (".avi", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".webm", ".wmv")
"""Suffixes of videos, likewise."""

QUALITY = 90  # JPEG quality in percent; lines and text look as in PNG


def picture_files(folder: Path, left_out: Counter[str] | None = None, without: Path | None = None) -> Iterator[str]:
    """Yield the image files below a folder as paths relative to it; hidden files and folders are skipped.

    Files come sorted, those of a folder before those of the folders in it. Other files, and links to folders, which are
    not followed, are counted in `left_out`. The folder `without` is skipped.
    """
    skipped = os.path.realpath(without) if without else ""
    for parent, folders, files in os.walk(folder):
        shown = (name for name in folders if not name.startswith("."))
        folders[:] = sorted(name for name in shown if os.path.realpath(os.path.join(parent, name)) != skipped)
        if left_out is not None:
            links = sum(os.path.islink(os.path.join(parent, name)) for name in folders)
            left_out += other_files(files) + Counter({"links to folders": links})
        for name in sorted(files):
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES:
                yield Path(parent, name).relative_to(folder).as_posix()


def other_files(names: Iterable[str]) -> Counter[str]:
    """Count the names of files that are no pictures, by suffix; hidden ones do not count."""
    suffixes = (os.path.splitext(name)[1].lower() for name in names if not name.startswith("."))
    return Counter(f"files of {suffix or 'no suffix'}" for suffix in suffixes if suffix not in SUFFIXES)


def left_out_line(counts: Counter[str]) -> str:
    """Return a line about files that are left out, by what they are."""
    return "left out: " + ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))


def write_png(path: Path, pixels: Pixels) -> None:
    """Write (H, W, 3) RGB or (H, W) or (H, W, 1) pixels as PNG, atomically.

    `cv2.imwrite` reports a full disk only by its return value, and crashes on names that are not UTF-8.
    """
    write_bytes(path, encode_png(pixels))


def shrunk(pixels: Pixels, longest: int) -> Pixels:
    """Return a picture whose longer side has at most `longest` pixels."""
    height, width = pixels.shape[:2]
    if max(height, width) <= longest:
        return pixels
    size = [max(1, round(side * longest / max(height, width))) for side in (width, height)]
    return np.asarray(cv2.resize(pixels, (size[0], size[1]), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def encode_png(pixels: Pixels) -> bytes:
    """Return (H, W, 3) RGB or (H, W) or (H, W, 1) pixels as the content of a PNG file."""
    whole = np.ascontiguousarray(pixels)
    _, content = cv2.imencode(".png", cv2.cvtColor(whole, cv2.COLOR_RGB2BGR) if pixels.shape[2:] == (3,) else whole)
    return content.tobytes()


def encode_jpeg(pixels: Pixels) -> bytes:
    """Return (H, W, 3) RGB pixels as the content of a JPEG file."""
    _, content = cv2.imencode(".jpg", np.ascontiguousarray(pixels[..., ::-1]), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return content.tobytes()


def decode_picture(content: bytes, path: Path, flags: int = cv2.IMREAD_COLOR, advice: str = "") -> Pixels:
    """Return the pixels of a file of our own like `cv2.imdecode`, but RGB: (H, W, 3), (H, W, 4) or (H, W).

    `path` and `advice` are for messages.

    Raises:
        UserError: not an 8-bit picture that OpenCV can read.
    """
    pixels = decode_bgr(content, path, flags, advice)
    if pixels.ndim == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB if pixels.shape[2] == 3 else cv2.COLOR_BGRA2RGBA)
    return np.asarray(pixels, dtype=np.uint8)


def decode_bgr(content: bytes, path: Path, flags: int = cv2.IMREAD_COLOR, advice: str = "") -> Pixels:
    """Like `decode_picture`, but in OpenCV's order: BGR or BGRA."""
    end = f"; {advice}" if advice else ""
    try:
        pixels = cv2.imdecode(np.frombuffer(content, np.uint8), flags) if content else None
    except cv2.error:  # more pixels than OpenCV supports
        pixels = None
    if pixels is None:
        raise UserError(f"{path}: no readable picture: it is empty, damaged, too large or of another kind{end}")
    if pixels.dtype != np.uint8:
        raise UserError(f"{path}: values of {pixels.dtype}: a picture of 8 bits is needed{end}")
    return np.asarray(pixels, dtype=np.uint8)
