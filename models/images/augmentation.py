"""Random augmentation of training pairs; geometric changes are drawn once and applied to both images."""

from collections.abc import Collection
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from models.images import photometry, warps
from models.images.augmentation_settings import (
    Chance,
    ColourJitter,
    GeometricTransforms,
    InputTransforms,
    PairAugmentation,
)
from models.images.further_transforms import transformed
from models.images.photometry import Image, Tone

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
    flips and quarter turns move pixels without changing them. Elastic and optical distortion are composed, so that each
    image is interpolated once: bilinearly, or by nearest neighbour if `label_maps` contains its name ("x", "y").
    Without settings, the pair is only cropped. Raises ValueError if the crop is larger than the images, or if their
    sizes differ.
    """
    if x.shape[:2] != y.shape[:2]:
        raise ValueError(
            f"x is {x.shape[0]} x {x.shape[1]}, y is {y.shape[0]} x {y.shape[1]}: they must be of one size"
        )
    if crop[0] > x.shape[0] or crop[1] > x.shape[1]:
        raise ValueError(f"crop {crop[0]} x {crop[1]}: larger than the image, {x.shape[0]} x {x.shape[1]}")
    settings = settings or PairAugmentation()
    top, left = (int(random.integers(x.shape[axis] - crop[axis], endpoint=True)) for axis in (0, 1))
    x, y = (image[top : top + crop[0], left : left + crop[1]] for image in (x, y))
    x, y = _moved(x, y, settings.both, random, label_maps)
    return _varied(x, settings.input, random), y


def _drawn(transform: Transform | None, random: np.random.Generator) -> Transform | None:
    """Return the transform with probability `chance`, else None."""
    return transform if transform is not None and random.random() < transform.chance else None


def _moved(
    x: Image, y: Image, both: GeometricTransforms, random: np.random.Generator, label_maps: Collection[str]
) -> tuple[Image, Image]:
    height, width = x.shape[:2]
    if _drawn(both.horizontal_flip, random):
        x, y = x[:, ::-1], y[:, ::-1]
    if _drawn(both.vertical_flip, random):
        x, y = x[::-1], y[::-1]
    if _drawn(both.rotate90, random):
        # 0 to 3 quarter turns; 0 or 2 for an image that is not square, to keep the size.
        turns = int(random.integers(4)) if height == width else 2 * int(random.integers(2))
        x, y = np.rot90(x, turns), np.rot90(y, turns)
    places = _places(both, random, height, width)
    if places is None:
        x, y = x.copy(), y.copy()
    else:
        x, y = (warps.sampled(image, places, nearest=name in label_maps) for name, image in (("x", x), ("y", y)))
    if dropout := _drawn(both.coarse_dropout, random):
        sizes = (dropout.holes, dropout.height, dropout.width)
        for hole in warps.random_holes(random, height, width, *sizes):
            x[hole], y[hole] = 0, 0
    moved = transformed({"x": x, "y": y}, both.further, random, label_maps)
    return moved["x"], moved["y"]


def _places(both: GeometricTransforms, random: np.random.Generator, height: int, width: int) -> warps.Map | None:
    """Return the sampling map of the distortions, or None if none is drawn."""
    field = None
    if elastic := _drawn(both.elastic, random):
        field = warps.elastic_field(random, height, width, alpha=elastic.alpha, sigma=elastic.sigma)
    if lens := _drawn(both.optical_distortion, random):
        places = warps.lens_map(height, width, k=float(random.uniform(lens.min, lens.max)), mode=lens.mode)
        # The image is distorted elastically first; the map goes from result to image, so elastic comes last.
        return places if field is None else warps.displaced(places, field)
    return None if field is None else warps.pixel_grid(height, width) + field


def _varied(image: Image, settings: InputTransforms, random: np.random.Generator) -> Image:
    if jitter := _drawn(settings.colour_jitter, random):
        image = photometry.jittered(image, _tones(jitter, random))
    if noise := _drawn(settings.gaussian_noise, random):
        image = photometry.noisy(image, random, float(random.uniform(*noise.std)))
    if motion := _drawn(settings.motion_blur, random):
        image = photometry.blurred(image, _path(motion.limit, random))
    if gamma := _drawn(settings.gamma, random):
        image = photometry.with_gamma(image, float(random.uniform(*gamma.range)))
    if grey := _drawn(settings.greyscale, random):
        image = photometry.greyscale(image, grey.method)
    if compression := _drawn(settings.compression, random):
        quality = int(random.integers(*compression.quality, endpoint=True))
        image = photometry.compressed(image, compression.type, quality)
    return transformed({"x": image}, settings.further, random)["x"]


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


def _path(limit: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Draw a motion blur kernel."""
    size = 3 + 2 * int(random.integers((limit - 3) // 2, endpoint=True))
    reach = size // 2 / 2.0
    shift = float(random.uniform(-reach, reach)), float(random.uniform(-reach, reach))
    angle, bias = float(random.uniform(0.0, 360.0)), float(random.uniform(-1.0, 1.0))
    return photometry.motion_kernel(size, angle=angle, bias=bias, shift=shift)
