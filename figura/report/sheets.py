"""Convert values to pixels, lay out images as labelled sheets, and write them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.files import write_bytes
from figura.base.pictures import encode_jpeg, write_png
from figura.base.raw_pictures import read_picture
from figura.dump import Dump

Pixels = NDArray[np.uint8]
Values = NDArray[np.float32]
BAR = 18  # pixels per line of text
FONT, SIZE = cv2.FONT_HERSHEY_SIMPLEX, 0.42
MARGIN = 2  # pixels at either end of a line
LONGEST = 65_500  # pixels on a side of a JPEG


def as_pixels(images: Values) -> Pixels:
    """Convert (N, 3 or 1, H, W) in [-1, 1] to (N, H, W, 3) uint8, rounded to nearest; values outside are clipped."""
    pixels = np.rint((images.clip(-1, 1) + 1) * 127.5).astype(np.uint8).transpose(0, 2, 3, 1)
    return np.repeat(pixels, 3, axis=3) if pixels.shape[3] == 1 else pixels


def pixels_of(rows: Dump, place: int, name: str) -> Pixels:
    """Return one file of a dump row as a picture (H, W, 3). Raises UserError if it is not a picture."""
    value = rows.value(place, name)
    if value.ndim != 3 or value.shape[0] not in (1, 3) or value.size == 0:
        raise UserError(f"{rows.folder}: {name!r} has the shape {value.shape}; a picture is (3 or 1, height, width)")
    return as_pixels(value[None])[0]


def side_by_side(
    rows: Sequence[Sequence[Any]], titles: Sequence[str], gap: int = 2, cell: int = 96, labels: Sequence[str] = ()
) -> Pixels:
    """Lay out images (H, W, 3) in rows under column titles, each row under its label, if any.

    Long titles and labels are wrapped. Cells have the largest image's size, or the smallest multiple of it that is at
    least `cell` pixels high. Each image is enlarged by the largest integer factor that fits; a row is as high as its
    highest image.
    """
    images = [image for row in rows for image in row]
    height, width = (max(image.shape[axis] for image in images) for axis in (0, 1))
    factor = max(1, -(-cell // height))
    height, width = height * factor, width * factor
    full = len(titles) * (width + gap)
    headings = [wrapped(title, width) for title in titles]
    top_bar = BAR * max(len(lines) for lines in headings)
    written = [wrapped(label, full) for label in labels] or [[] for _ in rows]
    enlarged = []
    for cells in rows:
        factors = [min(height // image.shape[0], width // image.shape[1]) for image in cells]
        enlarged.append(
            [
                np.repeat(np.repeat(image, times, axis=0), times, axis=1)
                for image, times in zip(cells, factors, strict=True)
            ]
        )
    heights = [
        BAR * len(lines) + max(image.shape[0] for image in cells) + gap
        for lines, cells in zip(written, enlarged, strict=True)
    ]
    sheet = np.full((top_bar + sum(heights), full, 3), 255, np.uint8)
    for column, lines in enumerate(headings):
        _write(sheet, lines, column * (width + gap), 0)
    for row, (lines, cells) in enumerate(zip(written, enlarged, strict=True)):
        y = top_bar + sum(heights[:row])
        _write(sheet, lines, 0, y)
        for column, image in enumerate(cells):
            x, top = column * (width + gap), y + BAR * len(lines)
            sheet[top : top + image.shape[0], x : x + image.shape[1]] = image
    return sheet


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` pixels.

    Lines break at double spaces, if there are any, else between words, and inside words longer than a line.
    """
    blank, lines = "  " if "  " in text else " ", [""]
    for part in text.split(blank):
        if lines[-1] and _fits(f"{lines[-1]}{blank}{part}", width):
            lines[-1] += f"{blank}{part}"
        else:
            lines.append(part)
        while not _fits(lines[-1], width) and len(lines[-1]) > 1:
            end = next(end for end in range(len(lines[-1]) - 1, 0, -1) if end == 1 or _fits(lines[-1][:end], width))
            lines[-1:] = [lines[-1][:end], lines[-1][end:]]
    return lines[1:]


def _fits(text: str, width: int) -> bool:
    (length, _), _ = cv2.getTextSize(text, FONT, SIZE, 1)
    return length + 2 * MARGIN <= width


def _write(sheet: Pixels, lines: Sequence[str], x: int, y: int) -> None:
    """Write lines of text, with the upper left corner of the first at (x, y)."""
    for index, line in enumerate(lines):
        cv2.putText(sheet, line, (x + MARGIN, y + index * BAR + 13), FONT, SIZE, (0, 0, 0), 1, cv2.LINE_AA)


def finish(path: Path, header: str, suffix: Literal[".png", ".jpg"]) -> None:
    """Write a text, if any, above the picture in a PNG file; with `.jpg`, convert it to a JPEG of this name.

    Raises:
        UserError: the file is missing or not a picture, or too large for a JPEG.
    """
    if not header and suffix == ".png":
        return
    picture = read_picture(path, advice="a plot's code must write a picture there")
    picture = with_header(picture, header) if header else picture
    if suffix == ".png":
        write_png(path, picture)
        return
    height, width = picture.shape[:2]
    if max(height, width) > LONGEST:
        raise UserError(f"{path}: {width} x {height} pixels; a JPEG has at most {LONGEST} a side: show fewer examples")
    write_bytes(path.with_suffix(suffix), encode_jpeg(picture))
    path.unlink()


def with_header(picture: Pixels, text: str) -> Pixels:
    """Return a picture (H, W, 3) below a text, in as many lines as its width needs."""
    lines = wrapped(text, picture.shape[1])
    bar = np.full((BAR * len(lines), picture.shape[1], 3), 255, np.uint8)
    _write(bar, lines, 0, 0)
    return np.concatenate([bar, picture])
