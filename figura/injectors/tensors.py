"""Injectors without networks: detached copies, constants, noise, sums, points between tensors, sizes of pictures."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.interfaces import Injector, Networks, Operation, Schedule, State, added_once, detach, number

Size = int | tuple[int, int]


class Detach(Injector):
    """Adds detached copies: no gradient flows back.

    Args:
        names: name read -> name added; a tensor, or lists, tuples and dictionaries of tensors.
        requires_grad: make the results (tensors only) leaves with gradients, such as the real images of R1.
    """

    def __init__(self, names: dict[str, str], requires_grad: bool = False) -> None:
        if not names:
            raise ValueError("names: at least one is needed")
        self.requires_grad = requires_grad
        self.reads, self.adds = tuple(names), added_once(list(names.values()))

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        for read, added in zip(self.reads, self.adds, strict=True):
            value = detach(state[read])
            state.add(added, value.requires_grad_() if self.requires_grad else value)


class _Filled(Operation):
    """A new tensor with the batch size, device and dtype of another (float32 if that is not a float type)."""

    def __init__(self, output: str, like: str, shape: tuple[int, ...] | None) -> None:
        super().__init__([like], [output])
        if shape is not None and any(size < 1 for size in shape):
            raise ValueError(f"shape {list(shape)}: sizes of 1 or more are needed")
        self.shape = shape

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        like = tensors[0]
        dtype = like.dtype if like.is_floating_point() else torch.float32
        shape = like.shape if self.shape is None else (len(like), *self.shape)
        return [self.fill(torch.empty(shape, dtype=dtype, device=like.device), step)]

    def fill(self, tensor: Tensor, step: int) -> Tensor:
        raise TypeError(f"{type(self).__name__} fills nothing")


class Constant(_Filled):
    """Adds a tensor filled with `value`.

    Args:
        output: name of the tensor.
        like: name that gives the batch size N, the device and, without `shape`, the shape.
        value: a number or a schedule.
        shape: sizes after N; `[]` gives (N,).
    """

    def __init__(self, output: str, like: str, value: Schedule | float, shape: tuple[int, ...] | None = None) -> None:
        super().__init__(output, like, shape)
        self.value = value

    def fill(self, tensor: Tensor, step: int) -> Tensor:
        return tensor.fill_(number(self.value, step))


class Noise(_Filled):
    """Adds independent random numbers: `scale` times N(0, 1) (normal) or U(-1, 1) (uniform).

    Args:
        output: name of the tensor.
        like: name that gives the batch size N, the device and, without `shape`, the shape.
        distribution: normal or uniform.
        scale: 0 or more, a number or a schedule.
        shape: sizes after N; `[]` gives (N,).
    """

    def __init__(
        self,
        output: str,
        like: str,
        distribution: Literal["normal", "uniform"] = "normal",
        scale: Schedule | float = 1.0,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(output, like, shape)
        if not isinstance(scale, Schedule) and not 0 <= scale < math.inf:
            raise ValueError(f"scale {scale}: 0 or more is needed")
        self.distribution, self.scale = distribution, scale

    def fill(self, tensor: Tensor, step: int) -> Tensor:
        drawn = tensor.normal_() if self.distribution == "normal" else tensor.uniform_(-1, 1)
        return drawn.mul_(number(self.scale, step))


class Sum(Operation):
    """Adds `constant + sum of weight x tensor`: differences, residuals, noisy images, changes of unit.

    Args:
        output: name of the sum.
        terms: name -> weight, a number or a schedule; tensors with equal numbers of dimensions, sizes of 1 broadcast.
        constant: a number or a schedule.
    """

    def __init__(self, output: str, terms: dict[str, Schedule | float], constant: Schedule | float = 0.0) -> None:
        if not terms:
            raise ValueError("terms: at least one is needed")
        super().__init__(list(terms), [output])
        self.weights, self.constant = list(terms.values()), constant

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        if len({tensor.ndim for tensor in tensors}) > 1:  # broadcasting would match examples with columns
            raise ValueError("equal numbers of dimensions are needed")
        products = [number(w, step) * tensor for w, tensor in zip(self.weights, tensors, strict=True)]
        total = products[0]
        for product in products[1:]:
            total = total + product
        constant = number(self.constant, step)
        return [total + constant if constant else total]


class Interpolate(Operation):
    """Adds points between `a` and `b`, `u a + (1 - u) b`, as leaves that require gradients.

    For gradient penalties, u is drawn from U(0, 1) for each example (Gulrajani et al. 2017, algorithm 1, lines 4 to 6).
    No gradient flows back to `a` and `b`; `Sum` mixes with gradients.

    Args:
        a: name of a tensor (N, ...).
        b: name of another of the same shape.
        output: name of the points, (N, ...).
    """

    def __init__(self, a: str, b: str, output: str) -> None:
        super().__init__([a, b], [output])

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        a, b = (tensor.detach() for tensor in tensors)
        if a.shape != b.shape:
            raise ValueError("equal shapes are needed")
        drawn = torch.rand(len(a), *(1,) * (a.ndim - 1), dtype=a.dtype, device=a.device)
        return [torch.lerp(b, a, drawn).requires_grad_()]


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
        if sum(value is not None for value in (size, factor, like)) != 1:
            raise ValueError("write one of size, factor, like")
        pair = (size, size) if isinstance(size, int) else size
        if pair is not None and min(pair) < 1:
            raise ValueError(f"size {size}: 1 or more is needed")
        if factor is not None and not 0 < factor < math.inf:
            raise ValueError(f"factor {factor}: a number above 0 is needed")
        if antialias and mode not in ("bilinear", "bicubic"):
            raise ValueError(f"antialias with mode {mode}: bilinear or bicubic is needed")
        self.size, self.factor, self.like, self.antialias = pair, factor, like, antialias
        self.mode = "nearest-exact" if mode == "nearest" else mode

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [self._resized(picture, tensors[-1]) for picture in tensors[: len(self.adds)]]

    def _resized(self, picture: Tensor, like: Tensor) -> Tensor:
        size = _height_and_width(like) if self.like else self.size
        if self.factor is not None:
            height, width = (math.floor(side * self.factor + 0.5) for side in _height_and_width(picture))
            size = (height, width)
        return F.interpolate(picture, size, mode=self.mode, antialias=self.antialias)


def _height_and_width(picture: Tensor) -> tuple[int, int]:
    """Return the size of pictures; raises ValueError unless they are (N, C, H, W)."""
    if picture.ndim != 4:
        raise ValueError("pictures (N, C, H, W) are needed")
    return picture.shape[2], picture.shape[3]
