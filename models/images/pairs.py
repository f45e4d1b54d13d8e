"""The dataset of image pairs, input x and target y, read from a folder."""

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.sampling import evenly_spaced
from figura.formats.pair_files import LAYOUTS, Fault, find_pairs, load_pair, with_channels
from figura.formats.prepared import Manifest
from figura.formats.split_advice import without_split
from figura.interfaces import Example, ExampleDataset

from .argument_types import Load, Sides, crop_and_load
from .augmentation import PairAugmentation, augment

LEVELS = 16  # of each channel of an input, in a palette
PALETTE_PAIRS = 1000  # that a palette is made of, at most
LINEAR_VALUES = 2**26  # of all inputs that a linear map is fitted to, at most
_SHOWN = 10  # faults listed in a message

Side = Literal["x", "y"]


class ImagePairs(ExampleDataset):
    """The pairs in `root/<split>`, sorted by name; for the layouts, see `figura.formats.pair_files`.

    `direction` selects which of A and B is the input x and which the target y. Each image is converted to `x_channels`
    or `y_channels` (1 is grey), resized to `load_size` and cropped to `crop_size`, both a side or (height, width) in
    pixels; `load_size` defaults to the same, and 1.03 is a factor of it, rounded. If the sizes differ, the crop is at a
    random position, the same for x and y; then the transforms of `augmentation` follow. Images shrink by area and grow
    bicubically. Those named in `label_maps` are resized by nearest neighbour, which creates no new colours. A|B images
    are cut in halves first, so that they do not bleed into each other.

    An example has `x` and `y`, float32 `(channels, height, width)` in [-1, 1] (v / 127.5 - 1), RGB or grey; `index`, an
    integer; `name`, the file's name without suffix. With `baselines`, the name of a split, an example also has three
    pictures of y's shape, to compare a network with: `palette`, where each pixel has the mean colour that targets of
    this split have where the input has the colour of x, rounded to 16 levels a channel (the mean of all pixels, if it
    has no such colour; of at most 1000 pairs); `linear`, a linear map of the whole x, fitted to the split by ridge
    regression (of as many pairs as have 2^26 values of x; the penalty is their mean squared norm); and `other`, the
    target of an unrelated pair of this split. Pairs of the split are resized to `crop_size`, without augmentation.

    `facts` are `image_size` (`crop_size`), `direction`, `x_channels`, `y_channels` and `label_maps`, if given.

    Raises ValueError for a crop larger than `load_size`, and UserError, listing all faults, for a folder that is
    missing, empty, or has files without a partner. An unreadable file raises UserError when it is read, unless found by
    `prepare`.
    """

    names: ClassVar[tuple[str, ...]] = ("x", "y", "index", "name")

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in an example, with those of `baselines` if the arguments have them."""
        return (*cls.names, *(("palette", "linear", "other") if arguments.get("baselines") is not None else ()))

    def __init__(
        self,
        *,
        root: str,
        split: str,
        direction: Literal["a_to_b", "b_to_a"],
        crop_size: Sides,
        load_size: Load | None = None,
        x_channels: Literal[1, 3] = 3,
        y_channels: Literal[1, 3] = 3,
        label_maps: tuple[Side, ...] = (),
        augmentation: PairAugmentation | None = None,
        baselines: str | None = None,
    ) -> None:
        self.direction = direction
        self.crop_size, self.load_size = crop_and_load(crop_size, load_size)
        self.channels: dict[Side, Literal[1, 3]] = {"x": x_channels, "y": y_channels}
        self.label_maps = frozenset(label_maps)
        self.augmentation = augmentation
        self.folder = Path(root, split)
        self.manifest = Manifest(Path(root))
        if not self.manifest.has(self.folder):
            raise UserError(
                f"{self.folder}: no such folder; {without_split(Path(root), split)}, or let root and split name a "
                f"folder of {LAYOUTS}"
            )
        archived = self.manifest.archived(self.folder)
        self.pairs, faults = find_pairs(self.folder, Path(root), archived=archived)
        if faults:
            raise UserError(_said(self.folder, faults))
        if not self.pairs:
            raise UserError(f"{self.folder}: has no image pairs; it may hold {LAYOUTS}")
        self.manifest.check_count(self.folder, sum(len(pair.files) for pair in self.pairs) - len(archived))
        self.unrelated: ImagePairs | None = None
        if baselines is not None:
            self.unrelated = ImagePairs(
                root=root,
                split=baselines,
                direction=direction,
                crop_size=crop_size,
                x_channels=x_channels,
                y_channels=y_channels,
                label_maps=label_maps,
            )

    @classmethod
    def facts(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return `image_size`, which is `crop_size`, and `direction`, channels and `label_maps` as in the recipe."""
        same = ("direction", "x_channels", "y_channels", "label_maps")
        return {
            "image_size": arguments["crop_size"], **{name: arguments[name] for name in same if name in arguments}
        }  # fmt: skip

    def __len__(self) -> int:
        return len(self.pairs)

    def row(self, index: int) -> dict[str, int | float | str]:
        """Return the `name` of the pair and its `file`, or both files separated by a comma."""
        pair = self.pairs[index]
        return {"name": pair.name, "file": ", ".join(pair.files)}

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Return example `index`; `random` draws the crop and the augmentation."""
        loaded = load_pair(self.folder, self.pairs[index], self.manifest.read_bytes)
        if isinstance(loaded, Fault):
            raise UserError(_said(self.folder, [loaded]))
        x, y = (loaded.a, loaded.b) if self.direction == "a_to_b" else (loaded.b, loaded.a)
        x, y = self._prepared(x, "x"), self._prepared(y, "y")
        x, y = augment(x, y, self.augmentation, self.crop_size, random, self.label_maps)
        example: Example = {
            "x": normalised(x), "y": normalised(y), "index": index, "name": self.pairs[index].name
        }  # fmt: skip
        return example | self._baselines(example["x"], index, random)

    def _baselines(self, x: NDArray[np.float32], index: int, random: np.random.Generator) -> Example:
        if self.unrelated is None:
            return {}
        count = len(self.unrelated)
        other = (index * count // len(self) + count // 2) % count  # in the same split, not the pair itself
        palette = np.ascontiguousarray(self._palette[_colours(x)].transpose(2, 0, 1))
        unrelated = self.unrelated.example(other, random)["y"]
        centre, inputs, weights, mean = self._linear
        linear = np.clip(mean + (x.ravel() - centre) @ inputs.T @ weights, -1, 1)
        return {"palette": palette, "linear": linear.reshape(unrelated.shape), "other": unrelated}

    @cached_property
    def _palette(self) -> NDArray[np.float32]:
        """The mean colour of targets for each colour of inputs, (colours, channels of targets)."""
        assert self.unrelated is not None
        colours = LEVELS ** self.channels["x"]
        sums, counts = np.zeros((self.channels["y"], colours)), np.zeros(colours)
        for index in evenly_spaced(len(self.unrelated), PALETTE_PAIRS):
            pair = self.unrelated.example(index, np.random.default_rng(0))  # draws nothing
            places = _colours(pair["x"]).ravel()
            counts += np.bincount(places, minlength=colours)
            sums += [np.bincount(places, channel.ravel(), colours) for channel in pair["y"]]
        means = np.where(counts > 0, sums / np.maximum(counts, 1), sums.sum(axis=1, keepdims=True) / counts.sum())
        return means.T.astype(np.float32)

    @cached_property
    def _linear(self) -> tuple[NDArray[np.float32], ...]:
        """Ridge regression of targets on n inputs: the inputs' mean (p,), the inputs (n, p), weights (n, q), mean (q,).

        The prediction is `mean + (x - centre) inputs' weights`, by n x n products (Saunders, Gammerman and Vovk 1998,
        "Ridge regression learning algorithm in dual variables").
        """
        assert self.unrelated is not None
        first = self.unrelated.example(0, np.random.default_rng(0))  # draws nothing
        places = evenly_spaced(len(self.unrelated), max(1, LINEAR_VALUES // first["x"].size))
        pairs = [self.unrelated.example(index, np.random.default_rng(0)) for index in places]
        x, y = (np.stack([pair[side].ravel() for pair in pairs]) for side in ("x", "y"))
        centre, mean = x.mean(axis=0), y.mean(axis=0)
        x -= centre
        products = x.astype(np.float64) @ x.T.astype(np.float64)
        penalty = max(float(products.trace()) / len(products), 1e-12) * np.eye(len(products))
        return centre, x, np.linalg.solve(products + penalty, y - mean).astype(np.float32), mean

    def _prepared(self, image: NDArray[np.uint8], side: Side) -> NDArray[np.uint8]:
        return resized(with_channels(image, self.channels[side]), self.load_size, nearest=side in self.label_maps)


def resized(image: NDArray[np.uint8], size: tuple[int, int], nearest: bool) -> NDArray[np.uint8]:
    """Resize uint8 `(H, W, channels)` to `size` (height, width); the result is contiguous.

    Sides that shrink are resized by area, then sides that grow bicubically; or both by `nearest` neighbour, with pixel
    centres aligned.
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
    return np.ascontiguousarray(image).reshape(*size, channels)  # OpenCV drops a channel axis of size 1


