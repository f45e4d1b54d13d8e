"""Transforms of the package albumentations in the entry `augmentation` of a dataset, by their own names.

Its numbers are drawn from a seed of the example, so that an example is the same in any order and with any number of
workers.
"""

import json
import os
from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from figura.base.error_collector import ErrorCollector, NestedError
from figura.base.errors import UserError, install
from figura.recipe.schema import Declaration
from figura.recipe.types import Slot, construct

Image = NDArray[np.uint8]
Entries = dict[str, Declaration]

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # its import asks the internet for newer versions
ANY = Slot("transform", "albumentations.BasicTransform")
OF_AN_IMAGE = Slot("transform of one image", "albumentations.ImageOnlyTransform")


def _built(entries: Mapping[str, Declaration], slot: Slot) -> list[Any]:
    """Construct transforms. Raises ValueError if the package is missing or a declaration is wrong."""
    try:
        import_module("albumentations")
    except ModuleNotFoundError as error:
        raise ValueError(f"the package {error.name} is not installed; {install('albumentations')}") from None
    errors = ErrorCollector(Path("augmentation"))
    built = [construct(entry.type, entry.arguments, slot, name, errors) for name, entry in entries.items()]
    if errors.lines:
        raise NestedError(errors)
    return built


def check(entries: Entries, one_image: bool) -> None:
    """Check transforms, of which `one_image` allows those of one image alone. Raises ValueError."""
    _built(entries, OF_AN_IMAGE if one_image else ANY)


def transformed(
    images: dict[str, Image], entries: Entries, random: np.random.Generator, label_maps: Collection[str] = ()
) -> dict[str, Image]:
    """Return images of one size, uint8 (H, W, C), transformed alike; those in `label_maps` get no new colours.

    Raises:
        UserError: a transform fails, or changes a size or the number of channels.
    """
    plain = [name for name in images if name not in label_maps]
    first = next(iter(plain or images))  # albumentations wants something called `image`
    kinds = {name: "image" if name in plain else "mask" for name in images if name != first or not plain}
    made = _applied(
        entries, random, tuple(kinds.items()), image=images[first], **{name: images[name] for name in kinds}
    )
    results = {name: made[name if name in kinds else "image"] for name in images}
    return {name: _of_its_size(name, result, images[name]) for name, result in results.items()}


def transformed_with_points(
    image: Image, points: NDArray[np.float64], entries: Entries, random: np.random.Generator
) -> tuple[Image, NDArray[np.float64]]:
    """Return an image, uint8 (H, W, 3), and where its points (n, 2), x and y in pixels, have moved.

    Raises:
        UserError: see `transformed`; or a transform loses points, as some distortions do.
    """
    made = _applied(entries, random, None, image=image, keypoints=points)
    moved = np.asarray(made["keypoints"], dtype=np.float64).reshape(-1, 2)
    if len(moved) != len(points):
        raise UserError(
            f"albumentations: {len(moved)} of {len(points)} points come back; joints need a transform that keeps each, "
            "such as Affine, Perspective and flips"
        )
    return _of_its_size("the picture", made["image"], image), moved


def _applied(
    entries: Entries, random: np.random.Generator, kinds: tuple[tuple[str, str], ...] | None, **given: Any
) -> dict[str, Any]:
    """Apply the transforms; `kinds` are the targets beside `image`, None for keypoints."""
    transform = _composed(json.dumps({name: entry.model_dump() for name, entry in entries.items()}), kinds)
    transform.set_random_seed(int(random.integers(2**32)))
    try:
        made: dict[str, Any] = transform(**given)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"albumentations: {error}") from error
    return made


def _of_its_size(name: str, result: Any, image: Image) -> Image:
    if result.shape != image.shape or result.dtype != np.uint8:
        raise UserError(
            f"albumentations: {name} of shape {image.shape} became {result.shape} of {result.dtype}; a transform keeps "
            "them: figura itself crops and resizes"
        )
    return np.ascontiguousarray(result)


@cache
def _composed(content: str, kinds: tuple[tuple[str, str], ...] | None) -> Any:
    """Return one transform of several; see `_applied`."""
    package: Any = import_module("albumentations")
    built = _built({name: Declaration(**entry) for name, entry in json.loads(content).items()}, ANY)
    if kinds is None:
        return package.Compose(built, keypoint_params=package.KeypointParams(format="xy", remove_invisible=False))
    return package.Compose(built, additional_targets=dict(kinds))
