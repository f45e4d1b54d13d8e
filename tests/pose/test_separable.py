"""Depthwise and pointwise convolutions, and the channel shuffle: results and gradients against plain float64 layers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from models.pose.separable import Depthwise, Pointwise
from models.pose.shufflenet import interleave


def check(layer: nn.Conv2d, image: Tensor, plain: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Compare a layer's output and both of its gradients with those of `plain(image, weight)` in float64."""
    image = image.requires_grad_()
    out = layer(image)
    towards = torch.randn_like(out)
    out.backward(towards)
    exact_image = image.detach().double().contiguous().requires_grad_()
    exact_weight = layer.weight.detach().double().requires_grad_()
    exact = plain(exact_image, exact_weight)
    exact.backward(towards.double())
    for ours, expected in (
        (out, exact), (image.grad, exact_image.grad), (layer.weight.grad, exact_weight.grad),
    ):  # fmt: skip
        assert ours is not None
        assert expected is not None
        torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("size", [(25, 24), (12, 7), (4, 5), (3, 2)])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_depthwise_has_the_gradients_of_a_grouped_convolution(
    kernel: int, stride: int, size: tuple[int, int], channels_last: bool
) -> None:
    torch.manual_seed(0)
    image = torch.randn(2, 6, *size)
    if channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
    check(
        Depthwise(6, kernel, stride, 1), image,
        lambda x, weight: functional.conv2d(x, weight, stride=stride, padding=kernel // 2, groups=6),
    )  # fmt: skip


def test_a_dilated_depthwise_convolution_is_a_grouped_one() -> None:
    torch.manual_seed(0)
    check(
        Depthwise(4, 5, 1, 2), torch.randn(2, 4, 9, 9),
        lambda x, weight: functional.conv2d(x, weight, padding=4, dilation=2, groups=4),
    )  # fmt: skip


@pytest.mark.parametrize("channels_last", [True, False])
def test_pointwise_is_a_matrix_for_each_pixel(channels_last: bool) -> None:
    torch.manual_seed(0)
    image = torch.randn(2, 6, 5, 7)
    if channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
    check(Pointwise(6, 9), image, lambda x, weight: torch.einsum("nchw,oc->nohw", x, weight[:, :, 0, 0]))


@pytest.mark.parametrize("layer", [Depthwise(6, 5, 1, 1), Pointwise(6, 6)])
def test_both_learn_under_autocast(layer: nn.Conv2d) -> None:
    layer.weight.grad = None
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(torch.randn(2, 6, 9, 9))
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


def test_interleave_takes_the_channels_of_both_in_turn() -> None:
    a, b = (torch.randn(2, 3, 4, 5, requires_grad=True) for _ in range(2))
    out = interleave(a, b)
    for channel in range(3):
        assert torch.equal(out[:, 2 * channel], a[:, channel])
        assert torch.equal(out[:, 2 * channel + 1], b[:, channel])
    towards = torch.randn_like(out)
    out.backward(towards)
    assert a.grad is not None
    assert b.grad is not None
    assert torch.equal(a.grad, towards[:, ::2])
    assert torch.equal(b.grad, towards[:, 1::2])


def test_channels_of_a_gradient_of_interleave_lie_side_by_side() -> None:
    """ReLU's backward pass takes several times as long where every second element counts."""
    strides = []
    a, b = (torch.randn(2, 8, 4, 5).contiguous(memory_format=torch.channels_last).requires_grad_() for _ in range(2))
    b.register_hook(lambda gradient: strides.append(gradient.stride()[1]))
    out = interleave(a, b)
    out.backward(torch.randn(2, 16, 4, 5).contiguous(memory_format=torch.channels_last))
    assert strides == [1]
