"""Pictures of 8 bits as bytes: OpenCV encodes and decodes in memory, so that a full disk or an odd name is an error."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError
from models.base.files import read_bytes, write_bytes

Pixels = NDArray[np.uint8]


def write_png(path: Path, pixels: Pixels) -> None:
    """Write (H, W, 3) RGB or (H, W) or (H, W, 1) pixels as PNG, atomically.

    `cv2.imwrite` reports a full disk by a return value alone, and crashes on names that are no UTF-8.
    """
    ordered = pixels[..., ::-1] if pixels.ndim == 3 else pixels
    _, content = cv2.imencode(".png", np.ascontiguousarray(ordered))
    write_bytes(path, content.tobytes())


def read_picture(path: Path, flags: int = cv2.IMREAD_COLOR, advice: str = "") -> Pixels:
    """Return pixels as `cv2.imread` does with these flags, but RGB: (H, W, 3), (H, W, 4) or (H, W).

    Raises:
        UserError: no regular file, or no picture that OpenCV can read.
    """
    content = np.frombuffer(read_bytes(path, advice), np.uint8)
    try:
        pixels = cv2.imdecode(content, flags) if len(content) else None
    except cv2.error:  # more pixels than OpenCV takes
        pixels = None
    if pixels is None:
        end = f"; {advice}" if advice else ""
        raise UserError(f"{path}: no readable picture: it is empty, damaged, too large or of another kind{end}")
    if pixels.ndim == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB if pixels.shape[2] == 3 else cv2.COLOR_BGRA2RGBA)
    return np.asarray(pixels, dtype=np.uint8)
