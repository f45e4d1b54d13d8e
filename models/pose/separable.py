"""The two halves of a depthwise separable convolution, with gradients that are fast on CPUs, equal up to rounding.

Both are plain `torch.nn.Conv2d` on other devices, under autocast and if no gradient is needed. `Depthwise` can be
differentiated once.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

WIDE = 3  # kernel columns from which oneDNN has no fast depthwise weight gradient; nor for padding above 1


class Pointwise(nn.Conv2d):
    """1 x 1 convolution without bias, (N, inputs, h, w) -> (N, outputs, h, w)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 1, bias=False)

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not _learns_on_cpu(x, weight):
            return super()._conv_forward(x, weight, bias)
        # channels-last pixels are the rows of a matrix, whose products are faster than a convolution's gradients
        return F.linear(x.permute(0, 2, 3, 1), weight.flatten(1)).permute(0, 3, 1, 2)


class Depthwise(nn.Conv2d):
    """An odd square kernel per channel, no bias; (N, channels, h, w) -> (N, channels, h', w').

    h' is h / stride, rounded up, and w' likewise.
    """

    def __init__(self, channels: int, kernel: int, stride: int, dilation: int) -> None:
        padding = (kernel - 1) // 2 * dilation
        super().__init__(channels, channels, kernel, stride, padding, dilation, channels, bias=False)

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        width = self.kernel_size[1]
        if self.dilation != (1, 1) or width <= WIDE or x.shape[-1] < width or not _learns_on_cpu(x, weight):
            return super()._conv_forward(x, weight, bias)
        return _DepthwiseByColumns.apply(x, weight, self.stride[0])


def _learns_on_cpu(x: Tensor, weight: Tensor) -> bool:
    learns = torch.is_grad_enabled() and weight.requires_grad
    return learns and x.is_cpu and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


class _DepthwiseByColumns(torch.autograd.Function):
    """A depthwise convolution whose weight gradient is computed by groups of the kernel's columns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2, groups=len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, weight = ctx.saved_tensors
        size, strides = weight.shape[-1], [ctx.stride, ctx.stride]
        to_x = None
        if ctx.needs_input_grad[0]:
            to_x = _gradients(grad, x, weight, strides, [size // 2, size // 2], [True, False, False])[0]
        return to_x, weight_gradient(x, grad, size, ctx.stride), None


def weight_gradient(x: Tensor, grad: Tensor, size: int, stride: int) -> Tensor:
    """Return the gradient (channels, 1, size, size) of a depthwise convolution's weights; `size` is odd, at least 3.

    The three middle columns need a padding of one column. Each other column is paired with the columns of x that it
    reads.

    Args:
        x: inputs (N, channels, h, w).
        grad: gradient of the outputs (N, channels, h', w'), padding `size // 2`.
        size: side of the kernel.
        stride: same for both axes.
    """
    middle, channels = size // 2, x.shape[1]

    def column(offset: int) -> Tensor:
        kernel = x.new_empty((channels, 1, size, 1))
        columns = _every(x, offset, stride, grad.shape[-1])
        return _gradients(grad, columns, kernel, [stride, 1], [middle, 0], [False, True, False])[1]

    kernel = x.new_empty((channels, 1, size, 3))
    three = _gradients(grad, x, kernel, [stride, stride], [middle, 1], [False, True, False])[1]
    left, right = range(-middle, -1), range(2, middle + 1)
    return torch.cat([*map(column, left), three, *map(column, right)], dim=-1)


def _every(x: Tensor, offset: int, stride: int, width: int) -> Tensor:
    """Return columns offset, offset + stride, ... of x, `width` of them, zeros beyond x."""
    out = torch.empty((*x.shape[:-1], width), dtype=x.dtype, memory_format=torch.channels_last)
    first = -(min(offset, 0) // stride)
    last = min(width, (x.shape[-1] - 1 - offset) // stride + 1)
    out[..., :first] = 0
    out[..., first:last] = x[..., offset + first * stride :: stride][..., : last - first]
    out[..., last:] = 0
    return out


def _gradients(
    grad: Tensor, x: Tensor, weight: Tensor, strides: list[int], padding: list[int], mask: list[bool]
) -> list[Tensor]:
    return torch.ops.aten.convolution_backward(
        grad, x, weight, None, strides, padding, [1, 1], False, [0, 0], len(weight), mask
    )
