"""Changes of an image's tone, sharpness and quality, without geometry.

Images are uint8 (H, W, C), C 1 (grey) or 3 (red, green, blue). Results are rounded once, at the end.
"""

from collections.abc import Iterable
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Codec = Literal["jpeg", "webp"]
Tone = Literal["brightness", "contrast", "saturation", "hue"]

LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601


def jittered(image: Image, changes: Iterable[tuple[Tone, float]]) -> Image:
    """Apply changes of tone in the given order, clipping to [0, 255] after each.

    With values v and factor f: brightness is f v; contrast f v + (1 - f) m, where m is the image's mean luma;
    saturation f v + (1 - f) l, where l is the pixel's luma; hue turns the HSV hue by f turns. Saturation and hue have
    no effect on a grey image.
    """
    values = image.astype(np.float32)
    for tone, amount in changes:
        if tone == "brightness":
            values *= amount
        elif tone == "contrast":
            mean = float(_luma(values).mean(dtype=np.float64))
            values *= amount
            values += (1.0 - amount) * mean
        elif image.shape[2] == 3 and tone == "saturation":
            grey = (1.0 - amount) * _luma(values)
            values *= amount
            values += grey[..., None]
        elif image.shape[2] == 3:
            values = _turned(values, amount)
        np.clip(values, 0.0, 255.0, out=values)
    return _rounded(values)


def noisy(image: Image, random: np.random.Generator, std: float) -> Image:
    """Add Gaussian noise to each value; `std` is a fraction of full scale (255)."""
    noise = random.standard_normal(image.shape, dtype=np.float32)
    return _rounded(image + np.float32(255.0 * std) * noise)


def blurred(image: Image, kernel: NDArray[np.float32]) -> Image:
    """Correlate with a kernel (k, k); the image is reflected at its border (without repeating the edge)."""
    return _whole(cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REFLECT_101), image.shape)


def greyscale(image: Image) -> Image:
    """Return the luma in three equal channels; a grey image is unchanged."""
    if image.shape[2] == 1:
        return image
    return np.repeat(_rounded(_luma(image.astype(np.float32)))[..., None], 3, axis=2)


def compressed(image: Image, codec: Codec, quality: int) -> Image:
    """Encode and decode with OpenCV, quality 1 to 100."""
    setting = cv2.IMWRITE_JPEG_QUALITY if codec == "jpeg" else cv2.IMWRITE_WEBP_QUALITY
    colour = image.shape[2] == 3
    done, data = cv2.imencode(f".{codec}", image[..., ::-1] if colour else image, [setting, quality])
    assert done, f"OpenCV could not encode an image as {codec}"
    decoded = cv2.imdecode(data, cv2.IMREAD_COLOR if colour else cv2.IMREAD_GRAYSCALE)
    assert decoded is not None, f"OpenCV could not decode its own {codec}"
    return _whole(decoded[..., ::-1] if colour else decoded, image.shape)


def _luma(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return values @ LUMA if values.shape[2] == 3 else values[..., 0]


def _turned(values: NDArray[np.float32], turns: float) -> NDArray[np.float32]:
    hsv = cv2.cvtColor(values / 255.0, cv2.COLOR_RGB2HSV)
    hue = hsv[..., 0] + 360.0 * turns
    np.subtract(hue, 360.0, out=hue, where=hue >= 360.0)  # as np.mod, which is slow, for at most half a turn
    np.add(hue, 360.0, out=hue, where=hue < 0.0)
    hsv[..., 0] = hue
    turned = np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), dtype=np.float32)
    turned *= 255.0
    return turned


def _rounded(values: NDArray[Any]) -> Image:
    return np.rint(np.clip(values, 0.0, 255.0)).astype(np.uint8)


def _whole(image: NDArray[Any], shape: tuple[int, ...]) -> Image:
    """Restore the channel axis that OpenCV drops."""
    return np.ascontiguousarray(image.reshape(shape), dtype=np.uint8)
