"""Records and images of a prepared people dataset, for each that reads one."""

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.pictures import decode_bgr
from figura.formats.prepared import Manifest
from figura.formats.records import UnusableError, check_size


class Texts:
    """A list of short strings in one block of bytes: without Python objects, so forked processes share the memory."""

    def __init__(self) -> None:
        self._block = bytearray()
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, text: str) -> None:
        """Add a text at the end."""
        self._block += text.encode(errors="surrogatepass")
        self._ends.append(len(self._block))

    def __getitem__(self, index: int) -> str:
        return self._block[self._ends[index] : self._ends[index + 1]].decode(errors="surrogatepass")


def read_stored(manifest: Manifest, path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Read an image of a prepared dataset, BGR uint8 `(height, width, 3)`.

    Raises:
        UserError: it cannot be read, differs from what `prepare` wrote, or does not have this `size` (height, width).
    """
    # Annotations refer to the stored pixels; without the flag OpenCV would rotate images by their EXIF tag.
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    image = decode_bgr(manifest.read_bytes(path), path, flags, manifest.advice)
    if image.shape[:2] != size:
        height, width = size
        raise UserError(
            f"{path}: is {image.shape[1]} x {image.shape[0]} pixels, but its annotations promise {width} x {height}; "
            f"{manifest.advice}"
        )
    return image


def image_fault(record: Mapping[str, Any]) -> str | None:
    """Return what is wrong with an image's record, or None if it has a name and a size."""
    if not isinstance(record.get("file_name"), str) or ".." in Path(record["file_name"]).parts:
        return f"file_name: found {repr(record.get('file_name'))[:80]}; a path below images is needed"
    try:
        check_size(record)
    except UnusableError as fault:
        return str(fault)
    return None
