"""Resampling with the standard kernels of super-resolution benchmarks.

An output pixel is a weighted mean of the input pixels around its position, with weights k(distance / stretch)
normalised to sum 1. For downsampling, `stretch` is the factor, to avoid aliasing; otherwise it is 1. Pixels are squares
(the centre of pixel i is at i + 1/2), and pictures continue mirrored beyond their borders. MATLAB's `imresize`, by
which the papers' benchmarks are made, does the same; Pillow, which is used here, would cut the kernel at borders.

k(x) is, not normalised: area, 1 on (-1/2, 1/2]. bilinear, 1 - |x| for |x| < 1. bicubic, Keys' with a = -1/2 (IEEE TASSP
29(6), 1981, eq. 15). lanczos, sinc(x) sinc(x / 3) for |x| < 3 (Turkowski, *Graphics Gems*, 1990).
"""

from typing import Literal, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Level = TypeVar("Level", np.uint8, np.float32)
Kernel = Literal["nearest", "area", "bilinear", "bicubic", "lanczos"]

FILTERS: dict[Kernel, Image.Resampling] = {
    "area": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
"""Pillow's names. Its NEAREST accumulates positions from pixel to pixel, and is off by one near integers."""
SUPPORT = 3  # pixels to each side, before stretching: of lanczos, the widest


def resample(image: NDArray[Level], size: tuple[int, int], kernel: Kernel) -> NDArray[Level]:
    """`image` (H, W, C), uint8 or float32, at `size` (height, width); uint8 is clipped and rounded, once, at the end.

    nearest: the input pixel that an output pixel's centre lies in; an even reduction factor thus shifts the picture by
    half an input pixel. area: each input pixel contributes fully to the output pixel that its centre lies in: at
    fractional factors, this is not a mean over overlapping areas. A centre on a border, as at factor 3/2, contributes
    to the first of the two; at factors that floats cannot represent, to either.
    """
    if kernel == "nearest":
        rows, columns = (_nearest(*sides) for sides in zip(image.shape[:2], size, strict=True))
        return np.ascontiguousarray(image[rows[:, None], columns])
    resized = np.stack(_resized(image, size, kernel), axis=2)
    if image.dtype == np.uint8:
        resized = np.rint(resized.clip(0.0, 255.0))
    return resized.astype(image.dtype, copy=False)


def _nearest(inputs: int, outputs: int) -> NDArray[np.int64]:
    """floor((i + 1/2) inputs / outputs) for each output pixel i, in integer arithmetic: (outputs,)."""
    return (2 * np.arange(outputs) + 1) * inputs // (2 * outputs)


def _resized(image: NDArray[Level], size: tuple[int, int], kernel: Kernel) -> list[NDArray[np.float32]]:
    """(H, W, C) -> float32 `size` by channel, not rounded or clipped: Pillow would round 8 bits between both axes."""
    top, left = (SUPPORT * -(-max(inside, out) // out) for inside, out in zip(image.shape[:2], size, strict=True))
    mirrored = cv2.copyMakeBorder(image, top, top, left, left, cv2.BORDER_REFLECT)
    box = (left, top, left + image.shape[1], top + image.shape[0])  # Pillow reads pixels around the box, too
    planes = [Image.fromarray(plane).convert("F") for plane in np.atleast_3d(mirrored).transpose(2, 0, 1)]
    return [np.asarray(plane.resize(size[::-1], FILTERS[kernel], box=box)) for plane in planes]
