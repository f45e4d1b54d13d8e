"""Enlarging and reducing pictures with the kernels that super-resolution is measured by.

An output pixel is a weighted mean of the input pixels around its place, weights k(distance / stretch) normalised to sum
1. Where a picture shrinks, `stretch` is the factor, so that nothing aliases; otherwise it is 1. Pixels are squares (the
centre of pixel i lies at i + 1/2), and at borders the weights inside the picture are normalised. So do MATLAB's
`imresize` (but for borders) and Pillow.
"""

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kernel = Literal["nearest", "area", "bilinear", "bicubic", "lanczos"]

RADII: dict[Kernel, float] = {"nearest": 0.5, "area": 0.5, "bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}
"""Where k ends; k(x) = 0 for |x| of at least this."""


def kernel_values(kernel: Kernel, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """k(x), elementwise, not normalised.

    area: 1 on [-1/2, 1/2). bilinear: 1 - |x|. bicubic: Keys' with a = -1/2 (IEEE TASSP 29(6), 1981, eq. 15). lanczos:
    sinc(x) sinc(x / 3) (Turkowski, *Graphics Gems*, 1990).
    """
    distance = np.abs(x)
    if kernel in ("nearest", "area"):
        return ((x >= -0.5) & (x < 0.5)).astype(np.float64)
    if kernel == "bilinear":
        return np.maximum(1.0 - distance, 0.0)
    if kernel == "lanczos":
        return np.where(distance < 3.0, np.sinc(x) * np.sinc(x / 3.0), 0.0)
    near = (1.5 * distance - 2.5) * distance**2 + 1.0
    far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    return np.where(distance < 1.0, near, np.where(distance < 2.0, far, 0.0))


@lru_cache(maxsize=64)
def taps(kernel: Kernel, inputs: int, outputs: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """What each output pixel of one axis is made of: input pixels, (outputs, n), and their weights, whose sum is 1."""
    factor = inputs / outputs
    centres = (np.arange(outputs) + 0.5) * factor
    if kernel == "nearest":
        return np.floor(centres).astype(np.int64)[:, None], np.ones((outputs, 1), np.float32)
    stretch = max(factor, 1.0)
    reach = RADII[kernel] * stretch
    places = np.floor(centres - reach).astype(np.int64)[:, None] + np.arange(int(np.ceil(2 * reach)) + 1)
    weights = kernel_values(kernel, (places + 0.5 - centres[:, None]) / stretch)
    weights[(places < 0) | (places >= inputs)] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    used = (weights != 0).any(axis=0)
    return places[:, used].clip(0, inputs - 1), weights[:, used].astype(np.float32)


def resample(image: NDArray[np.uint8], size: tuple[int, int], kernel: Kernel) -> NDArray[np.uint8]:
    """`image` (H, W, C), uint8, at `size` (height, width), rounded once at the end.

    nearest: the input pixel that an output pixel's centre lies in; reduced by an even factor, the picture so moves by
    half an input pixel.
    """
    values = _along_rows(image.astype(np.float32), size[0], kernel)
    values = _along_rows(values.transpose(1, 0, 2), size[1], kernel).transpose(1, 0, 2)
    return np.ascontiguousarray(np.rint(np.clip(values, 0.0, 255.0)).astype(np.uint8))


def _along_rows(values: NDArray[np.float32], outputs: int, kernel: Kernel) -> NDArray[np.float32]:
    """(H, W, C) -> (outputs, W, C)."""
    places, weights = taps(kernel, values.shape[0], outputs)
    total = np.zeros((outputs, *values.shape[1:]), np.float32)
    for place, weight in zip(places.T, weights.T, strict=True):
        total += weight[:, None, None] * values[place]
    return total
