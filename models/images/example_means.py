"""Shared by losses with one value per example: means in float32."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Convert half precision to float32: means over many pixels would lose precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def example_means(values: Tensor) -> Tensor:
    """Average each example, (N, ...) -> (N,)."""
    return values.mean(dim=tuple(range(1, values.ndim))) if values.ndim > 1 else values
