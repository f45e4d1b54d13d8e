"""Losses on the edges of images: Sobel magnitudes and Laplacians of their grey versions.

Grey is the plain mean over channels, so colour that cancels in it is not seen. Borders are zeros, one pixel wide: a flat
image has edges at its rim. Both operators are sums of shifted images instead of convolutions: exact in the images' own
precision, also under autocast.
"""

import torch.nn.functional as F
from torch import Tensor

from models.engine.losses import Loss
from models.images.losses import at_least_float32

EPSILON = 1e-6  # inside the root, whose slope would be infinite where an image is flat


def grey(images: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H, W), the mean over channels, at least float32."""
    return at_least_float32(images).mean(dim=1)


def sobel_magnitude(grey: Tensor) -> Tensor:
    """`sqrt(gx^2 + gy^2 + 1e-6)`, (N, H, W) -> (N, H, W), not scaled (Sobel and Feldman 1968).

    gx cross-correlates with rows (1, 0, -1), (2, 0, -2), (1, 0, -1); gy with the transpose.
    """
    padded = F.pad(grey, (1, 1, 1, 1))
    down = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    across = padded[:, :, :-2] + 2 * padded[:, :, 1:-1] + padded[:, :, 2:]
    gx, gy = down[:, :, :-2] - down[:, :, 2:], across[:, :-2] - across[:, 2:]
    return (gx.square() + gy.square() + EPSILON).sqrt()


def laplacian(grey: Tensor) -> Tensor:
    """The four neighbours minus four times the pixel, (N, H, W) -> (N, H, W)."""
    padded = F.pad(grey, (1, 1, 1, 1))
    vertical = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1]
    return vertical + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:] - 4 * grey


class Sobel(Loss):
    """Mean over H·W of the absolute difference of Sobel magnitudes; images (N, C, H, W) in [-1, 1] -> (N,)."""

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        return (sobel_magnitude(grey(image)) - sobel_magnitude(grey(target))).abs().mean(dim=(1, 2))


class Laplacian(Loss):
    """Mean over H·W of the absolute difference of Laplacians; images (N, C, H, W) in [-1, 1] -> (N,)."""

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        # The operator is linear: once, on the difference.
        return laplacian(grey(image) - grey(target)).abs().mean(dim=(1, 2))
