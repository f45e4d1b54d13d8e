"""Pictures that people send: decoded in memory, within limits that are checked before anything is decoded."""

from pathlib import Path

from figura.base.errors import UserError
from figura.base.pictures import SUFFIXES, Pixels, decode_raw

LARGEST_FILE = 32 << 20
"""Bytes."""
LARGEST_PIXELS = 64_000_000
"""Pixels; `figura predict` takes four times as many, but here somebody waits, and others use the same memory."""
KINDS = f"images end in {', '.join(SUFFIXES)}"


def uploaded_picture(name: str, content: bytes) -> Pixels:
    """Return the RGB pixels (H, W, 3) of a picture that somebody sent under this name.

    Raises:
        UserError: the name has another suffix, the file or the picture is too large, or it is no readable picture.
    """
    name = Path(name).name or "the file"
    if Path(name).suffix.lower() not in SUFFIXES:
        raise UserError(f"{name}: no picture by its name; {KINDS}")
    refuse_large(name, len(content))
    return decode_raw(content, Path(name), advice=KINDS, most=LARGEST_PIXELS).pixels


def refuse_large(name: str, length: int) -> None:
    """Raise UserError if a file has more than `LARGEST_FILE` bytes."""
    if length > LARGEST_FILE:
        raise UserError(f"{name}: has {length:,} bytes; at most {LARGEST_FILE:,} are allowed")
