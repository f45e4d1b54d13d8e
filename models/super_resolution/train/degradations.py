"""How a picture loses its detail: blur, reduction, noise, compression (Wang et al., *Real-ESRGAN*, ICCVW 2021, section 3.1)."""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from models.images.data import photometry
from models.images.data.augmentation_settings import Chance
from models.images.data.photometry import Image
from models.super_resolution.train.degradation_settings import Blur, Degradation
from models.super_resolution.train.resampling import resample

Transform = TypeVar("Transform", bound=Chance)


def gaussian_kernel(sigmas: tuple[float, float], angle: float) -> NDArray[np.float32]:
    """`exp(-d' S^-1 d / 2)`, normalised; (k, k), k odd, three sigmas to each side.

    S has the standard deviations `sigmas`, in pixels; the first lies at `angle` radians from x towards y, the second
    across it.
    """
    radius = max(1, math.ceil(3.0 * max(sigmas)))
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1].astype(np.float64)
    along, across = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
    weights = np.exp(-0.5 * ((along / sigmas[0]) ** 2 + (across / sigmas[1]) ** 2))
    return (weights / weights.sum()).astype(np.float32)


def with_shot_noise(image: Image, random: np.random.Generator, photons: float) -> Image:
    """Each value v becomes 255 / photons times a Poisson number of mean v photons / 255: variance 255 v / photons."""
    counts = random.poisson(image * (photons / 255.0))
    return np.rint(np.clip(counts * (255.0 / photons), 0.0, 255.0)).astype(np.uint8)


def degraded(image: Image, settings: Degradation, scale: int, random: np.random.Generator) -> Image:
    """`image` uint8 (H, W, C), sides multiples of `scale`, as a worse one (H / scale, W / scale, C)."""
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
    """The transform if it is to be applied this time."""
    return transform if transform is not None and random.random() < transform.chance else None


def _kernel(blur: Blur, random: np.random.Generator) -> NDArray[np.float32]:
    first = float(random.uniform(*blur.sigma))
    if random.random() >= blur.anisotropic:
        return gaussian_kernel((first, first), 0.0)
    return gaussian_kernel((first, float(random.uniform(*blur.sigma))), float(random.uniform(0.0, math.pi)))
