"""Pictures of the report: scaled to what a page shows, as WebP."""

import base64
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from figura.base.errors import CHECKOUT, REPRO, UserError
from figura.base.files import read_bytes
from figura.base.pictures import Pixels, decode_picture

WIDEST = 1400  # pixels; a wider picture is scaled down
HIGHEST = 8000  # pixels; WebP takes no more than 16,383
QUALITY = 80


@dataclass(frozen=True)
class Picture:
    """A picture of the page.

    Attributes:
        title: what the caption says.
        alt: what somebody reads who cannot see it.
        content: of the file, WebP.
        width: pixels.
        height: pixels.
        name: of the file, without folder.
    """

    title: str
    alt: str
    content: bytes
    width: int
    height: int
    name: str

    @property
    def address(self) -> str:
        """The picture as an address that holds all of it."""
        return f"data:image/webp;base64,{base64.b64encode(self.content).decode('ascii')}"


def picture_of(path: Path, title: str, alt: str, widest: int = WIDEST) -> Picture:
    """Read a PNG or JPEG file. Raises UserError if it is missing or damaged."""
    pixels = decode_picture(read_bytes(path, f"run `{REPRO}`, or `{CHECKOUT}`"), path)
    height, width = pixels.shape[:2]
    scale = min(widest / width, HIGHEST / height)
    if scale < 1:
        height, width = max(1, round(height * scale)), max(1, round(width * scale))
        pixels = np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)
    name = "--".join([*path.parts[-3:-1], f"{path.stem}.webp"])
    return Picture(title, alt, as_webp(pixels), width, height, name)


def as_webp(pixels: Pixels) -> bytes:
    """Return a picture (H, W, 3), RGB, as the content of a WebP file. Raises UserError if it is too large for WebP."""
    done, encoded = cv2.imencode(".webp", np.ascontiguousarray(pixels[..., ::-1]), [cv2.IMWRITE_WEBP_QUALITY, QUALITY])
    if not done:
        raise UserError(f"a picture of {pixels.shape[1]} x {pixels.shape[0]} pixels cannot be written as WebP")
    return encoded.tobytes()
