"""Building blocks of VUNet: convolutions, residual blocks, space to depth (Esser, Sutter and Ommer, CVPR 2018)."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def space_to_depth(x: Tensor) -> Tensor:
    """Pixels of 2 x 2 blocks to channels, TensorFlow's order: (N, C, H, W) -> (N, 4C, H/2, W/2), H and W even.

    `out[n, (2 i + j) C + k, y, x'] = x[n, k, 2 y + i, 2 x' + j]`. (In `pixel_unshuffle`, 2 i + j varies fastest.) The
    results of this function and of `depth_to_space` are channels-last in memory: this order then moves contiguous runs
    of channels.
    """
    n, c, h, w = x.shape
    blocks = x.permute(0, 2, 3, 1).reshape(n, h // 2, 2, w // 2, 2, c)
    return blocks.permute(0, 1, 3, 2, 4, 5).reshape(n, h // 2, w // 2, 4 * c).permute(0, 3, 1, 2)


def depth_to_space(x: Tensor) -> Tensor:
    """The inverse of `space_to_depth`: (N, 4C, H, W) -> (N, C, 2H, 2W)."""
    n, c, h, w = x.shape
    blocks = x.permute(0, 2, 3, 1).reshape(n, h, w, 2, 2, c // 4)
    return blocks.permute(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4).permute(0, 3, 1, 2)


class _Activate(torch.autograd.Function):
    """ELU of a concatenation, differentiated from its output: stores no input, and needs no second exp."""

    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        ctx.widths = [x.shape[1] for x in parts]
        out = F.elu(parts[0]) if len(parts) == 1 else F.elu_(torch.cat(parts, dim=1))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.elu_backward(grad, 1, 1, 1, True, out).split(ctx.widths, dim=1)


def activate(*parts: Tensor) -> Tensor:
    """`elu([x, ...])`: (N, c_i, H, W) each -> (N, sum of c_i, H, W)."""
    return _Activate.apply(*parts)


class Convolution(nn.Conv2d):
    """A convolution that may be initialised by its fan-in, and is a matrix product for maps of 1 x 1.

    It is padded by zeros and has a bias and an odd, square kernel; stride 2 halves an even size exactly.
    """

    bias: nn.Parameter

    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1) -> None:
        super().__init__(inputs, outputs, size, stride, padding=size // 2)

    def initialise_fan_in(self, gain: float = 1.0) -> None:
        """Normal weights of variance gain² / fan_in, zero bias."""
        fan_in = self.weight[0].numel()
        nn.init.normal_(self.weight, std=gain / math.sqrt(fan_in))
        nn.init.zeros_(self.bias)

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if x.shape[2:] == (1, 1):  # only the kernel's centre overlaps the map
            middle = weight.shape[-1] // 2
            return F.linear(x.flatten(1), weight[:, :, middle, middle], bias)[:, :, None, None]
        return super()._conv_forward(x, weight, bias)


class NormalisedConvolution(Convolution):
    """`gamma * (conv(x; W) + bias) + beta` with `W_o = gain_o weight_o / ||weight_o||`; all five are trained.

    Weight normalisation (Salimans and Kingma, 2016) with a second affine map. `gain` has shape (outputs, 1, 1, 1),
    `gamma` and `beta` (1, outputs, 1, 1).
    """

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, size, stride)
        self.gain = nn.Parameter(self._norm().detach())
        self.gamma = nn.Parameter(torch.ones(1, outputs, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, outputs, 1, 1))

    def _norm(self) -> Tensor:
        return torch.linalg.vector_norm(self.weight, dim=(1, 2, 3), keepdim=True)

    def initialise_fan_in(self, gain: float = 1.0) -> None:
        """Like the plain convolution; the gains are set to the norms of the drawn weights."""
        super().initialise_fan_in(gain)
        with torch.no_grad():
            self.gain.copy_(self._norm())

    def forward(self, x: Tensor) -> Tensor:
        # The affine maps act on whole channels: fold them into the kernel to save passes over the image.
        gamma = self.gamma.view(-1, 1, 1, 1)
        kernel = self.weight * (gamma * self.gain / self._norm())
        return self._conv_forward(x, kernel, self.gamma.flatten() * self.bias + self.beta.flatten())


Convolve = Callable[..., Convolution]


class Residual(nn.Module):
    """`x + conv(D(elu(x)))` with a 3 x 3 convolution, pre-activated, width `c`; D is dropout."""

    def __init__(self, convolve: Convolve, c: int, dropout: float) -> None:
        super().__init__()
        self.conv = convolve(c, c, 3)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(activate(x), self.dropout, self.training)
        return self.conv(h).add_(x)


class SkipResidual(nn.Module):
    """`x + conv(D(elu([x, skip(a)])))`: a second map `a` of x's shape enters through a 1 x 1 convolution."""

    def __init__(self, convolve: Convolve, c: int, dropout: float) -> None:
        super().__init__()
        self.skip = convolve(c, c, 1)
        self.conv = convolve(2 * c, c, 3)
        self.dropout = dropout

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        h = F.dropout(activate(x, self.skip(a)), self.dropout, self.training)
        return self.conv(h).add_(x)


class Up(nn.Module):
    """Upsampling by 2: `depth_to_space(conv(x))`, (N, a, H, W) -> (N, b, 2H, 2W)."""

    def __init__(self, convolve: Convolve, a: int, b: int) -> None:
        super().__init__()
        self.conv = convolve(a, 4 * b, 3)

    def forward(self, x: Tensor) -> Tensor:
        return depth_to_space(self.conv(x))