def normalised(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Convert uint8 `(height, width, channels)` to float32 `(channels, height, width)` in [-1, 1]: v / 127.5 - 1."""
    values = np.ascontiguousarray(image.transpose(2, 0, 1)).astype(np.float32)
    values /= 127.5
    values -= 1
    return values


def _colours(image: NDArray[np.float32]) -> NDArray[np.intp]:
    """Return the number (height, width) of each pixel's colour; an image (channels, height, width) in [-1, 1]."""
    levels = np.minimum((image + 1) * (LEVELS / 2), LEVELS - 1).astype(np.intp)
    return np.asarray(np.ravel_multi_index(tuple(levels), (LEVELS,) * len(levels)))


def _said(folder: Path, faults: list[Fault]) -> str:
    """Return one message that counts all faults and describes the first ones."""
    lines = [f"  {os.path.join(folder, one.file)}: {one.reason} ({one.detail})" for one in faults[:_SHOWN]]
    if len(faults) > _SHOWN:
        lines.append(f"  and {len(faults) - _SHOWN} more")
    pairs = "1 pair" if len(faults) == 1 else f"{len(faults)} pairs"
    remedy = "mend or remove the files, or make this folder a dataset of kind `paired` in data/params.yaml"
    return "\n".join([f"{folder}: {pairs} cannot be used; {remedy}: `prepare` leaves such pairs out", *lines])
