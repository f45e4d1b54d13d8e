"""Shared by losses with one value per example: means in float32, and checks of weights."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Convert half precision to float32: means over many pixels would lose precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def example_means(values: Tensor) -> Tensor:
    """Average each example, (N, ...) -> (N,)."""
    return values.mean(dim=tuple(range(1, values.ndim))) if values.ndim > 1 else values


def check_fits(name: str, weights: Tensor, values: Tensor) -> None:
    """Raise ValueError unless weights have as many dimensions as values, each of the same size or 1."""
    if weights.ndim != values.ndim or any(a not in (1, b) for a, b in zip(weights.shape, values.shape, strict=True)):
        raise ValueError(f"{name} of shape {tuple(weights.shape)} does not fit what it weighs, {tuple(values.shape)}")
