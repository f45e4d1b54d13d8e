"""Degrades images: blur, downsampling, noise, compression (Wang et al., *Real-ESRGAN*, ICCVW 2021, section 3.1)."""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from models.images import photometry
from models.images.augmentation_settings import Chance
from models.images.photometry import Image
from models.super_resolution.degradation_settings import Blur, Degradation
from models.super_resolution.resampling import resample

Transform = TypeVar("Transform", bound=Chance)


def gaussian_kernel(sigmas: tuple[float, float], angle: float) -> NDArray[np.float32]:
    """Return `exp(-d' S^-1 d / 2)`, normalised to sum 1: (k, k), k odd, three sigmas to each side.

    S has the standard deviations `sigmas`, in pixels; the first is along the direction at `angle` radians from x
    towards y, the second across it.
    """
    radius = max(1, math.ceil(3.0 * max(sigmas)))
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1].astype(np.float64)
    along, across = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
    weights = np.exp(-0.5 * ((along / sigmas[0]) ** 2 + (across / sigmas[1]) ** 2))
    return (weights / weights.sum()).astype(np.float32)


def with_shot_noise(image: Image, random: np.random.Generator, photons: float) -> Image:
    """Replace each value v by 255 / photons times a Poisson draw of mean v photons / 255: variance 255 v / photons."""
    counts = random.poisson(image * (photons / 255.0))
    return np.rint(np.clip(counts * (255.0 / photons), 0.0, 255.0)).astype(np.uint8)


def degraded(image: Image, settings: Degradation, scale: int, random: np.random.Generator) -> Image:
    """Degrade uint8 (H, W, C), with sides that are multiples of `scale`, to (H / scale, W / scale, C)."""
    if blur := _drawn(settings.blur, random):
        image = photometry.blurred(image, _kernel(blur, random))
    kernels = list(settings.kernels)
    shares = np.array([settings.kernels[kernel] for kernel in kernels])
    kernel = kernels[int(random.choice(len(kernels), p=shares / shares.sum()))]
    image = resample(image, (image.shape[0] // scale, image.shape[1] // scale), kernel)
    if shot := _drawn(settings.shot_noise, random):
        low, high = shot.photons
        image = with_shot_noise(image, random, math.exp(random.uniform(math.log(low), math.log(high))))
    if noise := _drawn(settings.gaussian_noise, random):
        image = photometry.noisy(image, random, float(random.uniform(*noise.std)))
    if compression := _drawn(settings.compression, random):
        quality = int(random.integers(*compression.quality, endpoint=True))
        image = photometry.compressed(image, compression.type, quality)
    return image


def _drawn(transform: Transform | None, random: np.random.Generator) -> Transform | None:
    """Return the transform with probability `chance`, else None."""
    return transform if transform is not None and random.random() < transform.chance else None


def _kernel(blur: Blur, random: np.random.Generator) -> NDArray[np.float32]:
    first = float(random.uniform(*blur.sigma))
    if random.random() >= blur.anisotropic:
        return gaussian_kernel((first, first), 0.0)
    return gaussian_kernel((first, float(random.uniform(*blur.sigma))), float(random.uniform(0.0, math.pi)))
