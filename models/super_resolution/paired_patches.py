"""Dataset of image patches whose small versions are files, too."""

from pathlib import Path
from typing import Literal

import numpy as np

from figura.base.errors import UserError
from figura.base.raw_pictures import decode_raw

from ..images.argument_types import Count
from ..images.augmentation import augment
from ..images.augmentation_settings import GeometricTransforms, PairAugmentation
from ..images.photometry import Image
from .patches import Patches, header_facts, split_folder
from .resampling import Kernel


class PairedPatches(Patches):
    """`Patches` whose inputs are read from another split, `small`, of the same dataset.

    The small version of an image has its path, with any suffix; its name may end in `x<scale>`, as in DIV2K. It is as
    large as the image divided by `scale`, rounded down. `augmentation` flips and turns both.

    Raises UserError for images without a small version or with one of another size (when it is read, if its header has
    none); ValueError for a transform that would not move both alike. Otherwise like `Patches`.
    """

    def __init__(
        self,
        *,
        root: str,
        split: str,
        small: str,
        scale: Count,
        size: Count | None,
        crop: Literal["random", "centre"] = "centre",
        augmentation: GeometricTransforms | None = None,
        baselines: tuple[Kernel, ...] = (),
    ) -> None:
        super().__init__(
            root=root, split=split, scale=scale, size=size, crop=crop, augmentation=augmentation, baselines=baselines
        )
        if augmentation is not None and augmentation.further:
            raise ValueError("augmentation.further: a pair of sizes can only be flipped and turned")
        self.small_folder = split_folder(self.manifest, small)
        small_paths = sorted(map(Path, self.manifest.pictures(self.small_folder)))
        files = {path.with_suffix("").as_posix(): path for path in small_paths}
        stems = [path.with_suffix("").as_posix() for path in self.paths]
        found = [files.get(stem, files.get(f"{stem}x{scale}")) for stem in stems]
        if missing := [path for path, one in zip(self.paths, found, strict=True) if one is None]:
            raise UserError(
                f"{self.small_folder}: {len(missing)} of {len(found)} images have no small version there, such as "
                f"{missing[0]} (or {missing[0].stem}x{scale}{missing[0].suffix})"
            )
        self.small_paths = [one for one in found if one is not None]
        if wrong := [fault for place in range(len(found)) if (fault := self._misfit(place))]:
            count = f"{len(wrong)} of {len(found)}"
            raise UserError(f"{self.small_folder}: {count} small versions have another size; the first, {wrong[0]}")

    def _misfit(self, place: int) -> str:
        """Return what is wrong with the size of a small version by its header; empty if nothing is."""
        whole, small = self.sizes[place], header_facts(self.manifest, self.small_folder / self.small_paths[place])
        if whole is None or small is None:
            return ""
        return self._fault(place, (whole[0] // self.scale, whole[1] // self.scale), small.upright[::-1])

    def _fault(self, place: int, expected: tuple[int, ...], found: tuple[int, ...]) -> str:
        if found == expected:
            return ""
        should = f"the small version of {self.paths[place]} has {expected[1]} x {expected[0]}"
        return f"{self.small_paths[place]}: {found[1]} x {found[0]} pixels; at scale {self.scale}, {should}"

    def _pictures(self, image: Image, index: int, random: np.random.Generator) -> tuple[Image, Image, Image]:
        path = self.small_folder / self.small_paths[index]
        lq = decode_raw(self.manifest.read_bytes(path), path, advice="remove it").pixels
        expected = (image.shape[0] // self.scale, image.shape[1] // self.scale)
        if fault := self._fault(index, expected, lq.shape[:2]):  # the size was not in the header
            raise UserError(f"{self.small_folder}: {fault}")
        height, width = expected if self.size is None else (self.size // self.scale,) * 2
        room = (expected[0] - height, expected[1] - width)
        if self.crop == "random":
            top, left = (int(random.integers(one, endpoint=True)) for one in room)
        else:
            top, left = (one // 2 for one in room)
        lq = lq[top : top + height, left : left + width]
        hq = image[top * self.scale : (top + height) * self.scale, left * self.scale : (left + width) * self.scale]
        # as large as the patch, the small one is moved with it: each pixel is a square of `scale`
        squares = lq.repeat(self.scale, axis=0).repeat(self.scale, axis=1)
        both = None if self.augmentation is None else PairAugmentation(both=self.augmentation.both)
        squares, hq = augment(squares, hq, both, (hq.shape[0], hq.shape[1]), random, ())
        return np.ascontiguousarray(squares[:: self.scale, :: self.scale]), hq, hq
