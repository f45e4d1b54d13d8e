"""Photos of any size as inputs of image translation, with the ground truth if known."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError, missing
from figura.formats.pair_files import Fault, Loaded, Pair, find_pairs, load_pair, with_channels
from figura.formats.pair_files import sides as folders_of_sides
from figura.interfaces import Example
from figura.prediction.inputs import Photo, PhotoExamples

from .argument_types import Sides, sides
from .pairs import Side, normalised, resized

TWICE = (1.98, 2.02)  # aspect ratio relative to the network's picture: A and B side by side
SQUEEZED = 1.05  # aspect ratio relative to the network's picture, or its inverse, from which a warning counts it


class Photos(PhotoExamples):
    """A photo as the network input x, preprocessed like in `ImagePairs` without augmentation.

    With `layout: pairs`, the photos are pairs: A|B pictures, with `direction` selecting which half is x, or files in
    sibling folders `a` and `b`, where only those in the input's folder become examples. The other picture is the ground
    truth `y`. With `layout: whole`, the full photo is the input. This is also the default, but pictures shaped like A|B
    pictures are then rejected, because they would be squeezed to half their width.

    `image_size` in pixels is a side or (height, width), to which the full photo is resized: the `crop_size` of
    `ImagePairs`. If their `load_size` is larger, training uses crops of pictures resized to `load_size`, in which
    everything is `load_size / crop_size` times as large as here. `x_channels` and `y_channels` are 3 for RGB, 1 for
    grey. Images in `label_maps` are resized by nearest neighbour. All of these and `direction` default to those of the
    training data.

    An example has `x`, float32 `(channels, height, width)` in [-1, 1] (v / 127.5 - 1), and the photo's `name`; with
    `layout: pairs` also `y`, likewise.

    Raises ValueError for pairs without a direction; UserError for a picture whose shape does
    not match the layout. Other pictures of another shape are squeezed, and counted as suspicions.
    """

    names: ClassVar[tuple[str, ...]] = ("x", "name")
    optional: ClassVar[tuple[str, ...]] = ("y",)
    expects: ClassVar[str | None] = "a picture like the inputs of its training, such as a label map"
    renamed: ClassVar[dict[str, str]] = {"size": "image_size", "channels": "x_channels", "label_map": "label_maps"}
    from_data: ClassVar[tuple[str, ...]] = ("image_size", "direction", "x_channels", "y_channels", "label_maps")

    def __init__(
        self,
        *,
        image_size: Sides | None = None,
        layout: Literal["pairs", "whole"] | None = None,
        direction: Literal["a_to_b", "b_to_a"] | None = None,
        x_channels: Literal[1, 3] = 3,
        y_channels: Literal[1, 3] = 3,
        label_maps: tuple[Side, ...] = (),
    ) -> None:
        if image_size is None:
            raise missing("image_size")
        self.size = sides(image_size)
        if layout == "pairs" and direction is None:
            raise ValueError(
                "direction: a_to_b or b_to_a is needed with layout pairs; the training data do not tell it"
            )
        self.layout, self.direction = layout, direction
        self.channels: dict[Side, Literal[1, 3]] = {"x": x_channels, "y": y_channels}
        self.label_maps = frozenset(label_maps)
        self._pairs_of = cache(_pairs_of)  # of this prediction: later, folders may have other files

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return `names`, and `y` for pairs."""
        return (*cls.names, *(cls.optional if arguments.get("layout") == "pairs" else ()))

    def examples(self, photo: Photo) -> list[Example]:
        """Return the photo as one example; none for the ground truth in a pair of folders."""
        if self.layout == "pairs":
            return self._pair(photo)
        pixels = photo.pixels()
        if self.layout is None and TWICE[0] < self._aspect(pixels) < TWICE[1]:
            height, width = pixels.shape[:2]
            half = "" if self.direction is None else f" (direction {self.direction}: {self._inputs.upper()})"
            raise UserError(
                f"{photo.path}: {width} x {height} pixels would be squeezed to {self.size[1]} x {self.size[0]}; is it "
                f"an A|B picture? predict.data.layout=pairs takes the half that is the input{half}, layout=whole all "
                "of it"
            )
        self._count_squeezed(photo, pixels)
        return [{"x": self._prepared(pixels, "x"), "name": photo.name}]

    @property
    def _inputs(self) -> str:
        return "a" if self.direction == "a_to_b" else "b"

    def _aspect(self, pixels: NDArray[np.uint8]) -> float:
        """Return the aspect ratio of a picture relative to the network's."""
        return pixels.shape[1] / pixels.shape[0] * self.size[0] / self.size[1]

    def _count_squeezed(self, photo: Photo, pixels: NDArray[np.uint8]) -> None:
        aspect = self._aspect(pixels)
        if max(aspect, 1 / aspect) > SQUEEZED:
            percent = round(100 * SQUEEZED - 100)
            kind = f"pictures squeezed by more than {percent} % to {self.size[1]} x {self.size[0]} pixels"
            photo.suspicions[f"{kind}; predict.data.image_size=[HEIGHT,WIDTH] sets another size"] = ""

    def _prepared(self, pixels: NDArray[np.uint8], side: Side) -> NDArray[np.float32]:
        return normalised(
            resized(with_channels(pixels, self.channels[side]), self.size, nearest=side in self.label_maps)
        )

    def _pair(self, photo: Photo) -> list[Example]:
        folder = photo.path.parent
        parts = folders_of_sides(folder.parent)
        if photo.frame is None and folder.name in parts:
            if folder.name != parts["ab".index(self._inputs)]:
                return []
            missing = Fault(photo.path.name, "no pair", "no image of this name in a and in b")
            pair = self._pairs_of(folder.parent).get(photo.path.stem, missing)
            loaded = pair if isinstance(pair, Fault) else load_pair(folder.parent, pair)
        elif photo.frame is None:
            loaded = load_pair(folder, Pair(photo.name, (photo.path.name,)))
            if isinstance(loaded, Loaded):
                self._check_half(photo, loaded.a)
        elif (width := photo.frame.shape[1]) % 2:
            size = f"{width} x {photo.frame.shape[0]}"
            loaded = Fault(photo.path.name, "odd width", f"{size}; A and B are halves of one image")
        else:
            loaded = Loaded(photo.frame[:, : width // 2], photo.frame[:, width // 2 :], (), ())
            self._check_half(photo, loaded.a)
        if isinstance(loaded, Fault):
            raise UserError(f"{photo.path}: {loaded.reason} ({loaded.detail}); predict.data.layout is pairs")
        self._count_squeezed(photo, loaded.a)
        for one in loaded.readings:
            photo.suspicions |= one.told
        x, y = (loaded.a, loaded.b) if self._inputs == "a" else (loaded.b, loaded.a)
        return [{"x": self._prepared(x, "x"), "y": self._prepared(y, "y"), "name": photo.name}]

    def _check_half(self, photo: Photo, half: NDArray[np.uint8]) -> None:
        """Reject a picture that fits as a whole, while its halves have half the expected width."""
        if TWICE[0] < 1 / self._aspect(half) < TWICE[1]:
            height, width = half.shape[:2]
            raise UserError(
                f"{photo.path}: its half, {width} x {height} pixels, would be stretched to {self.size[1]} x "
                f"{self.size[0]}; is it no A|B picture? predict.data.layout=whole takes all of it as the input"
            )


def _pairs_of(folder: Path) -> dict[str, Pair | Fault]:
    """Return the pairs of two folders `a` and `b` in `folder`, by name, including unusable ones."""
    pairs, faults = find_pairs(folder, Path("/"))
    return {pair.name: pair for pair in pairs} | {Path(fault.file).stem: fault for fault in faults}
