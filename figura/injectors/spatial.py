"""Injectors for the size, window and orientation of pictures (N, C, H, W); all names get the same random draws."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.interfaces import Operation

Size = int | tuple[int, int]
Place = Literal["centre", "random", "top_left", "top_right", "bottom_left", "bottom_right"]


class Resize(Operation):
    """Adds pictures of another size, sampled at pixel centres (corners are not aligned).

    Args:
        names: name read, (N, C, H, W) -> name added.
        size: height and width, or one number for both.
        factor: instead: multiply both sides by this, rounded.
        like: instead: the size of this name.
        mode: nearest, bilinear, bicubic or area (the mean of the pixels that a new pixel covers).
        antialias: widen the bilinear or bicubic kernel when downsampling, so that every pixel contributes.
    """

    def __init__(
        self,
        names: dict[str, str],
        size: Size | None = None,
        factor: float | None = None,
        like: str | None = None,
        mode: Literal["nearest", "bilinear", "bicubic", "area"] = "bilinear",
        antialias: bool = False,
    ) -> None:
        super().__init__([*names, *([like] if like else [])], list(names.values()))
        _one_of(size=size, factor=factor, like=like)
        if factor is not None and not 0 < factor < math.inf:
            raise ValueError(f"factor {factor}: a number above 0 is needed")
        if antialias and mode not in ("bilinear", "bicubic"):
            raise ValueError(f"antialias with mode {mode}: bilinear or bicubic is needed")
        self.size, self.factor, self.like, self.antialias = _both(size), factor, like, antialias
        self.mode = "nearest-exact" if mode == "nearest" else mode

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [self._resized(picture, tensors[-1]) for picture in tensors[: len(self.adds)]]

    def _resized(self, picture: Tensor, like: Tensor) -> Tensor:
        size = height_and_width(like) if self.like else self.size
        if self.factor is not None:
            height, width = (math.floor(side * self.factor + 0.5) for side in height_and_width(picture))
            size = (height, width)
        return F.interpolate(picture, size, mode=self.mode, antialias=self.antialias)


class Crop(Operation):
    """Adds a window of pictures; `random` draws one for each example, the same for all names.

    The window is in pixels of the first name. If the pictures of another name are k times as large (k an integer), so
    is its window, at the same position: a small picture and its large original stay aligned.

    Args:
        names: name read, (N, C, H, W) -> name added, (N, C, h, w).
        size: height and width of the window, or one number for both.
        margin: instead: remove this many pixels at each side; with `random`, the shift is at most this.
        like: instead: the size of this name.
        at: centre, random, or a corner (top_left, ...).
    """

    def __init__(
        self,
        names: dict[str, str],
        size: Size | None = None,
        margin: int | None = None,
        like: str | None = None,
        at: Place = "centre",
    ) -> None:
        super().__init__([*names, *([like] if like else [])], list(names.values()))
        _one_of(size=size, margin=margin, like=like)
        if margin is not None and margin < 0:
            raise ValueError(f"margin {margin}: 0 or more is needed (Pad adds)")
        self.size, self.margin, self.like, self.at = _both(size), margin, like, at

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        pictures = tensors[: len(self.adds)]
        height, width = height_and_width(pictures[0])
        window = height_and_width(tensors[-1]) if self.like else self.size
        if self.margin is not None:
            window = (height - 2 * self.margin, width - 2 * self.margin)
        assert window is not None
        room = (height - window[0], width - window[1])
        if min(room) < 0 or min(window) < 1:
            raise ValueError(f"a window of {window[0]} x {window[1]} does not fit into {height} x {width}")
        places = self._places(room, len(pictures[0]))
        return [windows(picture, places, window, _enlargement(picture, height, width)) for picture in pictures]

    def _places(self, room: tuple[int, int], count: int) -> list[tuple[int, int]]:
        """Return the top left corner of each example's window, or one for all."""
        if self.at == "random":
            tops, lefts = (torch.randint(free + 1, (count,), device="cpu").tolist() for free in room)
            return list(zip(tops, lefts, strict=True))
        if self.at == "centre":
            return [(room[0] // 2, room[1] // 2)]
        return [(room[0] if "bottom" in self.at else 0, room[1] if "right" in self.at else 0)]


class Pad(Operation):
    """Adds pictures padded at the bottom and right to multiples of a number.

    The inverse is `Crop` with `like` and `at: top_left`.

    Args:
        names: name read, (N, C, H, W) -> name added.
        multiple: the number.
        mode: of padding: reflect (without the edge itself), replicate (the edge), or constant (0).
    """

    def __init__(
        self,
        names: dict[str, str],
        multiple: int,
        mode: Literal["reflect", "replicate", "constant"] = "reflect",
    ) -> None:
        super().__init__(list(names), list(names.values()))
        if multiple < 1:
            raise ValueError(f"multiple {multiple}: 1 or more is needed")
        self.multiple, self.mode = multiple, mode

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        missing = [[-side % self.multiple for side in height_and_width(picture)] for picture in tensors]
        return [
            F.pad(picture, (0, right, 0, bottom), mode=self.mode) if right or bottom else picture
            for picture, (bottom, right) in zip(tensors, missing, strict=True)
        ]


class Orient(Operation):
    """Adds pictures flipped, then turned counter-clockwise by quarter turns.

    For equivariance losses: orient both the input and the output of a network.

    Args:
        names: name read, (N, C, H, W) -> name added.
        flip: horizontal (left becomes right), vertical, or neither.
        turns: quarter turns, 1 to 3.
        random: instead of both, draw one of the eight orientations of a square for each example; for pictures that are
            not square, one of the four that keep height and width.
    """

    def __init__(
        self,
        names: dict[str, str],
        flip: Literal["horizontal", "vertical"] | None = None,
        turns: int = 0,
        random: bool = False,
    ) -> None:
        super().__init__(list(names), list(names.values()))
        if not 0 <= turns <= 3:
            raise ValueError(f"turns {turns}: 0 to 3 quarter turns are needed")
        if random == (flip is not None or turns != 0):
            raise ValueError("write random, or flip or turns or both")
        self.flip, self.turns, self.random = flip, turns, random

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        if not self.random:
            return [_oriented(picture, self.flip, self.turns) for picture in tensors]
        square = all(height == width for height, width in map(height_and_width, tensors))
        drawn = torch.randint(8 if square else 4, (len(tensors[0]),), device="cpu").tolist()
        choices = [("horizontal" if n % 2 else None, n // 2 if square else n // 2 * 2) for n in drawn]
        return [
            torch.stack([_oriented(one, *choice) for one, choice in zip(picture, choices, strict=True)])
            for picture in tensors
        ]


def windows(picture: Tensor, places: list[tuple[int, int]], size: tuple[int, int], enlargement: int = 1) -> Tensor:
    """Crop windows of pictures (N, C, H, W). `places` are their top left corners: one for all, or one per example.

    `places` and `size` are in pixels of a picture `enlargement` times smaller.
    """
    height, width = (side * enlargement for side in size)
    corners = [(top * enlargement, left * enlargement) for top, left in places]
    if len(corners) == 1:
        ((top, left),) = corners
        return picture[..., top : top + height, left : left + width]
    return torch.stack(
        [one[:, top : top + height, left : left + width] for one, (top, left) in zip(picture, corners, strict=True)]
    )


def height_and_width(picture: Tensor) -> tuple[int, int]:
    """Return the size of pictures; raises ValueError unless they are (N, C, H, W)."""
    if picture.ndim != 4:
        raise ValueError("pictures (N, C, H, W) are needed")
    return picture.shape[2], picture.shape[3]


def _enlargement(picture: Tensor, height: int, width: int) -> int:
    times = picture.shape[-1] // width
    if height_and_width(picture) != (times * height, times * width):
        raise ValueError(f"{height} x {width} pixels, or a whole multiple on both sides, are needed beside the first")
    return times


def _oriented(picture: Tensor, flip: str | None, turns: int) -> Tensor:
    if flip:
        picture = picture.flip(-1 if flip == "horizontal" else -2)
    return picture.rot90(turns, (-2, -1))


def _both(size: Size | None) -> tuple[int, int] | None:
    pair = (size, size) if isinstance(size, int) else size
    if pair is not None and min(pair) < 1:
        raise ValueError(f"size {size}: 1 or more is needed")
    return pair


def _one_of(**choices: object) -> None:
    if sum(value is not None for value in choices.values()) != 1:
        raise ValueError(f"write one of {', '.join(choices)}")
