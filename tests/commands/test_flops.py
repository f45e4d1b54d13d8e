"""FLOPs of convolutions, against counts of the products by hand."""

import pytest
import torch
from torch.nn import functional as F

from figura.commands.describe.flops import flop_counter


@pytest.mark.parametrize(
    ("channels", "groups", "forward"),
    [
        # outputs x channels x kernel x input channels of a group x 2
        ((8, 16), 1, 2 * (3 * 16 * 5 * 5) * 8 * 9),
        ((8, 16), 4, 2 * (3 * 16 * 5 * 5) * 2 * 9),
        ((64, 64), 64, 2 * (3 * 64 * 5 * 5) * 1 * 9),
    ],
)
def test_each_gradient_of_a_convolution_costs_its_forward(channels, groups, forward):
    image = torch.randn(3, channels[0], 10, 10, requires_grad=True)
    weight = torch.randn(channels[1], channels[0] // groups, 3, 3, requires_grad=True)
    with flop_counter() as counter:
        out = F.conv2d(image, weight, stride=2, padding=1, groups=groups)
        assert counter.get_total_flops() == forward
        out.sum().backward()
    assert counter.get_total_flops() == 3 * forward


@pytest.mark.parametrize("groups", [1, 4])
def test_transposed_convolutions(groups):
    image = torch.randn(2, 8, 6, 7, requires_grad=True)
    weight = torch.randn(8, 12 // groups, 4, 4, requires_grad=True)
    forward = 2 * (2 * 8 * 6 * 7) * (12 // groups) * 16  # every input reaches 16 places of each output channel
    with flop_counter() as counter:
        F.conv_transpose2d(image, weight, stride=2, padding=1, groups=groups).sum().backward()
    assert counter.get_total_flops() == 3 * forward


def test_a_gradient_that_nobody_needs_costs_nothing():
    weight = torch.randn(6, 1, 3, 3, requires_grad=True)
    with flop_counter() as counter:
        F.conv2d(torch.randn(1, 6, 8, 8), weight, groups=6).sum().backward()
    assert counter.get_total_flops() == 2 * 2 * (6 * 6 * 6) * 9
