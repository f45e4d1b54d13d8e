"""Pixel losses. Images are (N, C, H, W) in [-1, 1]; every loss is a mean over C·H·W and returns (N,)."""

import torch
from torch import Tensor

from models.engine.losses import Loss


def at_least_float32(x: Tensor) -> Tensor:
    """Means over many pixels lose digits in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class _Pixelwise(Loss):
    """Mean over C·H·W of a weighted elementwise distance.

    With a `mask` (N, 1, H, W) in [0, 1], 1 on the person, an element weighs `mask + background · (1 - mask)`; the sum
    is still divided by C·H·W, so the value does not depend on how large the person is drawn relative to its error.
    """

    def __init__(self, *, background: float = 1.0) -> None:
        super().__init__()
        self.background = background

    def distance(self, difference: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} has no distance")

    def forward(  # type: ignore[override]
        self, *, image: Tensor, target: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        distance = self.distance(at_least_float32(image) - at_least_float32(target))
        if mask is not None:
            distance = distance * (self.background + (1 - self.background) * mask)
        return distance.mean(dim=(1, 2, 3))


class L1(_Pixelwise):
    """Absolute difference (`color_L1`)."""

    def distance(self, difference: Tensor) -> Tensor:
        return difference.abs()


class L2(_Pixelwise):
    """Squared difference (`color_L2`)."""

    def distance(self, difference: Tensor) -> Tensor:
        return difference.square()


class Gradient(Loss):
    """Absolute difference of neighbour differences, mean over x plus mean over y (`color_gradient`).

    `signed` compares the differences themselves; otherwise their absolute values, as VUNet's port does, under which
    an image and its negative are equal.
    """

    def __init__(self, *, signed: bool) -> None:
        super().__init__()
        self.signed = signed

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        image, target = at_least_float32(image), at_least_float32(target)
        loss = image.new_zeros(len(image))
        for axis in (-1, -2):
            a, b = image.diff(dim=axis), target.diff(dim=axis)
            difference = a - b if self.signed else a.abs() - b.abs()
            loss = loss + difference.abs().mean(dim=(1, 2, 3))
        return loss
