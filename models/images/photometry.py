"""Changes of an image's tone, sharpness and quality, without geometry.

Images are uint8 (H, W, C), C 1 (grey) or 3 (red, green, blue). Results are rounded once, at the end.
"""

from collections.abc import Iterable
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Grey = Literal["weighted_average", "desaturation", "average", "max", "from_lab", "pca"]
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
            values = values * amount
        elif tone == "contrast":
            values = amount * values + (1.0 - amount) * float(_luma(values).mean(dtype=np.float64))
        elif image.shape[2] == 3:
            values = _saturated(values, amount) if tone == "saturation" else _turned(values, amount)
        values = np.clip(values, 0.0, 255.0)
    return _rounded(values)


def noisy(image: Image, random: np.random.Generator, std: float) -> Image:
    """Add Gaussian noise to each value; `std` is a fraction of full scale (255)."""
    noise = random.standard_normal(image.shape, dtype=np.float32)
    return _rounded(image + np.float32(255.0 * std) * noise)


def motion_kernel(size: int, *, angle: float, bias: float, shift: tuple[float, float]) -> NDArray[np.float32]:
    """Return a motion blur kernel (size, size) of sum 1: a line, the path of a point while the shutter is open.

    The line runs at `angle` degrees through the centre plus `shift` (x, y; pixels, at most a quarter of the size).
    `bias` in [-1, 1] moves the line along itself: at 0 it extends equally to both sides, at 1 only forwards. It is cut
    at the kernel's border.
    """
    half = size // 2
    direction = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    along = np.linspace(-(1.0 - bias) * half, (1.0 + bias) * half, 4 * size + 1)
    places = np.rint(half + np.array(shift) + along[:, None] * direction).astype(int)
    places = places[((places >= 0) & (places < size)).all(axis=1)]
    kernel = np.zeros((size, size), dtype=np.float32)
    kernel[places[:, 1], places[:, 0]] = 1.0
    return kernel / kernel.sum()


def blurred(image: Image, kernel: NDArray[np.float32]) -> Image:
    """Correlate with a kernel (k, k); the image is reflected at its border (without repeating the edge)."""
    return _whole(cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REFLECT_101), image.shape)


def with_gamma(image: Image, gamma: float) -> Image:
    """Return 255 (v / 255)^gamma: brighter for gamma below 1, darker above."""
    return _rounded(255.0 * (np.arange(256) / 255.0) ** gamma)[image]


def greyscale(image: Image, method: Grey) -> Image:
    """Convert to grey in three equal channels; a grey image is unchanged.

    Methods: weighted_average is luma; desaturation (max + min) / 2; average the mean of the channels; max their
    maximum; from_lab CIELAB's L* (0 to 100) scaled to [0, 255]; pca the first principal component of the image's
    colours, scaled to [0, 255] and oriented so that brighter colours are brighter. For an image of one colour, pca
    gives the average.
    """
    if image.shape[2] == 1:
        return image
    grey: NDArray[Any]
    if method == "weighted_average":
        grey = _luma(image.astype(np.float32))
    elif method == "desaturation":
        grey = (image.max(axis=2).astype(np.float32) + image.min(axis=2)) / 2.0
    elif method == "average":
        grey = image.mean(axis=2, dtype=np.float32)
    elif method == "max":
        grey = image.max(axis=2)
    elif method == "from_lab":
        grey = cv2.cvtColor(image.astype(np.float32) / 255.0, cv2.COLOR_RGB2Lab)[..., 0] * 2.55
    else:
        grey = _principal(image)
    return np.repeat(_rounded(grey)[..., None], 3, axis=2)


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


def _saturated(values: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    return factor * values + (1.0 - factor) * _luma(values)[..., None]


def _turned(values: NDArray[np.float32], turns: float) -> NDArray[np.float32]:
    hsv = cv2.cvtColor(values / 255.0, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = np.mod(hsv[..., 0] + 360.0 * turns, 360.0)
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) * 255.0, dtype=np.float32)


def _principal(image: Image) -> NDArray[np.float64]:
    colours = image.reshape(-1, 3).astype(np.float64)
    centred = colours - colours.mean(axis=0)
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    # An eigenvector's sign is arbitrary.
    scores = centred @ axis * (1.0 if axis.sum() >= 0.0 else -1.0)
    extent = np.ptp(scores)
    if extent < 1e-6:
        return image.mean(axis=2, dtype=np.float64)
    return np.asarray(255.0 * (scores - scores.min()) / extent).reshape(image.shape[:2])


def _rounded(values: NDArray[Any]) -> Image:
    return np.rint(np.clip(values, 0.0, 255.0)).astype(np.uint8)


def _whole(image: NDArray[Any], shape: tuple[int, ...]) -> Image:
    """Restore the channel axis that OpenCV drops."""
    return np.ascontiguousarray(image.reshape(shape), dtype=np.uint8)
