"""Render targets onto a grid of cells: the compiled loops of the encoders.

A target (fields, components, rows, columns) float32 starts as background: confidence (component 0) is 0 and everything
else NaN; the confidence of ignored cells is NaN. If joints, connections or boxes overlap, a cell belongs to the
nearest. `distances` (fields, rows, columns) float64 holds its distance in cells, initially infinity, or 1 in ignored
cells. Numba caches the machine code in `__pycache__` beside this file or, if that is read-only, in the user's cache
folder (or in NUMBA_CACHE_DIR); compiling once takes some seconds.
"""

import math
from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Target = NDArray[np.float32]

PADDING = 10  # cells: a patch may reach this far beyond the grid
IGNORED_DISTANCE = 1.0  # cells: in an ignored region, only nearer cells become foreground
SHORT = np.spacing(1.0)  # keeps a division by a length of 0 finite


def grid(size: tuple[int, int], stride: int) -> tuple[int, int]:
    """Rows and columns of cells for an image of (height, width) pixels."""
    height, width = size
    return (height - 1) // stride + 1, (width - 1) // stride + 1


def blank(fields: int, components: int, ignored: NDArray[np.bool_]) -> tuple[Target, Floats]:
    """Return an empty target and its distances; `ignored` is (rows, columns) or (fields, rows, columns)."""
    target = np.full((fields, components, *ignored.shape[-2:]), np.nan, dtype=np.float32)
    target[:, 0] = np.where(ignored, np.nan, 0)
    distances = np.empty((fields, *ignored.shape[-2:]))
    distances[:] = np.where(ignored, IGNORED_DISTANCE, np.inf)
    return target, distances


def ignore(ignored: NDArray[np.bool_], box: Floats, margin: float) -> None:
    """Mark a box (x, y, width, height; cells) plus `margin` cells in (rows, columns), at least one cell, in place."""
    cells = []
    for corner, length, count in zip(box[1::-1], box[:1:-1], ignored.shape, strict=True):
        start = min(max(int(corner - margin), 0), count - 1)
        cells.append(slice(start, min(max(math.ceil(corner + length + margin) + 1, start + 1), count)))
    ignored[tuple(cells)] = True


def background_outside(target: Target, area: Sequence[float] | NDArray[np.floating], stride: int) -> None:
    """Set cells outside the valid area (x, y, width, height; pixels) to background, in place."""
    x, y, width, height = (float(one) / stride for one in area)
    left, top = max(int(x), 0), max(int(y), 0)
    right, bottom = max(math.ceil(x + width) + 1, 0), max(math.ceil(y + height) + 1, 0)
    for outside in (np.s_[..., :left], np.s_[..., :top, :], np.s_[..., right:], np.s_[..., bottom:, :]):
        target[outside] = np.nan
        target[:, 0][outside] = 0


@numba.njit(cache=True)
def draw_patches(
    target: Target, distances: Floats, fields: Integers, centres: Floats, constants: Floats, side: int, core: float
) -> None:
    """Draw a patch of `side` x `side` cells around each centre into its field, in place.

    The m centres have `fields` (m,), `centres` (m, 2) (x, y; cells) and `constants` (m, C). Components: confidence, the
    vector from the cell to the centre (2), the C constants. Ties keep the earlier centre. Cells farther than `core`
    from their centre have a confidence of NaN. A patch that extends beyond the padding is not drawn.
    """
    rows, columns = distances.shape[1:]
    for index in range(len(fields)):
        field, x, y = fields[index], centres[index, 0], centres[index, 1]
        left, top = np.rint(x - (side - 1) / 2), np.rint(y - (side - 1) / 2)
        if not (-PADDING <= left <= columns + PADDING - side and -PADDING <= top <= rows + PADDING - side):
            continue
        for row in range(max(int(top), 0), min(int(top) + side, rows)):
            for column in range(max(int(left), 0), min(int(left) + side, columns)):
                dx, dy = x - column, y - row
                distance = math.sqrt(dx * dx + dy * dy)
                if distance < distances[field, row, column]:
                    distances[field, row, column] = distance
                    target[field, 0, row, column] = 1.0 if distance <= core else np.nan
                    target[field, 1, row, column] = dx
                    target[field, 2, row, column] = dy
                    for place in range(constants.shape[1]):
                        target[field, 3 + place, row, column] = constants[index, place]


@numba.njit(cache=True)
def draw_bands(
    target: Target,
    distances: Floats,
    fields: Integers,
    starts: Floats,
    ends: Floats,
    constants: Floats,
    min_size: int,
    aspect_ratio: float,
    fixed_size: bool,
) -> None:
    """Draw a band of cells along the middle of each connection into its field, in place.

    The m connections have `fields` (m,), `starts` and `ends` (m, 2) (x, y; cells) and `constants` (m, C). Components:
    confidence, the vectors from the cell to start and end (4), the C constants. The distance of a cell is measured
    perpendicular to the line; ties prefer the later connection. The band is `min_size` cells wide, or `aspect_ratio`
    times the length if that is more. With `fixed_size`, the band is as long as wide. Rounding to cells may leave holes.
    """
    rows, columns = distances.shape[1:]
    for index in range(len(fields)):
        field = fields[index]
        x1, y1, x2, y2 = starts[index, 0], starts[index, 1], ends[index, 0], ends[index, 1]
        dx, dy = x2 - x1, y2 - y1
        length = math.sqrt(dx * dx + dy * dy)
        side = max(min_size, int(length * aspect_ratio))
        count = 1 if fixed_size else max(2, math.ceil(length))
        margin = 0.5 if fixed_size else min(max(side / 2 / (length + SHORT), 0.25), 0.4)
        for step in range(count):  # evenly from margin to 1 - margin, rounded as np.linspace does
            along = 1.0 - margin if step == count - 1 else margin + step * ((1.0 - margin - margin) / (count - 1))
            for place in range(side * side):
                across_x, across_y = place % side - (side - 1) / 2, place // side - (side - 1) / 2
                nearest_column, nearest_row = np.rint(x1 + along * dx + across_x), np.rint(y1 + along * dy + across_y)
                if not (0 <= nearest_column < columns and 0 <= nearest_row < rows):
                    continue
                column, row = int(nearest_column), int(nearest_row)
                distance = abs(dy * (column - x1) - dx * (row - y1)) / (length + 0.01)
                if distance <= distances[field, row, column]:
                    distances[field, row, column] = distance
                    target[field, 0, row, column] = 1.0
                    target[field, 1, row, column] = x1 - column
                    target[field, 2, row, column] = y1 - row
                    target[field, 3, row, column] = x2 - column
                    target[field, 4, row, column] = y2 - row
                    for constant in range(constants.shape[1]):
                        target[field, 5 + constant, row, column] = constants[index, constant]
