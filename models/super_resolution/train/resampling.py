"""Enlarging and reducing pictures with the kernels that super-resolution is measured by.

An output pixel is a weighted mean of the input pixels around its place, weights k(distance / stretch) normalised to sum
1. Where a picture shrinks, `stretch` is the factor, so that nothing aliases; otherwise it is 1. Pixels are squares (the
centre of pixel i lies at i + 1/2), and at borders the weights inside the picture are normalised. So do Pillow, which
computes it here, and MATLAB's `imresize` (but for borders).

k(x) is, not normalised: area, 1 on (-1/2, 1/2]. bilinear, 1 - |x| for |x| < 1. bicubic, Keys' with a = -1/2 (IEEE TASSP
29(6), 1981, eq. 15). lanczos, sinc(x) sinc(x / 3) for |x| < 3 (Turkowski, *Graphics Gems*, 1990).
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Kernel = Literal["nearest", "area", "bilinear", "bicubic", "lanczos"]

FILTERS: dict[Kernel, Image.Resampling] = {
    "area": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
"""Pillow's names. Its NEAREST adds up places from pixel to pixel, and misses by one near whole numbers."""


def resample(image: NDArray[np.uint8], size: tuple[int, int], kernel: Kernel) -> NDArray[np.uint8]:
    """`image` (H, W, C), uint8, at `size` (height, width), rounded once at the end.

    nearest: the input pixel that an output pixel's centre lies in; reduced by an even factor, the picture so moves by
    half an input pixel. area: each input pixel counts whole, for the output pixel that its centre lies in: at factors
    that are not whole, no mean over areas that overlap. A centre on a border, as at factor 3/2, counts for the first
    of the two; at factors that floats cannot hold, for either.
    """
    if kernel == "nearest":
        rows, columns = (_nearest(*sides) for sides in zip(image.shape[:2], size, strict=True))
        return np.ascontiguousarray(image[rows[:, None], columns])
    planes = [_resized(image[..., channel], size, kernel) for channel in range(image.shape[2])]
    return np.rint(np.stack(planes, axis=2).clip(0.0, 255.0)).astype(np.uint8)


def _nearest(inputs: int, outputs: int) -> NDArray[np.int64]:
    """floor((i + 1/2) inputs / outputs) for each output pixel i, in whole numbers: (outputs,)."""
    return (2 * np.arange(outputs) + 1) * inputs // (2 * outputs)


def _resized(plane: NDArray[np.uint8], size: tuple[int, int], kernel: Kernel) -> NDArray[np.float32]:
    """(H, W) -> float32 `size`, neither rounded nor clipped: as 8 bits, Pillow would round between rows and columns."""
    height, width = size
    return np.asarray(Image.fromarray(plane).convert("F").resize((width, height), FILTERS[kernel]))
