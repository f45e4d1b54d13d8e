"""Degrades images: blur, downsampling, noise, compression (Wang et al., *Real-ESRGAN*, ICCVW 2021, section 3)."""

import math
from collections.abc import Mapping
from typing import TypeVar

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from ..images import photometry
from ..images.augmentation import compressed, drawn, with_noise
from ..images.photometry import Image
from .degradation_settings import Blur, Degradation, Resize, Round, Shape, Share, Sharpening, Sinc
from .resampling import resample

SINC_RADIUS = 10  # pixels: the published kernels are 21 wide

Choice = TypeVar("Choice", bound=str)


def blur_kernel(
    sigmas: tuple[float, float], angle: float, shape: Shape = "gaussian", exponent: float = 1.0
) -> NDArray[np.float32]:
    """Return a kernel of distances, normalised to sum 1: (k, k), k odd, three sigmas to each side.

    With the squared distance `q = d' S^-1 d`, where S has the standard deviations `sigmas`, in pixels, the first along
    the direction at `angle` radians from x towards y, the second across it: `exp(-q / 2)`; generalised `exp(-q^b / 2)`;
    plateau `1 / (1 + q^b)`, with the exponent b (Liu et al. 2020, as in Real-ESRGAN, section 3.1).
    """
    radius = max(1, math.ceil(3.0 * max(sigmas)))
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1].astype(np.float64)
    along, across = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
    distance = (along / sigmas[0]) ** 2 + (across / sigmas[1]) ** 2
    if shape == "plateau":
        weights = 1.0 / (1.0 + distance**exponent)
    else:
        weights = np.exp(-0.5 * (distance if shape == "gaussian" else distance**exponent))
    return (weights / weights.sum()).astype(np.float32)


def sinc_kernel(cutoff: float) -> NDArray[np.float32]:
    """Return the circular low-pass filter, normalised to sum 1: (21, 21).

    `w J1(w r) / (2 pi r)` at distance r, with J1 of Bessel and w = pi `cutoff` (Real-ESRGAN, section 3.3, equation 6).
    """
    y, x = np.mgrid[-SINC_RADIUS : SINC_RADIUS + 1, -SINC_RADIUS : SINC_RADIUS + 1].astype(np.float64)
    distance, omega = np.hypot(x, y), math.pi * cutoff
    distance[SINC_RADIUS, SINC_RADIUS] = 1.0
    bessel = torch.special.bessel_j1(torch.from_numpy(omega * distance)).numpy()
    weights = omega * bessel / (2.0 * math.pi * distance)
    weights[SINC_RADIUS, SINC_RADIUS] = omega**2 / (4.0 * math.pi)  # the limit at 0
    return (weights / weights.sum()).astype(np.float32)


def sharpened(image: Image, settings: Sharpening) -> Image:
    """Add `amount` times the difference to a blurred copy, where it exceeds `threshold`, with a blurred border.

    For targets of real pictures (Real-ESRGAN, section 3.4: less artefacts than a sharpened output).
    """
    values = image.astype(np.float32)
    residual = values - cv2.GaussianBlur(values, (0, 0), settings.sigma)
    mask = cv2.GaussianBlur((np.abs(residual) > settings.threshold).astype(np.float32), (0, 0), settings.sigma)
    sharp = np.clip(values + settings.amount * residual, 0.0, 255.0)
    return np.rint(values + mask * (sharp - values)).astype(np.uint8)


def with_shot_noise(image: Image, random: np.random.Generator, photons: float) -> Image:
    """Replace each value v by 255 / photons times a Poisson draw of mean v photons / 255: variance 255 v / photons."""
    counts = random.poisson(image * (photons / 255.0))
    return np.rint(np.clip(counts * (255.0 / photons), 0.0, 255.0)).astype(np.uint8)


def degraded(image: Image, settings: Degradation, scale: int, random: np.random.Generator) -> Image:
    """Degrade uint8 (H, W, C), with sides that are multiples of `scale`, to (H / scale, W / scale, C)."""
    large, small = (image.shape[0], image.shape[1]), (image.shape[0] // scale, image.shape[1] // scale)
    for one in settings.rounds:
        image = _filtered(image, one.blur, one.sinc, random)
        if one.resize is not None:
            image = _resized(image, one.resize, large if one.resize.of == "large" else small, random)
        image = compressed(_noisy(image, one, random), one.compression, random)
    image = _filtered(image, settings.blur, None, random)
    image = resample(image, small, _chosen(settings.kernels, random))
    image = _noisy(image, settings, random)
    if settings.sinc is None:
        return compressed(image, settings.compression, random)
    if random.random() < 0.5:
        return compressed(_filtered(image, None, settings.sinc, random), settings.compression, random)
    return _filtered(compressed(image, settings.compression, random), None, settings.sinc, random)


def _filtered(image: Image, blur: Blur | None, sinc: Sinc | None, random: np.random.Generator) -> Image:
    if low_pass := drawn(sinc, random):
        return photometry.blurred(image, sinc_kernel(float(random.uniform(*low_pass.cutoff))))
    if spread := drawn(blur, random):
        return photometry.blurred(image, _kernel(spread, random))
    return image


def _resized(image: Image, resize: Resize, base: tuple[int, int], random: np.random.Generator) -> Image:
    factor, (low, high) = 1.0, resize.factor
    if drawn(resize, random):
        factor = random.uniform(low, 1.0) if random.random() < resize.smaller else random.uniform(1.0, high)
    height, width = (max(1, round(side * factor)) for side in base)
    return resample(image, (height, width), _chosen(resize.kernels, random))


def _noisy(image: Image, settings: Round | Degradation, random: np.random.Generator) -> Image:
    if shot := drawn(settings.shot_noise, random):
        low, high = shot.photons
        image = with_shot_noise(image, random, math.exp(random.uniform(math.log(low), math.log(high))))
    return with_noise(image, settings.gaussian_noise, random)


def _chosen(shares: Mapping[Choice, Share], random: np.random.Generator) -> Choice:
    """Return a key with a probability proportional to its value."""
    keys, values = list(shares), np.array(list(shares.values()))
    return keys[int(random.choice(len(keys), p=values / values.sum()))]


def _kernel(blur: Blur, random: np.random.Generator) -> NDArray[np.float32]:
    first = float(random.uniform(*blur.sigma))
    sigmas, angle = (first, first), 0.0
    if random.random() < blur.anisotropic:
        sigmas, angle = (first, float(random.uniform(*blur.sigma))), float(random.uniform(0.0, math.pi))
    shape = _chosen(blur.shapes, random) if len(blur.shapes) > 1 else next(iter(blur.shapes))
    if shape == "gaussian":
        return blur_kernel(sigmas, angle)
    limits = blur.generalised if shape == "generalised" else blur.plateau
    return blur_kernel(sigmas, angle, shape, float(random.uniform(*limits)))
