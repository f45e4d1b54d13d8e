"""Pictures that people send: decoded in memory, within limits that are checked before anything is decoded."""

import warnings
from io import BytesIO
from pathlib import Path

from PIL import Image

from figura.base.errors import UserError
from figura.base.pictures import Pixels, decode_picture
from figura.prediction.inputs import IMAGES

LARGEST_FILE = 32 << 20
"""Bytes."""
LARGEST_PIXELS = 64_000_000
"""Pixels; `figura predict` takes four times as many, but here somebody waits, and others use the same memory."""
KINDS = f"images end in {', '.join(IMAGES)}"
FORMATS = ("BMP", "JPEG", "PNG", "TIFF", "WEBP")


def uploaded_picture(name: str, content: bytes) -> Pixels:
    """Return the RGB pixels (H, W, 3) of a picture that somebody sent under this name.

    Raises:
        UserError: the name has another suffix, the file or the picture is too large, or it is no readable picture.
    """
    name = Path(name).name or "the file"
    if Path(name).suffix.lower() not in IMAGES:
        raise UserError(f"{name}: no picture by its name; {KINDS}")
    refuse_large(name, len(content))
    _refuse_many_pixels(name, content)
    return decode_picture(content, Path(name), advice=KINDS)


def refuse_large(name: str, length: int) -> None:
    """Raise UserError if a file has more than `LARGEST_FILE` bytes."""
    if length > LARGEST_FILE:
        raise UserError(f"{name}: has {length:,} bytes; at most {LARGEST_FILE:,} are allowed")


def _refuse_many_pixels(name: str, content: bytes) -> None:
    """Raise UserError if the header says too many pixels; what has no header that is known, decoding refuses."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(BytesIO(content), formats=FORMATS) as picture:
                width, height = picture.size
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        said = str(error).partition("(")[2].partition(" ")[0]  # "Image size (100000000 pixels) exceeds ..."
        count = int(said) if said.isdecimal() else LARGEST_PIXELS + 1
    except Exception:  # noqa: BLE001  # of damaged headers, Pillow raises whatever its readers meet
        return
    else:
        count = width * height
    if count > LARGEST_PIXELS:
        raise UserError(
            f"{name}: has {count / 1e6:.0f} megapixels; at most {LARGEST_PIXELS / 1e6:.0f} are allowed; make it smaller"
        )
