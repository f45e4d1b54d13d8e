"""The dataset of two sets of pictures that belong to no pairs: x from one, y drawn from the other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.pictures import SUFFIXES
from figura.base.raw_pictures import decode_raw
from figura.formats.prepared import Manifest
from figura.formats.split_advice import without_split
from figura.interfaces import Example, ExampleDataset

from .argument_types import Load, Sides, crop_and_load
from .augmentation import augment
from .augmentation_settings import GeometricTransforms, PairAugmentation
from .pairs import normalised, resized

TRUTH = "truth"


class UnpairedImages(ExampleDataset):
    """The pictures in `root/<split>/a` and `root/<split>/b`, subfolders included, each side sorted by path.

    With `direction` a_to_b, example i has picture i of A as x, and as y a picture of B, drawn independently of i and in
    each epoch anew; with b_to_a it is the other way round. `order: listed` takes picture i of both, so that an
    evaluation sees each of them. A side that has fewer pictures begins again: there are as many examples as pictures in
    the larger one. Each picture is resized to `load_size` and cropped to `crop_size`, as those of `images.ImagePairs`,
    at a random position if they differ; then `augmentation` follows. x and y are cropped and augmented independently.

    An example has `x` and `y`, float32 `(3, height, width)` in [-1, 1] (v / 127.5 - 1), RGB; `index`, an integer;
    `name`, the path of x without suffix. With `truth`, an example also has `truth`, what x looks like on the other
    side, cropped and augmented as x: the picture of the same name in `root/<split>/truth`, which drawn data have.

    `facts` are `image_size` (`crop_size`) and `direction`.

    Raises ValueError for a crop larger than `load_size` and for `truth` with b_to_a; UserError for a folder that is
    missing or empty, and for a picture that has no truth or cannot be read.
    """

    names: ClassVar[tuple[str, ...]] = ("x", "y", "index", "name")

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in an example, with `truth` if the arguments ask for it."""
        return (*cls.names, *((TRUTH,) if arguments.get("truth") else ()))

    @classmethod
    def facts(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return `image_size`, which is `crop_size`, and `direction`."""
        return {"image_size": arguments["crop_size"], "direction": arguments.get("direction", "a_to_b")}

    def __init__(
        self,
        *,
        root: str,
        split: str,
        crop_size: Sides,
        load_size: Load | None = None,
        direction: Literal["a_to_b", "b_to_a"] = "a_to_b",
        augmentation: GeometricTransforms | None = None,
        order: Literal["random", "listed"] = "random",
        truth: bool = False,
    ) -> None:
        self.crop, self.load = crop_and_load(crop_size, load_size)
        if truth and direction != "a_to_b":
            raise ValueError("truth: it is known of A's pictures alone, with direction a_to_b")
        self.augmentation = None if augmentation is None else PairAugmentation(both=augmentation)
        self.order, self.folder, self.manifest = order, Path(root, split), Manifest(Path(root))
        found = {side: self._found(side, split) for side in ("a", "b")}
        self.x, self.y = (found[side] for side in (("a", "b") if direction == "a_to_b" else ("b", "a")))
        self.truth = {self._name(path): path for path in self._found(TRUTH, split)} if truth else None
        if self.truth is not None and (without := [path for path in self.x if self._name(path) not in self.truth]):
            name = self._name(without[0])
            raise UserError(f"{self.folder / TRUTH}: has no picture {name!r}; `truth: false` needs none")

    def _found(self, side: str, split: str) -> list[Path]:
        folder = self.folder / side
        paths = sorted(folder / file for file in self.manifest.pictures(folder))
        if not self.manifest.has(folder):
            raise UserError(
                f"{folder}: no such folder; {without_split(self.manifest.root, split)}, or let root and split name a "
                f"folder with the folders a and b"
            )
        if not paths:
            raise UserError(f"{folder}: has no images ({', '.join(SUFFIXES)})")
        return paths

    def __len__(self) -> int:
        return max(len(self.x), len(self.y))

    def row(self, index: int) -> dict[str, int | float | str]:
        """Return the `name` of x and its `file` below the split's folder."""
        path = self.x[index % len(self.x)]
        return {"name": self._name(path), "file": path.relative_to(self.folder).as_posix()}

    def _name(self, path: Path) -> str:
        """Return the path of a picture below its side's folder, without suffix."""
        return Path(*path.relative_to(self.folder).with_suffix("").parts[1:]).as_posix()

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Return example `index`; `random` draws y, the crops and the augmentation."""
        place = int(random.integers(len(self.y))) if self.order == "random" else index % len(self.y)
        path = self.x[index % len(self.x)]
        x = self._read(path)
        truth = x if self.truth is None else self._read(self.truth[self._name(path)])
        y = self._read(self.y[place])
        x, truth = augment(x, truth, self.augmentation, self.crop, random, ())
        y, _ = augment(y, y, self.augmentation, self.crop, random, ())
        example: Example = {"x": normalised(x), "y": normalised(y), "index": index, "name": self._name(path)}
        return example | ({} if self.truth is None else {TRUTH: normalised(truth)})

    def _read(self, path: Path) -> NDArray[np.uint8]:
        picture = decode_raw(self.manifest.read_bytes(path), path, advice="remove it").pixels
        return resized(picture, self.load, nearest=False)
