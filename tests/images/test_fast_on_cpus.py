"""The tiled convolution for CPUs against the direct one."""

import pytest
import torch
import torch.nn.functional as F

from models.images import winograd


def problem(*, n, c, k, h, w, dtype=torch.float64):
    generator = torch.Generator().manual_seed(n + c + k + h + w)
    shapes = [(n, c, h, w), (k, c, 3, 3), (k,)]
    return [torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes]


# Several samples a chunk; bands of a sample, the last one shorter; one sample a chunk.
SHAPES = [
    {"n": 5, "c": 64, "k": 72, "h": 16, "w": 16},
    {"n": 1, "c": 256, "k": 64, "h": 36, "w": 48},
    {"n": 3, "c": 96, "k": 64, "h": 32, "w": 32},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_the_direct_ones(shape):
    inputs = problem(**shape)
    assert winograd._pays(*inputs[:2])
    ours, direct = winograd.convolve(*inputs), F.conv2d(*inputs, padding=1)
    assert torch.allclose(ours, direct, rtol=0, atol=1e-10)
    cotangent = torch.randn_like(direct)
    pairs = zip(
        torch.autograd.grad(ours, inputs, cotangent), torch.autograd.grad(direct, inputs, cotangent), strict=True
    )
    for found, expected in pairs:
        assert torch.allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_each_gradient_alone(wanted):
    inputs = [tensor.detach().requires_grad_(i == wanted) for i, tensor in enumerate(problem(**SHAPES[0]))]
    found, expected = (
        torch.autograd.grad(f.square().sum(), inputs[wanted])[0]
        for f in (winograd.convolve(*inputs), F.conv2d(*inputs, padding=1))
    )
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-8)


def test_rounding_in_float32_is_small():
    inputs = problem(n=2, c=128, k=128, h=32, w=32, dtype=torch.float32)
    exact = F.conv2d(*(tensor.double() for tensor in inputs), padding=1)
    error = (winograd.convolve(*inputs) - exact).abs().max() / exact.abs().max()
    assert error < 3e-5


def test_any_layout_gives_a_channels_last_result():
    inputs = [tensor.detach() for tensor in problem(**SHAPES[0])]
    result = winograd.convolve(*inputs)
    assert result.is_contiguous(memory_format=torch.channels_last)
    channels_last = inputs[0].contiguous(memory_format=torch.channels_last)
    assert torch.equal(result, winograd.convolve(channels_last, *inputs[1:]))


def test_other_problems_stay_direct():
    x, weight, bias = (tensor.detach() for tensor in problem(n=1, c=64, k=64, h=18, w=16, dtype=torch.float32))
    assert torch.equal(winograd.convolve(x, weight, bias), F.conv2d(x, weight, bias, padding=1))
    square = x[:, :, :16]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert winograd.convolve(square, weight, bias).dtype == torch.bfloat16
