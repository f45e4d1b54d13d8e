"""Textures of cloth and skin for the parts of a body."""

from functools import lru_cache

import numpy as np

from figura.synthetic.identity import Colour, Garment

TEXELS = 240  # per unit of standing height; about the resolution of a tall figure


def weave(
    garment: Garment, *, width: float, length: float, light: float | None, turned: float | None = None
) -> np.ndarray:
    """Draw the texture of a garment's part, uint8 (h, w, 3), `width` by `length` in units of the standing height.

    `light` is as in `shade`. For the part with the print of a logo, `turned` is the angle in degrees between its front
    and the camera; for others it is None.
    """
    if light is None and garment.pattern == "plain":
        return plain(garment.colours[0], light=None)
    across, along = _grid(width, length)
    first, second = (np.array(colour, dtype=np.float32) for colour in garment.colours)
    marked = PATTERNS[garment.pattern](across / garment.period + garment.phase, along / garment.period + garment.phase)
    if garment.pattern == "logo":
        marked = _print(across, along, width, garment, turned)
    colour = np.where(np.broadcast_to(marked, (len(along), across.shape[1]))[..., None], second, first)
    return shade(colour, across / (0.5 * width), light)


@lru_cache(maxsize=64)
def plain(colour: Colour, *, light: float | None) -> np.ndarray:
    """Draw the texture of a part in one colour, uint8 (1, w, 3); cached, as a figure has many such parts."""
    if light is None:
        return np.array([[colour]], dtype=np.uint8)
    across = np.linspace(-1.0, 1.0, 16, dtype=np.float32)[None]
    return shade(np.full((1, 16, 3), colour, dtype=np.float32), across, light)


def shade(colour: np.ndarray, across: np.ndarray, light: float | None) -> np.ndarray:
    """Shade a part as if it were round: `colour` (h, w, 3) gets darker towards -1 and 1 of `across`.

    `light` in [-1, 1] is the side of the light; None returns the colour unchanged.
    """
    if light is None:
        return colour.astype(np.uint8)
    size = np.abs(across)
    # Size to the power 2.5: square roots and products round equally on every processor, powers do not.
    bright = 1.04 - 0.34 * size * size * np.sqrt(size) + 0.14 * light * across
    return np.clip(colour * bright[..., None], 0.0, 255.0).astype(np.uint8)


def _grid(width: float, length: float) -> tuple[np.ndarray, np.ndarray]:
    columns, rows = max(8, round(width * TEXELS)), max(8, round(length * TEXELS))
    across = (np.arange(columns, dtype=np.float32)[None] + 0.5) / columns - 0.5
    along = (np.arange(rows, dtype=np.float32)[:, None] + 0.5) / rows
    return across * width, along * length


def _print(across: np.ndarray, along: np.ndarray, width: float, garment: Garment, turned: float | None) -> np.ndarray:
    """A disc, diamond or cross on the chest, squeezed and shifted as the chest turns away."""
    if turned is None or np.cos(np.radians(turned)) < 0.25:
        return np.zeros((1, 1), dtype=bool)
    x = (across - 0.45 * width * np.sin(np.radians(turned))) / np.cos(np.radians(turned))
    y = along - 0.125
    size = 0.7 * garment.period
    if garment.phase < 0.4:
        return x**2 + y**2 < size**2
    if garment.phase < 0.7:
        return np.abs(x) + np.abs(y) < 1.2 * size
    return np.minimum(np.abs(x), np.abs(y)) < 0.3 * size * (np.maximum(np.abs(x), np.abs(y)) < 1.1 * size)


def _dots(across: np.ndarray, along: np.ndarray) -> np.ndarray:
    row = np.floor(along)
    return (np.mod(across + 0.5 * np.mod(row, 2.0), 1.0) - 0.5) ** 2 + (along - row - 0.5) ** 2 < 0.105


# The points with the second colour; coordinates are in periods.
PATTERNS = {
    "plain": lambda across, along: np.zeros((1, 1), dtype=bool),
    "logo": lambda across, along: np.zeros((1, 1), dtype=bool),
    "stripes": lambda across, along: np.mod(along, 1.0) < 0.45,
    "bars": lambda across, along: np.mod(across, 1.0) < 0.45,
    "checks": lambda across, along: np.mod(np.floor(2.0 * across) + np.floor(2.0 * along), 2.0) > 0.5,
    "dots": _dots,
}
