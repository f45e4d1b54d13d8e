"""High-resolution confidence maps (CifHr), and the seeds and connection candidates scored with them.

`fields` are decoded heads, float32 (fields, components, rows, columns): component 1 is the confidence, 2 and 3 are x
and y of the position, the rest are sizes: a joint's scale, or a box's width and height; all in cells. A map is float32
(height, width) in [0, 1], one entry per pixel. Cells with a number that is not finite, or with a position or size
beyond `FAR`, are ignored; confidences are clipped to 1. Source: cif_hr, cif_seeds and caf_scored in openpifpaf/csrc.
Numba caches compiled code, see `models.pose.target_rendering`. It only detects changes of the function's own file, so
no compiled function calls one in another file.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

Fields = NDArray[np.float32]
Maps = NDArray[np.float32]
Tiles = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Image = TypeVar("Image")
Found = TypeVar("Found")

FAR = 1e6  # pixels
NEIGHBOURS = 16  # cells trained to point at a joint
TILE = 16  # pixels; maps are cleared tile by tile
MOST_SIGMA = 0.25  # of a map's longer side; bounds the time for absurd scales
HIGH_RESOLUTION_SHARE = 0.9  # weight of the map in a score; the rest is the cell's own confidence


def fields_checked(fields: NDArray[np.floating], name: str, count: int | None, components: int) -> Fields:
    """Return fields that compiled code accepts; ValueError for a shape other than (`count`, `components`, ...)."""
    expected = (fields.shape[0] if fields.ndim == 4 and count is None else count, components)
    if fields.ndim != 4 or fields.shape[:2] != expected or 0 in fields.shape:
        first = "fields" if count is None else count
        raise ValueError(f"{name} of shape {fields.shape}: ({first}, {components}, rows, columns) is needed")
    return np.require(fields, np.float32, ["C", "A", "W"])


def in_threads(decode: Callable[[Image], Found], images: Sequence[Image], workers: int) -> list[Found]:
    """Decode images by at most `workers` threads; the results are in the order of the images."""
    if workers == 1 or len(images) < 2:
        return list(map(decode, images))
    with ThreadPoolExecutor(min(workers, len(images))) as threads:
        return list(threads.map(decode, images))


class Buffers:
    """Reusable buffers for maps, one per thread, as large as its largest maps."""

    def __init__(self) -> None:
        self._free: deque[Maps] = deque()  # pop and append are thread-safe

    @contextmanager
    def zeros(self, count: int, height: int, width: int) -> Iterator[tuple[Maps, Tiles]]:
        """Lend maps (count, height, width) of zeros and `tiles`, which mark what to clear afterwards."""
        size = count * height * width
        flat = self._free.pop() if self._free else np.zeros(size, dtype=np.float32)
        if flat.size < size:
            flat = np.zeros(size, dtype=np.float32)
        maps = flat[:size].reshape(count, height, width)
        tiles = np.zeros((count, -(-height // TILE), -(-width // TILE)), dtype=np.bool_)
        yield maps, tiles  # after an error, the buffer is not reused
        clear(maps, tiles)
        self._free.append(flat)


@numba.njit(cache=True, nogil=True)
def clear(maps: Maps, tiles: Tiles) -> None:
    """Reset all marked tiles of the maps, and their marks, to zero."""
    for field in range(tiles.shape[0]):
        for row in range(tiles.shape[1]):
            for column in range(tiles.shape[2]):
                if tiles[field, row, column]:
                    top, left = row * TILE, column * TILE
                    maps[field, top : top + TILE, left : left + TILE] = 0
                    tiles[field, row, column] = False


@numba.njit(cache=True, nogil=True)
def accumulate(maps: Maps, tiles: Tiles, fields: Fields, stride: int, threshold: float, sigma_share: float) -> None:
    """Add a Gaussian per cell of confidence `threshold` or more to the map of its field, in place.

    The Gaussian is centred where the cell points; its height is a sixteenth of the confidence. Its standard deviation
    is `sigma_share` times the cell's smallest size, at least a pixel; it is cut off there. Pixels are clipped to 1.
    """
    limit = max(1.0, MOST_SIGMA * max(maps.shape[1], maps.shape[2]))
    for field in range(fields.shape[0]):
        for row in range(fields.shape[2]):
            for column in range(fields.shape[3]):
                confidence = fields[field, 1, row, column]
                if threshold <= confidence < np.inf:
                    x, y, size, usable = _place(fields, field, row, column, stride)
                    if usable and size >= 0:
                        sigma = min(max(1.0, sigma_share * size), limit)
                        _add(maps[field], tiles[field], x, y, sigma, min(confidence, 1.0) / NEIGHBOURS)


@numba.njit(cache=True, nogil=True)
def _place(fields: Fields, field: int, row: int, column: int, stride: int) -> tuple[float, float, float, bool]:
    """Return the position that a cell points at, its smallest size (all pixels), and whether the cell is usable."""
    x, y = float(fields[field, 2, row, column]) * stride, float(fields[field, 3, row, column]) * stride
    usable: bool = abs(x) <= FAR and abs(y) <= FAR
    least = FAR
    for component in range(4, fields.shape[1]):
        size = float(fields[field, component, row, column]) * stride
        usable &= abs(size) <= FAR
        least = min(least, size)
    return x, y, least, usable


@numba.njit(cache=True, nogil=True)
def _add(pixels: Maps, tiles: Tiles, x: float, y: float, sigma: float, amplitude: float) -> None:
    height, width = pixels.shape
    left, top = min(max(int(x - sigma), 0), width - 1), min(max(int(y - sigma), 0), height - 1)
    right, bottom = min(max(int(x + sigma + 1), left + 1), width), min(max(int(y + sigma + 1), top + 1), height)
    tiles[top // TILE : (bottom - 1) // TILE + 1, left // TILE : (right - 1) // TILE + 1] = True
    variance = sigma * sigma
    for row in range(top, bottom):
        line = pixels[row, left:right]
        dy = row - y
        for index in range(len(line)):  # branch-free, so that the compiler vectorises the loop
            dx = left + index - x
            squared = dx * dx + dy * dy
            weight = 1 - squared / (16 * variance)  # (1 + z / 8)^8 instead of exp(z) for z = -squared / (2 variance)
            weight *= weight
            weight *= weight
            weight *= weight
            weight = 1.0 if abs(dx) < 0.5 and abs(dy) < 0.5 else weight
            weight = weight if squared <= variance else 0.0
            line[index] = min(line[index] + amplitude * weight, 1.0)


@numba.njit(cache=True, nogil=True)
def _read(pixels: Maps, x: float, y: float, outside: float) -> float:
    """Return the map at the pixel nearest to (x, y), or `outside`."""
    if -0.49 <= x <= pixels.shape[1] - 0.51 and -0.49 <= y <= pixels.shape[0] - 0.51:
        return float(pixels[int(y + 0.5), int(x + 0.5)])
    return outside


@numba.njit(cache=True, nogil=True)
def seeds(fields: Fields, maps: Maps, stride: int, threshold: float, rescore: bool, only_maxima: bool) -> Floats:
    """Return the seeds, float64 (n, 6), in the order of field, row, column.

    Columns: score, field, x and y (pixels), smallest size (pixels; may be negative), the cell's flat index into
    (fields, rows, columns). The score mixes the map and the cell's confidence; without `rescore` it is the confidence.
    Score and confidence are at least `threshold`. `only_maxima` selects cells that none of their eight neighbours
    exceeds.
    """
    rows, columns = fields.shape[2:]
    starts = np.empty((np.count_nonzero(fields[:, 1] >= threshold), 6))
    count = 0
    for field in range(fields.shape[0]):
        for row in range(rows):
            for column in range(columns):
                value = float(fields[field, 1, row, column])
                if not threshold <= value < np.inf or (only_maxima and not _is_maximum(fields[field, 1], row, column)):
                    continue
                x, y, size, usable = _place(fields, field, row, column, stride)
                value = min(value, 1.0)
                if rescore:
                    value *= 1 - HIGH_RESOLUTION_SHARE
                    value += HIGH_RESOLUTION_SHARE * _read(maps[field], x, y, -1.0)
                if usable and value >= threshold:
                    cell = (field * rows + row) * columns + column
                    starts[count] = value, float(field), x, y, size, float(cell)
                    count += 1
    return starts[:count]


@numba.njit(cache=True, nogil=True)
def _is_maximum(confidences: Fields, row: int, column: int) -> bool:
    around = confidences[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
    highest = True
    for other in around.flat:
        highest &= not other > confidences[row, column]
    return highest


@numba.njit(cache=True, nogil=True)
def candidates(
    fields: Fields,
    maps: Maps,
    directed: Integers,
    wanted: NDArray[np.bool_],
    weights: Floats,
    stride: int,
    threshold: float,
    rescore: bool,
) -> tuple[NDArray[np.float32], Integers]:
    """Return the connection candidates of association fields (C, 8, rows, columns), in both directions.

    `directed` (2 C, 2) holds pairs (from, to) of joints: row 2 e is connection e, row 2 e + 1 its reverse; only those
    marked in `wanted` (2 C,) are computed. The candidates are float32 (m, 6): confidence, x and y at `from`, x and y at
    `to`, scale at `to`; all in pixels, in the order of row, column. The second result (2 C, 2) has the start and end of
    each direction's candidates. A cell's confidence is multiplied by the weight (C,) of its connection and must then
    reach `threshold`; it is multiplied by a mix of 1 and the map at `to` and must then exceed `threshold`.
    """
    size = fields.shape[2] * fields.shape[3]
    flat = fields.reshape(fields.shape[0], 8, size)
    most = np.zeros(len(directed), dtype=np.int64)
    for way in range(len(directed)):
        if wanted[way]:
            most[way] = np.count_nonzero(flat[way // 2, 1] * weights[way // 2] >= threshold)
    offers = np.empty((most.sum(), 6), dtype=np.float32)
    spans = np.zeros((len(directed), 2), dtype=np.int64)
    count = 0
    for way in range(len(directed)):
        spans[way] = count
        if most[way] == 0:
            continue
        field, back = flat[way // 2], way % 2
        start, end, pixels = 2 + 2 * back, 4 - 2 * back, maps[directed[way, 1]]
        for cell in range(size):
            confidence = field[1, cell] * weights[way // 2]
            if not threshold <= confidence < np.inf:
                continue
            confidence = min(confidence, 1.0)
            x, y = float(field[end, cell]) * stride, float(field[end + 1, cell]) * stride
            if rescore:
                confidence *= 1 - HIGH_RESOLUTION_SHARE + HIGH_RESOLUTION_SHARE * _read(pixels, x, y, 0.0)
            usable = confidence > threshold
            for component in range(2, 8):
                usable &= abs(field[component, cell] * stride) <= FAR
            if usable:
                offers[count, 0], offers[count, 3], offers[count, 4] = confidence, x, y
                offers[count, 1], offers[count, 2] = field[start, cell] * stride, field[start + 1, cell] * stride
                offers[count, 5] = max(field[7 - back, cell] * stride, 0.0)
                count += 1
        spans[way, 1] = count
    return offers[:count], spans
