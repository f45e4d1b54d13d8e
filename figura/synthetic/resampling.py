"""Interpolation that gives the same bytes on every processor.

OpenCV selects its interpolation code by processor (fused multiply-add, Intel's IPP), with different rounding. NumPy
rounds every sum and product once, according to IEEE 754, on every processor.
"""

from collections.abc import Callable

import numpy as np

Kernel = Callable[[np.ndarray], dict[int, np.ndarray]]
SHARPNESS = -0.75  # the parameter a of Keys 1981; OpenCV has the same


def linear(fraction: np.ndarray) -> dict[int, np.ndarray]:
    """Return weights by offset for positions `fraction` in [0, 1) after the pixel of offset 0."""
    return {0: 1.0 - fraction, 1: fraction}


def cubic(fraction: np.ndarray) -> dict[int, np.ndarray]:
    """Return weights like `linear`, of cubic convolution (Keys 1981, equation 15 with any a)."""
    return {offset: _keys(np.abs(fraction - offset)) for offset in (-1, 0, 1, 2)}


def _keys(distance: np.ndarray) -> np.ndarray:
    a = SHARPNESS
    near = ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0
    far = ((a * distance - 5.0 * a) * distance + 8.0 * a) * distance - 4.0 * a
    return np.where(distance <= 1.0, near, far)


def enlarge(grid: np.ndarray, height: int, width: int, kernel: Kernel) -> np.ndarray:
    """Resize `grid` (h, w, c) to float32 (height, width, c) with `linear` or `cubic`.

    Corners are aligned; the border is replicated outside.
    """
    values = grid.astype(np.float32)
    for axis, size in ((1, width), (0, height)):
        places = (np.arange(size) + 0.5) * (values.shape[axis] / size) - 0.5
        pixel = np.floor(places)
        terms = []
        for offset, weights in kernel(places - pixel).items():
            term = np.take(values, pixel.astype(np.intp) + offset, axis, mode="clip")
            term *= weights.astype(np.float32).reshape(-1, *[1] * (2 - axis))
            terms.append(term)
        values = terms[0]
        for term in terms[1:]:
            values += term
    return values


def sample(texture: np.ndarray, matrix: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Read `texture`, uint8 (h, w, 3), between its pixels: uint8 (n, 3), for the n true pixels of `mask` in its order.

    `matrix` (2, 3) maps a pixel (x, y, 1) of the mask to a position in the texture, whose border is replicated outside.
    """
    height, width = texture.shape[:2]
    columns, rows = (np.arange(size, dtype=np.float32) for size in mask.shape[::-1])

    def places(row: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the pixel before each position, and the distance from it."""
        x, y, one = row.astype(np.float32)
        place = np.clip((columns * x + (rows * y + one)[:, None])[mask], 0, size - 1)
        pixel = np.floor(place)
        return pixel.astype(np.intp), place - pixel

    channels = np.ascontiguousarray(texture.reshape(-1, 3).T, dtype=np.float32)
    pixel, across = places(matrix[0], width)

    def blend(pixel: np.ndarray) -> np.ndarray:
        # without a next pixel, `across` is 0
        left, right = (np.take(channels, pixel + step, 1, mode="clip") for step in (0, 1))
        return left + across * (right - left)

    if height == 1:
        return np.rint(blend(pixel)).astype(np.uint8).T
    above, down = places(matrix[1], height)
    pixel += width * above
    upper, lower = blend(pixel), blend(pixel + width)
    return np.rint(upper + down * (lower - upper)).astype(np.uint8).T
