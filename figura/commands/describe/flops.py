"""Counts floating-point operations. A multiplication and an addition are two."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

Shape = Sequence[int]


def flop_counter() -> FlopCounterMode:
    """Return a context that counts operations, on meta tensors too; `get_total_flops()` is the sum.

    PyTorch's own formula for the gradient of a grouped convolution's weight leaves the groups out: it counts 64 times
    too much for 64 groups.
    """
    return FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution_backward: _convolution_backward_flops}
    )


def _convolution_backward_flops(
    grad_shape: Shape, input_shape: Shape, weight_shape: Shape, _bias: Any, _stride: Any, _padding: Any, _dilation: Any,
    transposed: bool, _output_padding: Any, _groups: int, output_mask: Sequence[bool], **_: Any,
) -> int:  # fmt: skip
    """Each of the gradients of input and weight costs what the forward costs.

    Every product of the forward pairs an element of the input with one of the weight; it occurs once in either
    gradient. A weight is (channels, channels / groups, ...), so its size takes the groups into account.
    """
    positions = math.prod((input_shape if transposed else grad_shape)[2:])
    return 2 * grad_shape[0] * positions * math.prod(weight_shape) * sum(output_mask[:2])
