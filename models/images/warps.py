"""Geometric distortions as sampling maps, drawn once for a pair; each image is interpolated only once.

A sampling map is float32 (h, w, 2): for each pixel of the result, the x and y in the image to read from; 0 is the
centre of the first pixel.
"""

from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Map = NDArray[np.float32]
Distortion = Literal["camera", "fisheye"]


def pixel_grid(height: int, width: int) -> Map:
    """Return the identity map (height, width, 2)."""
    rows, columns = np.indices((height, width), dtype=np.float32)
    return np.stack([columns, rows], axis=-1)


def elastic_field(random: np.random.Generator, height: int, width: int, *, alpha: float, sigma: float) -> Map:
    """Draw smooth displacements (height, width, 2) in pixels (Simard et al. 2003, "Best practices", section 2).

    Gaussian noise for x and y is scaled to a maximum absolute value of 1, blurred with standard deviation `sigma`
    pixels (borders replicated), and multiplied by `alpha`. Blurring averages, so a larger `sigma` makes displacements
    smaller.
    """
    noise = random.standard_normal((height, width, 2), dtype=np.float32)
    noise /= np.abs(noise).max()
    smooth = cv2.GaussianBlur(noise, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(alpha * smooth, dtype=np.float32)


def lens_map(height: int, width: int, *, k: float, mode: Distortion) -> Map:
    """Return the sampling map (height, width, 2) of a lens; positive `k` reads further out, so that content shrinks.

    `camera` is Brown's radial model (1966) with k1 = k2 = k and focal lengths of one width and height: with
    a = (u - (w - 1) / 2) / w, b likewise and r^2 = a^2 + b^2, u' = w a (1 + k r^2 + k r^4) + w / 2. So k = 0 moves by
    half a pixel, as in Albumentations 2.0.8. `fisheye` takes the radius r about (w / 2, h / 2) to
    r (1 + k (r / r_max)^2), with r_max half the diagonal.
    """
    grid = pixel_grid(height, width).astype(np.float64)
    size = np.array([width, height], dtype=np.float64)
    if mode == "camera":
        offset = (grid - (size - 1.0) / 2.0) / size
        square = (offset**2).sum(axis=-1, keepdims=True)
        return (size * offset * (1.0 + k * square + k * square**2) + size / 2.0).astype(np.float32)
    offset = grid - size / 2.0
    share = (offset**2).sum(axis=-1, keepdims=True) / ((size / 2.0) ** 2).sum()
    return (size / 2.0 + offset * (1.0 + k * share)).astype(np.float32)


def displaced(places: Map, field: Map) -> Map:
    """Compose a sampling map with a displacement field: look up `places`, then add the displacement there.

    The field is interpolated bilinearly, and replicated beyond its border.
    """
    there = cv2.remap(field, places, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(places + there, dtype=np.float32)


def sampled(image: Image, places: Map, *, nearest: bool) -> Image:
    """Sample an image (H, W, C) at a map's positions, bilinearly or by nearest neighbour; 0 beyond the border."""
    method = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    read = cv2.remap(image, places, None, method, borderMode=cv2.BORDER_CONSTANT, borderValue=0)
    return np.asarray(read, dtype=np.uint8).reshape(*places.shape[:2], image.shape[2])


def random_holes(
    random: np.random.Generator,
    height: int,
    width: int,
    count: tuple[int, int],
    heights: tuple[float, float],
    widths: tuple[float, float],
) -> list[tuple[slice, slice]]:
    """Draw between `count[0]` and `count[1]` rectangles (slices of rows and columns) inside an image, uniformly.

    Their sides are uniform between the given fractions of the image's, rounded to pixels, at least 1. They may overlap.
    """
    holes = []
    for _ in range(int(random.integers(count[0], count[1], endpoint=True))):
        high = max(1, round(height * random.uniform(*heights)))
        wide = max(1, round(width * random.uniform(*widths)))
        top = int(random.integers(height - high, endpoint=True))
        left = int(random.integers(width - wide, endpoint=True))
        holes.append((slice(top, top + high), slice(left, left + wide)))
    return holes
