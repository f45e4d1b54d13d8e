"""Features of a dump's images, for scores that compare two sets of images as distributions.

Extractors, for images (3 or 1, H, W) in [-1, 1]:

- `random`: pixel means of relu1_2 (64) and relu2_2 (128) of VGG19 with seeded random weights, 192 dimensions, offline.
They capture colours and small patterns; values are comparable only with each other.
- `vgg`: pixel means of relu5_2 of VGG19 with ImageNet's weights, 512 dimensions; images of 16 px or more.
- `inception`: FID's Inception-v3, 2048 dimensions (see `inception.load`).
- `saved`: the named values are features (D,), or maps (D, ...) to average over pixels. The mode saves them as `array`,
from any network called by its `Forward` injectors.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from figura.base.errors import UserError
from figura.dump import Dump
from figura.report.interfaces import Score, Values
from models.images import inception, vgg
from models.images.scores import stacks

RANDOM_LAYERS = ("relu1_2", "relu2_2")  # 64 + 128 dimensions
DEEP_LAYER = "relu5_2"
BATCH = 32  # images in memory at a time
Extract = Callable[[Tensor], Values]  # images (N, C, H, W) to features (N, dimensions)
Extractor = Literal["random", "vgg", "inception", "saved"]


class SetScore(Score):
    """Base class of distances between sets: selects images, targets and their features.

    `image` names the images to score. For a baseline, `image` may name an input, or `average` a training mean, used for
    every image. `weights` is a file for `inception`, a file or `hub` for `vgg`; other extractors have none.
    """

    def __init__(
        self,
        mode: str,
        target: str,
        extractor: Extractor,
        image: str | None = None,
        average: str | None = None,
        weights: str | None = None,
        seed: int = 0,
    ) -> None:
        if (image is None) == (average is None):
            raise ValueError("write either image or average")
        if extractor not in ("random", "vgg", "inception", "saved"):
            raise ValueError(f"extractor {extractor!r}: write random, vgg, inception or saved")
        if (extractor in ("vgg", "inception")) != (weights is not None):
            raise ValueError(
                f"weights {weights!r}: inception needs the path of a file, vgg that or hub; random and saved take none"
            )
        self.mode, self.target, self.image, self.average = mode, target, image, average
        self.extractor, self.weights, self.seed = extractor, weights, seed

    def extract(self) -> Extract:
        """Load the network and return its features as a function of images."""
        if self.extractor == "saved":
            return lambda features: _vectors(pixel_means(features))
        if self.extractor == "inception":
            network = inception.load(str(self.weights))
            return lambda images: _vectors(network(vgg.as_rgb(images)))
        if self.extractor == "random":
            stack = vgg.load("random", seed=self.seed)
            return lambda images: _vectors(random_features(stack, images))
        trained = vgg.load(str(self.weights))
        return lambda images: _vectors(pixel_means(trained.features(images, {DEEP_LAYER})[DEEP_LAYER]))

    def of_average(self, rows: Dump, extract: Extract) -> Values:
        """Return the features (1, dimensions) of the training mean."""
        return extract(torch.from_numpy(rows.average(str(self.average)))[None])


def random_features(network: vgg.VGG19, images: Tensor) -> Tensor:
    """(N, 3 or 1, H, W) in [-1, 1] -> (N, 192): pixel means of the maps in `RANDOM_LAYERS`."""
    maps = network.features(images, set(RANDOM_LAYERS))
    return torch.cat([pixel_means(maps[name]) for name in RANDOM_LAYERS], dim=1)


def pixel_means(maps: Tensor) -> Tensor:
    """(N, D, ...) -> (N, D)."""
    return maps.flatten(2).mean(dim=2) if maps.ndim > 2 else maps


def check_widths(rows: Dump, image: Values, target: Values) -> None:
    """Raise UserError unless features of images and of targets have the same dimensions, the last axis."""
    if image.shape[-1] != target.shape[-1]:
        raise UserError(
            f"{rows.folder}: mode {rows.part!r}: features of images have {image.shape[-1]} dimensions, those of "
            f"targets {target.shape[-1]}; they must be the same"
        )


@torch.no_grad()
def batches_of(rows: Dump, name: str, extract: Extract, places: Iterable[int] | None = None) -> Iterator[Values]:
    """Yield the features (n, dimensions), n <= `BATCH`, of one file of each row, or only of the rows `places`.

    Raises:
        UserError: a feature is not finite, or rows differ in their dimensions.
    """
    first: Values | None = None
    for (images,) in stacks(rows, [name], BATCH, places):
        features = extract(images)
        first = features if first is None else first
        if features.ndim != 2 or features.shape[1] != first.shape[1]:
            raise UserError(f"{rows.folder}: mode {rows.part!r}: features of {name!r} differ in their dimensions")
        if not np.isfinite(features).all():
            raise UserError(f"{rows.folder}: {name!r} holds images with values that are no finite numbers")
        yield features


def _vectors(features: Tensor) -> Values:
    return np.asarray(features.double().numpy())
