"""3 x 3 convolutions on CPUs with a quarter of the multiplications: Winograd's F(4 x 4, 3 x 3).

Each 4 x 4 tile of the output comes from a 6 x 6 tile d of the input: `A' [(G w G') * (B' d B)] A` (Lavin and Gray,
CVPR 2016). The product in the middle is elementwise over the tile and a sum over input channels: 36 matrix products.
The result equals the direct convolution up to float32 rounding of about 1e-5 of the largest value, instead of 1e-6.
The backward pass transposes each step.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

B = torch.tensor(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    dtype=torch.float64,
)
G = torch.tensor([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], dtype=torch.float64) / 24
A = torch.tensor(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], dtype=torch.float64
)

# Both directions of a tile at once, row-major: 36 x 36, 36 x 9 and 16 x 36.
MATRICES = {dtype: tuple(torch.kron(m, m).to(dtype) for m in (B, G, A)) for dtype in (torch.float32, torch.float64)}

# Tiles times channels in one chunk, so that the 36-fold buffers stay in the processor's cache; and the minimum number
# of tiles, for an efficient matrix product.
CHUNK, TILES = 32768, 64


def _chunks(n: int, rows: int, columns: int, channels: int) -> list[tuple[slice, slice]]:
    """Return slices of (samples, rows of tiles): several complete samples, or bands of one sample."""
    tiles = max(TILES, CHUNK // channels)
    samples = max(1, tiles // (rows * columns))
    band = min(rows, max(1, tiles // columns))
    return [
        (slice(i, min(i + samples, n)), slice(r, min(r + band, rows)))
        for i in range(0, n, samples)
        for r in range(0, rows, band)
    ]


def _cells(x: Tensor, rows: int, columns: int) -> Tensor:
    """View channels-last (N, 4 rows, 4 columns, C) as (4, 4, N, rows, columns, C), the pixel within its tile first."""
    return x.view(x.shape[0], rows, 4, columns, 4, -1).permute(2, 4, 0, 1, 3, 5)


class _Winograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        b, g, a = MATRICES[x.dtype]
        n, c, h, w = x.shape
        rows, columns, outputs = h // 4, w // 4, weight.shape[0]
        kernel = (g @ weight.reshape(-1, 9).t()).view(36, outputs, c)
        windows = _pad(x).unfold(1, 6, 4).unfold(2, 6, 4).permute(4, 5, 0, 1, 2, 3)
        y = torch.empty((n, outputs, h, w), dtype=x.dtype, memory_format=torch.channels_last)
        cells = _cells(y.permute(0, 2, 3, 1), rows, columns)
        saved = []
        for i, r in _chunks(n, rows, columns, max(c, outputs)):
            tiles = (b @ windows[:, :, i, r].reshape(36, -1)).view(36, -1, c)
            product = a @ torch.bmm(tiles, kernel.transpose(1, 2)).view(36, -1)
            cells[:, :, i, r] = product.view(cells[:, :, i, r].shape)
            if ctx.needs_input_grad[1]:
                saved.append(tiles)
        ctx.save_for_backward(kernel, *saved)
        ctx.size = n, h, w
        return y.add_(bias.view(-1, 1, 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kernel, *saved = ctx.saved_tensors
        b, g, a = MATRICES[grad.dtype]
        (n, h, w), (outputs, c) = ctx.size, kernel.shape[1:]
        rows, columns = h // 4, w // 4
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        grad = grad.permute(0, 2, 3, 1).contiguous()
        cells = _cells(grad, rows, columns)
        padded = grad.new_zeros(n, h + 4, w + 4, c) if wants_x else None
        grad_kernel = torch.zeros_like(kernel) if wants_weight else None
        for number, (i, r) in enumerate(_chunks(n, rows, columns, max(c, outputs))):
            part = (a.t() @ cells[:, :, i, r].reshape(16, -1)).view(36, -1, outputs)
            if grad_kernel is not None:
                grad_kernel.baddbmm_(part.transpose(1, 2), saved[number])
            if padded is not None:
                _untile(b.t() @ torch.bmm(part, kernel).view(36, -1), padded, i, r)
        return (
            None if padded is None else padded[:, 1 : h + 1, 1 : w + 1].permute(0, 3, 1, 2),
            None if grad_kernel is None else _to_weight(g.t() @ grad_kernel.view(36, -1), outputs),
            grad.sum((0, 1, 2)) if wants_bias else None,
        )


def _to_weight(x: Tensor, outputs: int) -> Tensor:
    """(9, K C) -> (K, C, 3, 3)."""
    return x.view(9, outputs, -1).permute(1, 2, 0).reshape(outputs, -1, 3, 3)


def _pad(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H + 2, W + 2, C) with a border of zeros."""
    n, c, h, w = x.shape
    padded = x.new_empty(n, h + 2, w + 2, c)
    for border in (padded[:, 0], padded[:, -1], padded[:, :, 0], padded[:, :, -1]):
        border.zero_()
    padded[:, 1:-1, 1:-1] = x.permute(0, 2, 3, 1)
    return padded


def _untile(tiles: Tensor, padded: Tensor, i: slice, r: slice) -> None:
    """Add overlapping tiles (36, .) to the samples i and rows of tiles r of `padded` (N, H + 4, W + 4, C)."""
    _, h, w, c = padded.shape
    cells = _cells(padded, h // 4, w // 4)[:, :, i]
    d = tiles.view(6, 6, cells.shape[2], r.stop - r.start, w // 4 - 1, c)
    below = slice(r.start + 1, r.stop + 1)
    cells[:, :, :, r, :-1] += d[:4, :4]
    cells[:2, :, :, below, :-1] += d[4:, :4]
    cells[:, :2, :, r, 1:] += d[:4, 4:]
    cells[:2, :2, :, below, 1:] += d[4:, 4:]


def _pays(x: Tensor, weight: Tensor) -> bool:
    """Whether tiles are faster than the direct convolution: measured from 64 channels and 16 x 16 pixels on."""
    return (
        x.device.type == "cpu"
        and x.dtype in MATRICES
        and min(weight.shape[:2]) >= 64
        and x.shape[2] % 4 == x.shape[3] % 4 == 0
        and x.shape[2] * x.shape[3] >= 256
        and not torch.is_autocast_enabled("cpu")
    )


def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`conv2d(x, weight, bias, padding=1)`: (N, C, H, W), (K, C, 3, 3), (K,) -> (N, K, H, W).

    Uses tiles if they are faster: on CPUs, outside autocast, for many channels on maps whose sides are multiples of 4.
    It can then be differentiated only once.
    """
    return _Winograd.apply(x, weight, bias) if _pays(x, weight) else F.conv2d(x, weight, bias, padding=1)


class TiledConvolution(nn.Conv2d):
    """Zero-padded convolution with bias and an odd, square kernel; stride 2 halves an even size exactly."""

    bias: nn.Parameter

    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1) -> None:
        super().__init__(inputs, outputs, size, stride, padding=size // 2)

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if bias is not None and self.kernel_size == (3, 3) and self.stride == (1, 1):
            return convolve(x, weight, bias)
        return super()._conv_forward(x, weight, bias)
