"""Pictures of noise on disk, and the bytes of what a dataset makes of pictures."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray


def noise(height: int, width: int, seed: int = 0, channels: int = 3, kind: type = np.uint8) -> NDArray[Any]:
    """Return (height, width) of one channel, else (height, width, channels), from 0 to the largest of its kind."""
    shape = (height, width, channels)[: 2 if channels == 1 else 3]
    return np.random.default_rng(seed).integers(0, np.iinfo(kind).max + 1, shape, dtype=kind)


def write(path: Path, image: NDArray[Any]) -> None:
    """Write a grey, RGB or RGBA image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image if image.ndim == 2 else image[..., [2, 1, 0, 3][: image.shape[2]]])


def bytes_of(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Return (C, h, w) in [-1, 1] as (h, w, C) in 0..255."""
    return np.rint((image.transpose(1, 2, 0).astype(np.float64) + 1) * 127.5).astype(np.uint8)
