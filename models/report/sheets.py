"""Converts tensors to pixels, lays images out as labelled sheets, and writes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.base.files import replacing

Pixels = NDArray[np.uint8]
BAR = 18  # pixels of a line of text


def as_pixels(images: Tensor) -> Pixels:
    """Turn (N, 3 or 1, H, W) in [-1, 1] into (N, H, W, 3) uint8, rounded to nearest; values outside are clipped."""
    levels = ((images.detach().float().cpu().clamp(-1, 1) + 1) * 127.5).round()
    pixels = levels.numpy().astype(np.uint8).transpose(0, 2, 3, 1)
    return np.repeat(pixels, 3, axis=3) if pixels.shape[3] == 1 else pixels


def side_by_side(
    rows: Sequence[Sequence[Any]], titles: Sequence[str], gap: int = 2, cell: int = 96, labels: Sequence[str] = ()
) -> Pixels:
    """Lay images (H, W, 3) out in rows under column titles, each row under its label if there are labels.

    Cells have the largest image's size, or the smallest multiple of it that is at least `cell` pixels high. Each image
    is enlarged by the largest integer with which it fits; a row is then as high as the highest of its images.
    """
    images = [image for row in rows for image in row]
    height, width = (max(image.shape[axis] for image in images) for axis in (0, 1))
    factor = max(1, -(-cell // height))
    height, width = height * factor, width * factor
    label_bar, enlarged = BAR if labels else 0, []
    for cells in rows:
        factors = [min(height // image.shape[0], width // image.shape[1]) for image in cells]
        enlarged.append(
            [
                np.repeat(np.repeat(image, times, axis=0), times, axis=1)
                for image, times in zip(cells, factors, strict=True)
            ]
        )
    heights = [label_bar + max(image.shape[0] for image in cells) + gap for cells in enlarged]
    sheet = np.full((BAR + sum(heights), len(titles) * (width + gap), 3), 255, np.uint8)
    for column, title in enumerate(titles):
        _write(sheet, title[: width // 8], column * (width + gap), 0)
    for row, cells in enumerate(enlarged):
        y = BAR + sum(heights[:row])
        if labels:
            _write(sheet, labels[row], 0, y)
        for column, image in enumerate(cells):
            x, top = column * (width + gap), y + label_bar
            sheet[top : top + image.shape[0], x : x + image.shape[1]] = image
    return sheet


def _write(sheet: Pixels, text: str, x: int, y: int) -> None:
    """Write a text into the bar whose upper left corner is (x, y), as far as the sheet goes."""
    cv2.putText(sheet, text, (x + 2, y + 13), cv2.FONT_HERSHEY_SIMPLEX, 0.42, (0, 0, 0), 1, cv2.LINE_AA)


def save_picture(path: Path, pixels: Pixels) -> None:
    """Write (H, W, 3) RGB or (H, W) uint8 as PNG, atomically."""
    with replacing(path) as temporary:
        cv2.imwrite(str(temporary), pixels[..., ::-1] if pixels.ndim == 3 else pixels)
