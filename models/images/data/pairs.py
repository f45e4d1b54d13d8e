"""Pairs of an input and the image it should be turned into, read from a folder."""

import os
from pathlib import Path
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from data.formats.pair_files import LAYOUTS, Fault, find_pairs, load_pair, with_channels
from models.base.errors import UserError
from models.images.data.augmentation import Augmentation, augment
from models.interfaces import Example, Examples

_SHOWN = 10  # faults in a message

Side = Literal["x", "y"]


class ImagePairs(Examples):
    """The pairs in `root/<split>`, by name; `data.formats.pair_files` says which files make pairs.

    `direction` says which of A and B is the input x and which the target y. Each image is turned into `x_channels` or
    `y_channels` (1 is grey), resized to `load_size` and cut to `crop_size`, both a side or (height, width) in pixels:
    at a random position where they differ, alike for x and y. Then come the other changes that `augmentation` asks
    for. Images shrink by area and grow bicubically, those named in `label_maps` by nearest neighbour, so that no
    colours arise that stand for nothing. A|B images are cut in halves first: no half bleeds into the other.

    An example has `x` and `y`, float32 `(channels, height, width)` in [-1, 1] (v / 127.5 - 1), RGB or grey; `index`, an
    integer; `name`, the file's without suffix.

    Raises ValueError for sizes out of range, and UserError for a folder that is missing, empty, or has files without
    partner, all of them at once. What only shows when a file is read raises UserError then; `prepare` finds it before.
    """

    names: ClassVar[tuple[str, ...]] = ("x", "y", "index", "name")

    def __init__(
        self,
        *,
        root: str,
        split: str,
        direction: Literal["a_to_b", "b_to_a"],
        load_size: int | tuple[int, int],
        crop_size: int | tuple[int, int],
        x_channels: Literal[1, 3] = 3,
        y_channels: Literal[1, 3] = 3,
        label_maps: tuple[Side, ...] = (),
        augmentation: Augmentation | None = None,
    ) -> None:
        self.direction = _one_of("direction", direction, ("a_to_b", "b_to_a"))
        self.load_size, self.crop_size = _sides("load_size", load_size), _sides("crop_size", crop_size)
        if any(crop > load for crop, load in zip(self.crop_size, self.load_size, strict=True)):
            raise ValueError(f"crop_size {crop_size}: at most load_size, {load_size}, is needed in both directions")
        self.channels: dict[Side, Literal[1, 3]] = {
            "x": _one_of("x_channels", x_channels, (1, 3)),
            "y": _one_of("y_channels", y_channels, (1, 3)),
        }
        self.label_maps = frozenset(_one_of("label_maps", side, ("x", "y")) for side in label_maps)
        self.augmentation = augmentation
        self.folder = Path(root, split)
        if not self.folder.is_dir():
            raise UserError(
                f"{self.folder}: no such folder; run `dvc repro prepare@{Path(root).name}`, or let root and split "
                f"name a folder of {LAYOUTS}"
            )
        self.pairs, faults = find_pairs(self.folder, Path(root))
        if faults:
            raise UserError(_said(self.folder, faults))
        if not self.pairs:
            raise UserError(f"{self.folder}: has no image pairs; it may hold {LAYOUTS}")

    def __len__(self) -> int:
        return len(self.pairs)

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Example `index`; `random` chooses the crop and the augmentation, nothing where both are off."""
        loaded = load_pair(self.folder, self.pairs[index])
        if isinstance(loaded, Fault):
            raise UserError(_said(self.folder, [loaded]))
        x, y = (loaded.a, loaded.b) if self.direction == "a_to_b" else (loaded.b, loaded.a)
        x, y = self._prepared(x, "x"), self._prepared(y, "y")
        x, y = augment(x, y, self.augmentation, self.crop_size, random, self.label_maps)
        return {"x": normalised(x), "y": normalised(y), "index": index, "name": self.pairs[index].name}

    def _prepared(self, image: NDArray[np.uint8], side: Side) -> NDArray[np.uint8]:
        return resized(with_channels(image, self.channels[side]), self.load_size, nearest=side in self.label_maps)


def resized(image: NDArray[np.uint8], size: tuple[int, int], nearest: bool) -> NDArray[np.uint8]:
    """`image` `(H, W, channels)`, uint8, at `size` (height, width), contiguous; by area where a side shrinks, then
    bicubically where one grows; or by `nearest` neighbour, of pixel centres.
    """
    if nearest:
        steps = [(size, cv2.INTER_NEAREST_EXACT)]
    else:
        smaller = (min(size[0], image.shape[0]), min(size[1], image.shape[1]))
        steps = [(smaller, cv2.INTER_AREA), (size, cv2.INTER_CUBIC)]
    channels = image.shape[2]
    for (height, width), method in steps:
        if image.shape[:2] != (height, width):
            image = np.asarray(cv2.resize(image, (width, height), interpolation=method), dtype=np.uint8)
    return np.ascontiguousarray(image).reshape(*size, channels)  # OpenCV drops an axis of one channel


def normalised(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """uint8 `(height, width, channels)` as float32 `(channels, height, width)`: v / 127.5 - 1, in [-1, 1]."""
    values = np.ascontiguousarray(image.transpose(2, 0, 1)).astype(np.float32)
    values /= 127.5
    values -= 1
    return values


def _sides(name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise ValueError(f"{name} {size}: a whole number of at least 1, or two (height, width), is needed")
    return height, width


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise ValueError(f"{name} {value!r}: one of {', '.join(map(repr, allowed))} is needed")
    return value


def _said(folder: Path, faults: list[Fault]) -> str:
    """One message for all faults, with the first of them in full."""
    lines = [f"  {os.path.join(folder, one.file)}: {one.reason} ({one.detail})" for one in faults[:_SHOWN]]
    if len(faults) > _SHOWN:
        lines.append(f"  and {len(faults) - _SHOWN} more")
    pairs = "1 pair" if len(faults) == 1 else f"{len(faults)} pairs"
    remedy = "mend or remove the files, or make this folder a dataset of kind `paired` in data/params.yaml"
    return "\n".join([f"{folder}: {pairs} cannot be used; {remedy}, for `prepare` leaves such pairs out", *lines])
