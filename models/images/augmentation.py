"""Random augmentation of training pairs; geometric changes are drawn once and applied to both images."""

from collections.abc import Collection
from typing import TypeVar

import numpy as np

from . import photometry
from .augmentation_settings import (
    Chance,
    ColourJitter,
    Compression,
    GaussianNoise,
    GeometricTransforms,
    InputTransforms,
    PairAugmentation,
)
from .photometry import Image, Tone

IMPORTED_FOR = {".further_transforms": ("further",)}
Transform = TypeVar("Transform", bound=Chance)


def augment(
    x: Image,
    y: Image,
    settings: PairAugmentation | None,
    crop: tuple[int, int],
    random: np.random.Generator,
    label_maps: Collection[str],
) -> tuple[Image, Image]:
    """Return a random crop of a pair, of size `crop` (height, width), augmented according to the settings.

    `x` and `y` are uint8 (H, W, C), C 1 or 3 (red, green, blue), of the same size; the results are (h, w, C). Crop,
    flips and quarter turns move pixels without changing them. Without settings, the pair is only cropped. `label_maps`
    has the names ("x", "y") of images that get no new colours from `further` transforms.
    """
    settings = settings or PairAugmentation()
    top, left = (int(random.integers(x.shape[axis] - crop[axis], endpoint=True)) for axis in (0, 1))
    x, y = (image[top : top + crop[0], left : left + crop[1]] for image in (x, y))
    x, y = _moved(x, y, settings.both, random, label_maps)
    return _varied(x, settings.input, random), y


def drawn(transform: Transform | None, random: np.random.Generator) -> Transform | None:
    """Return the transform with probability `chance`, else None."""
    return transform if transform is not None and random.random() < transform.chance else None


def with_noise(image: Image, settings: GaussianNoise | None, random: np.random.Generator) -> Image:
    """Add Gaussian noise, with the chance of the settings."""
    noise = drawn(settings, random)
    return image if noise is None else photometry.noisy(image, random, float(random.uniform(*noise.std)))


def compressed(image: Image, settings: Compression | None, random: np.random.Generator) -> Image:
    """Encode and decode the image, with the chance of the settings."""
    if (codec := drawn(settings, random)) is None:
        return image
    return photometry.compressed(image, codec.type, int(random.integers(*codec.quality, endpoint=True)))


def _moved(
    x: Image, y: Image, both: GeometricTransforms, random: np.random.Generator, label_maps: Collection[str]
) -> tuple[Image, Image]:
    height, width = x.shape[:2]
    if drawn(both.horizontal_flip, random):
        x, y = x[:, ::-1], y[:, ::-1]
    if drawn(both.vertical_flip, random):
        x, y = x[::-1], y[::-1]
    if drawn(both.rotate90, random):
        # 0 to 3 quarter turns; 0 or 2 for an image that is not square, to keep the size.
        turns = int(random.integers(4)) if height == width else 2 * int(random.integers(2))
        x, y = np.rot90(x, turns), np.rot90(y, turns)
    x, y = x.copy(), y.copy()
    if both.further:
        from .further_transforms import transformed

        moved = transformed({"x": x, "y": y}, both.further, random, label_maps)
        x, y = moved["x"], moved["y"]
    return x, y


def _varied(image: Image, settings: InputTransforms, random: np.random.Generator) -> Image:
    if jitter := drawn(settings.colour_jitter, random):
        image = photometry.jittered(image, _tones(jitter, random))
    image = with_noise(image, settings.gaussian_noise, random)
    if drawn(settings.greyscale, random):
        image = photometry.greyscale(image)
    image = compressed(image, settings.compression, random)
    if settings.further:
        from .further_transforms import transformed

        image = transformed({"x": image}, settings.further, random)["x"]
    return image


def _tones(jitter: ColourJitter, random: np.random.Generator) -> list[tuple[Tone, float]]:
    """Return the configured changes in random order."""
    limits: dict[Tone, tuple[float, float] | None] = {
        "brightness": jitter.brightness,
        "contrast": jitter.contrast,
        "saturation": jitter.saturation,
        "hue": jitter.hue,
    }
    changes = [(tone, float(random.uniform(*between))) for tone, between in limits.items() if between is not None]
    return [changes[int(i)] for i in random.permutation(len(changes))]
