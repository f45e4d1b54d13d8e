"""CycleGAN's residual generator: parameters by formula, shapes, biases, dropout, initialisation, bad input."""

import pytest
import torch

from models.images.resnet_generator import ResNetGenerator


def count(network):
    return sum(parameter.numel() for parameter in network.parameters())


def expected(a, b, f, blocks, norm):
    """Weights: 49 or 9 for each pair of channels. Biases: as many as channels. Batch norm: two for each channel."""
    convolutions = 49 * f * (a + b) + 2 * 9 * (f * 2 * f + 2 * f * 4 * f) + blocks * 2 * 9 * (4 * f) ** 2
    normed = f + 2 * f + 4 * f + 2 * f + f + blocks * 2 * 4 * f  # channels of all layers but the last
    return convolutions + b + normed * {"instance": 1, "batch": 2, "none": 0}[norm]


@pytest.mark.parametrize("norm", ["instance", "batch", "none"])
@pytest.mark.parametrize(("a", "b", "f", "blocks"), [(3, 3, 64, 9), (1, 4, 5, 2)])
def test_parameters(a, b, f, blocks, norm):
    with torch.device("meta"):
        network = ResNetGenerator(in_channels=a, out_channels=b, features=f, blocks=blocks, norm=norm)
    assert count(network) == expected(a, b, f, blocks, norm)
    assert expected(3, 3, 64, 9, "instance") == 11_378_179  # as published, and with 6 blocks
    assert expected(3, 3, 64, 6, "instance") == 7_837_699


def test_dropout_is_switched():
    network, x = ResNetGenerator(features=2, blocks=2, dropout=0.5), torch.randn(1, 3, 16, 16)

    def same(**how):
        return torch.equal(network(x, **how)["image"], network(x, **how)["image"])

    assert not same()
    assert same(dropout=False)
    network.eval()
    assert same()
    assert not same(dropout=True)
