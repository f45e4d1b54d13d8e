"""8-bit pictures: OpenCV only encodes and decodes in memory, so that a full disk or an odd name raises an error."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.files import read_bytes, write_bytes

Pixels = NDArray[np.uint8]

LARGEST = 1 << 30
"""Maximum bytes of a picture file."""
QUALITY = 90
"""JPEG quality in percent; lines and text look as in PNG."""


def write_png(path: Path, pixels: Pixels) -> None:
    """Write (H, W, 3) RGB or (H, W) or (H, W, 1) pixels as PNG, atomically.

    `cv2.imwrite` reports a full disk only by its return value, and crashes on names that are not UTF-8.
    """
    write_bytes(path, encode_png(pixels))


def encode_png(pixels: Pixels) -> bytes:
    """Return (H, W, 3) RGB or (H, W) or (H, W, 1) pixels as the content of a PNG file."""
    whole = np.ascontiguousarray(pixels)
    _, content = cv2.imencode(".png", cv2.cvtColor(whole, cv2.COLOR_RGB2BGR) if pixels.shape[2:] == (3,) else whole)
    return content.tobytes()


def encode_jpeg(pixels: Pixels) -> bytes:
    """Return (H, W, 3) RGB pixels as the content of a JPEG file."""
    _, content = cv2.imencode(".jpg", np.ascontiguousarray(pixels[..., ::-1]), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return content.tobytes()


def read_picture(path: Path, flags: int = cv2.IMREAD_COLOR, advice: str = "") -> Pixels:
    """Return pixels like `cv2.imread` with these flags, but RGB: (H, W, 3), (H, W, 4) or (H, W).

    Raises:
        UserError: not a regular file, or not an 8-bit picture that OpenCV can read.
    """
    return decode_picture(read_bytes(path, advice, LARGEST), path, flags, advice)


def decode_picture(content: bytes, path: Path, flags: int = cv2.IMREAD_COLOR, advice: str = "") -> Pixels:
    """Return the pixels of a file's content, like `read_picture`; `path` is for messages."""
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
