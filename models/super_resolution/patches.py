"""Dataset of image patches and their degraded, smaller versions, from a folder of images."""

import sys
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from figura.base.errors import UserError
from figura.base.pictures import SUFFIXES
from figura.base.raw_pictures import Facts, decode_raw, picture_facts
from figura.formats.prepared import Manifest
from figura.formats.split_advice import without_split
from figura.interfaces import Example, ExampleDataset

from ..images.argument_types import Count
from ..images.augmentation import augment
from ..images.augmentation_settings import GeometricTransforms, PairAugmentation
from ..images.pairs import normalised
from ..images.photometry import Image
from .degradation_settings import Degradation, Sharpening
from .degradations import degraded, sharpened
from .resampling import Kernel, resample

GREY = ("1", "L", "LA", "I;16", "I;16B")  # Pillow's modes of files with one channel of colour


class Patches(ExampleDataset):
    """One patch of each image below `root/<split>`, or `root/images/<split>` of a prepared dataset, sorted by path.

    A patch is a square of `size` pixels, a multiple of `scale`, at a `random` position or in the `centre`. Without
    `size`, the patch is the full image, cropped at the bottom and right to multiples of `scale`. Images smaller than a
    patch are skipped, with a warning that has their number. Then `augmentation` transforms the patch, and `degradation`
    converts it to the network's input. The default degradation is the bicubic downsampling of the papers' benchmarks.
    With `sharpening`, the sharpened patch is degraded.
    `baselines` are kernels for upsampling the input, for comparison.

    An example has `hq`, the patch, and `lq`, the input, float32 `(3, height, width)` and `(3, height / scale, width /
    scale)` in [-1, 1] (v / 127.5 - 1), RGB; with `sharpening`, `sharp`; each baseline under its own name, both of hq's
    size; `index`, an integer, and `name`, the path below the split's folder without suffix; `grey`, 1 for a file of one
    channel of colour, else 0.

    Raises ValueError for a `size` that is no multiple of `scale`, and UserError for a folder that is missing or has no
    image as large as a patch. An unreadable image, or a small one whose header has no size, raises UserError when it is
    read.
    """

    names: ClassVar[tuple[str, ...]] = ("lq", "hq", "index", "name", "grey")

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in an example, including those of the baselines in the arguments."""
        return (*cls.names, *(["sharp"] if arguments.get("sharpening") else []), *arguments.get("baselines", ()))

    @classmethod
    def facts(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return `scale`, and the side of patches as `image_size`."""
        size = arguments.get("size")
        return {"scale": arguments["scale"]} | ({} if size is None else {"image_size": size})

    def __init__(
        self,
        *,
        root: str,
        split: str,
        scale: Count,
        size: Count | None,
        crop: Literal["random", "centre"] = "centre",
        augmentation: GeometricTransforms | None = None,
        degradation: Degradation | None = None,
        sharpening: Sharpening | None = None,
        baselines: tuple[Kernel, ...] = (),
    ) -> None:
        if size is not None and size % scale:
            raise ValueError(f"size {size}: a multiple of scale, {scale}, is needed; or null for whole images")
        self.scale, self.size, self.crop, self.baselines = scale, size, crop, baselines
        self.degradation = degradation or Degradation(kernels={"bicubic": 1.0})
        self.sharpening = sharpening
        self.augmentation = None if augmentation is None else PairAugmentation(both=augmentation)
        self.manifest = Manifest(Path(root))
        self.folder = split_folder(self.manifest, split)
        paths = sorted(map(Path, self.manifest.pictures(self.folder)))
        if not paths:
            raise UserError(f"{self.folder}: has no images ({', '.join(SUFFIXES)})")
        facts = [header_facts(self.manifest, self.folder / path) for path in paths]
        sizes = [None if one is None else one.upright[::-1] for one in facts]
        least = size or scale
        large_enough = [place for place, one in enumerate(sizes) if one is None or min(one) >= least]
        if not large_enough:
            largest = max((one for one in sizes if one is not None), key=min)
            raise UserError(
                f"{self.folder}: all {len(paths)} images are smaller than {least} x {least} pixels, a patch; the "
                f"largest has {largest[1]} x {largest[0]}"
            )
        if len(large_enough) < len(paths):
            print(
                f"warning: {self.folder}: {len(paths) - len(large_enough)} of {len(paths)} images are smaller than "
                f"{least} x {least} pixels, a patch, and are left out",
                file=sys.stderr,
                flush=True,
            )
        self.paths = [paths[place] for place in large_enough]
        self.sizes = [sizes[place] for place in large_enough]
        self.grey = [one is not None and one.mode in GREY for one in map(facts.__getitem__, large_enough)]

    def __len__(self) -> int:
        return len(self.paths)

    def group(self, index: int) -> Hashable:
        """Patches of `size` share batches; so do full images of the same size."""
        if self.size is not None:
            return None
        size = self.sizes[index]
        return index if size is None else tuple(side // self.scale for side in size)

    def row(self, index: int) -> dict[str, int | float | str]:
        """Return the `file` of the image below the split's folder, and its size in pixels if the header has it."""
        row: dict[str, int | float | str] = {"file": self.paths[index].as_posix()}
        if (size := self.sizes[index]) is not None:
            row["height"], row["width"] = size
        return row

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Return example `index`; `random` draws the position, the augmentation and the degradation."""
        path = self.folder / self.paths[index]
        content, least = self.manifest.read_bytes(path), self.size or self.scale
        image = decode_raw(content, path, advice="remove it").pixels
        height, width = image.shape[:2]
        if min(height, width) < least:  # the size was not in the header
            raise UserError(f"{path}: {width} x {height} pixels, smaller than {least} x {least}, a patch; remove it")
        lq, hq, sharp = self._pictures(image, index, random)
        size = (hq.shape[0], hq.shape[1])
        others: Example = {kernel: normalised(resample(lq, size, kernel)) for kernel in self.baselines}
        if self.sharpening is not None:
            others["sharp"] = normalised(sharp)
        name = self.paths[index].with_suffix("").as_posix()
        grey = int(self.grey[index])
        return {"lq": normalised(lq), "hq": normalised(hq), **others, "index": index, "name": name, "grey": grey}

    def _pictures(self, image: Image, index: int, random: np.random.Generator) -> tuple[Image, Image, Image]:
        """Return the input, the patch, and the sharpened patch, uint8 (height, width, 3), of an image."""
        hq = self._patch(image, random)
        sharp = hq if self.sharpening is None else sharpened(hq, self.sharpening)
        return degraded(sharp, self.degradation, self.scale, random), hq, sharp

    def _patch(self, image: Image, random: np.random.Generator) -> Image:
        height, width = image.shape[:2]
        if self.size is None:
            image = image[: height - height % self.scale, : width - width % self.scale]
        elif self.crop == "centre":
            top, left = (height - self.size) // 2, (width - self.size) // 2
            image = image[top : top + self.size, left : left + self.size]
        crop = (image.shape[0], image.shape[1]) if self.size is None else (self.size, self.size)
        return augment(image, image, self.augmentation, crop, random, ())[0]


def header_facts(manifest: Manifest, path: Path) -> Facts | None:
    """Return what the file's header says, or None if it cannot be read (reading the image reports why)."""
    try:
        return picture_facts(path, manifest.member(path))
    except UserError:
        return None


def split_folder(manifest: Manifest, split: str) -> Path:
    """Return the folder of a split's images, which may be in archives. Raises UserError if there is none."""
    root = manifest.root
    prepared, plain = root / "images" / split, root / split
    folder = prepared if manifest.has(prepared) else plain
    if not manifest.has(folder):
        raise UserError(
            f"{folder}: no such folder, and no {prepared}; {without_split(root, split)}, or let root and split name a "
            "folder of images"
        )
    return folder
