"""The 4 x 4 convolutions of pix2pix: the fastest of four algorithms on CPUs, PyTorch's on other devices.

- Deep layers have few pixels and millions of weights: matrix products read each weight once, without PyTorch's weight
reordering.
- The discriminator's last layer, to one channel, is a matrix product over channels whose results are then summed at
  their positions.
- Its wide layer of stride 1 uses Winograd's tiles, F(3 x 3, 4 x 4) (Lavin and Gray, CVPR 2016): 36 multiplications
  instead of 144 for 9 pixels.
- All other layers use PyTorch's convolution.

All are equal up to rounding (float32: within 1e-5 of the largest value) and infinitely differentiable.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

FEW = 64  # up to this number of pixels in a batch, a matrix product is faster (measured)
TILE, KERNEL = 3, 4
WINDOW = TILE + KERNEL - 1


def cook_toom(points: list[float]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the matrices (B', G, A') of F(3, 4): `A' [(G g) * (B' d)]` is d correlated with g.

    `points` are five interpolation points; infinity is the sixth. G evaluates the kernel's polynomial and divides by
    Lagrange's denominators, A evaluates the outputs' polynomial, and B has the coefficients of Lagrange's numerators
    (Winograd 1980; the transpose of Toom and Cook's product).
    """
    a, g, b = np.zeros((TILE, WINDOW)), np.zeros((WINDOW, KERNEL)), np.zeros((WINDOW, WINDOW))
    for i, point in enumerate(points):
        others = [other for other in points if other != point]
        a[:, i] = point ** np.arange(TILE)
        g[i] = point ** np.arange(KERNEL) / np.prod([point - other for other in others])
        b[i, :-1] = np.polynomial.polynomial.polyfromroots(others)
    a[-1, -1] = g[-1, -1] = 1
    b[-1] = np.polynomial.polynomial.polyfromroots(points)
    return torch.from_numpy(b), torch.from_numpy(g), torch.from_numpy(a)


# Both directions at once, row-major: 36 x 36, 36 x 16 and 9 x 36. Of the points tried, these have the smallest error.
MATRICES = {
    dtype: tuple(torch.kron(m, m).to(dtype) for m in cook_toom([0, 1, -1, 2, -0.5]))
    for dtype in (torch.float32, torch.float64)
}


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: str = "reflect") -> Tensor:
    """`conv2d` with a 4 x 4 kernel and one pixel of padding: (N, C, H, W), (K, C, 4, 4) -> (N, K, h, w).

    `padding` is `reflect` or `zeros`. h = H / 2 for stride 2 and even H, H - 1 for stride 1. H and W are at least 2.
    """
    n, _, height, width = x.shape
    h, w = (height - 2) // stride + 1, (width - 2) // stride + 1
    padded = F.pad(x, (1, 1, 1, 1), mode="constant" if padding == "zeros" else padding)
    if _plain(x):
        return F.conv2d(padded, weight, bias, stride)
    if n * h * w <= FEW:
        windows = F.unfold(padded, KERNEL, stride=stride).transpose(1, 2)  # (N, h w, 16 C)
        y = F.linear(windows.reshape(n * h * w, -1), weight.flatten(1), bias)
        return y.view(n, h * w, -1).transpose(1, 2).reshape(n, -1, h, w)
    if stride == 1 and KERNEL**2 * weight.shape[0] <= weight.shape[1]:
        y = _thin(padded, weight)
        return y if bias is None else y + bias.view(-1, 1, 1)
    if stride == 1 and bias is None and min(weight.shape[:2]) >= 64 and n * h * w >= 512:
        return _tiled(padded, weight)
    return F.conv2d(padded, weight, bias, stride)


def convolve_transposed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`conv_transpose2d` with a 4 x 4 kernel, stride 2, padding 1: (N, C, H, W), (C, K, 4, 4) -> (N, K, 2 H, 2 W)."""
    n, c, h, w = x.shape
    if _plain(x) or n * h * w > FEW:
        return F.conv_transpose2d(x, weight, bias, stride=2, padding=1)
    pixels = x.flatten(2).transpose(1, 2).reshape(n * h * w, c)
    windows = (pixels @ weight.flatten(1)).view(n, h * w, -1).transpose(1, 2)
    y = F.fold(windows, (2 * h, 2 * w), KERNEL, stride=2, padding=1)
    return y if bias is None else y + bias.view(-1, 1, 1)


def _plain(x: Tensor) -> bool:
    return x.device.type != "cpu" or x.dtype not in MATRICES or torch.is_autocast_enabled("cpu")


def _thin(x: Tensor, weight: Tensor) -> Tensor:
    """`conv2d(x, weight)` for few output channels: the transposed convolution with the mirrored kernel, cropped."""
    h, w = x.shape[2:]
    mirrored = weight.flip(2, 3).permute(0, 2, 3, 1).reshape(-1, weight.shape[1])
    border = KERNEL - 1
    return F.fold(mirrored @ x.flatten(2), (h + border, w + border), KERNEL)[:, :, border:-border, border:-border]


def _tiled(x: Tensor, weight: Tensor) -> Tensor:
    """`conv2d(x, weight)` by tiles: (N, C, H, W), (K, C, 4, 4) -> (N, K, H - 3, W - 3)."""
    b, g, a = MATRICES[x.dtype]
    n, c, height, width = x.shape
    outputs, h, w = weight.shape[0], height - 3, width - 3
    rows, columns = -(-h // TILE), -(-w // TILE)
    x = F.pad(x, (0, columns * TILE - w, 0, rows * TILE - h)).permute(0, 2, 3, 1)
    tiles = (b @ _Windows.apply(x).reshape(WINDOW**2, -1)).view(WINDOW**2, -1, c)
    # In this order, no product in forward or backward needs a transposed copy of the kernels.
    kernels = torch.matmul(g, weight.reshape(outputs, c, -1).transpose(1, 2)).transpose(0, 1)
    y = (a @ torch.bmm(kernels, tiles.transpose(1, 2)).view(WINDOW**2, -1)).view(TILE, TILE, outputs, n, rows, columns)
    return y.permute(3, 2, 4, 0, 5, 1).reshape(n, outputs, rows * TILE, columns * TILE)[:, :, :h, :w]


class _Windows(torch.autograd.Function):
    """Overlapping windows: (N, 3 R + 3, 3 S + 3, C) -> (6, 6, N, R, S, C), a copy."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        return x.unfold(1, WINDOW, TILE).unfold(2, WINDOW, TILE).permute(4, 5, 0, 1, 2, 3).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Overlap.apply(grad)


class _Overlap(torch.autograd.Function):
    """The adjoint of `_Windows`: sums the windows where they overlap."""

    @staticmethod
    def forward(ctx: FunctionCtx, windows: Tensor) -> Tensor:
        _, _, n, rows, columns, c = windows.shape
        x = windows.new_zeros(n, (rows + 1) * TILE, (columns + 1) * TILE, c)
        cells = x.view(n, rows + 1, TILE, columns + 1, TILE, c).permute(2, 4, 0, 1, 3, 5)
        for i in (0, 1):
            for j in (0, 1):
                part = windows[i * TILE :, j * TILE :][:TILE, :TILE]
                cells[:, :, :, i : i + rows, j : j + columns] += part
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Windows.apply(grad)
