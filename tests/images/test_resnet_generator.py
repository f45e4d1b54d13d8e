"""CycleGAN's residual generator: parameters by formula, shapes, biases, dropout, initialisation, bad input."""

import pytest
import torch

from figura.base.errors import UserError
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


def test_published_parameters():
    """By hand, layer by layer: 9,472 + 73,856 + 295,168 + n x 1,180,160 + 295,040 + 73,792 + 9,411."""
    with torch.device("meta"):
        assert count(ResNetGenerator()) == 11_378_179
        assert count(ResNetGenerator(blocks=6)) == 7_837_699


@pytest.mark.parametrize(("h", "w"), [(8, 8), (12, 32)])
def test_shapes_and_range(h, w):
    network = ResNetGenerator(in_channels=2, out_channels=5, features=3, blocks=1)
    image = network(torch.randn(3, 2, h, w) * 100)["image"]
    assert image.shape == (3, 5, h, w)
    assert image.abs().max() <= 1


def test_a_block_by_hand():
    """One channel, kernels that take the pixel to the left; at the border this is the reflected one, to the right."""
    network = ResNetGenerator(features=1, blocks=1, norm="none")
    block = network.blocks[0]
    with torch.no_grad():
        for convolution in (block.first, block.second):
            convolution.weight.zero_()
            convolution.weight[range(4), range(4), 1, 0] = 1
    x = torch.tensor([1.0, -2.0, 3.0, 5.0]).expand(1, 4, 4, 4)
    # shifted: -2 1 -2 3; ReLU: 0 1 0 3; shifted again: 1 0 1 0; plus x
    assert torch.equal(block(x, False), torch.tensor([2.0, -2.0, 4.0, 5.0]).expand(1, 4, 4, 4))


def test_dropout_is_switched():
    network, x = ResNetGenerator(features=2, blocks=2, dropout=0.5), torch.randn(1, 3, 16, 16)

    def same(**how):
        return torch.equal(network(x, **how)["image"], network(x, **how)["image"])

    assert not same()
    assert same(dropout=False)
    network.eval()
    assert same()
    assert not same(dropout=True)


def test_initialisation():
    torch.manual_seed(0)
    network = ResNetGenerator(features=32, blocks=1, norm="batch")
    assert network.blocks[0].first.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert network.first.norm.weight.mean().item() == pytest.approx(1, abs=0.02)
    assert not network.last.bias.any()
    assert ResNetGenerator(features=32, blocks=1, initialisation="default").last.bias.any()


@pytest.mark.parametrize("shape", [(1, 2, 16, 16), (1, 3, 18, 16), (1, 3, 4, 16)])
def test_pictures_that_do_not_fit(shape):
    network = ResNetGenerator(features=2, blocks=1)
    with pytest.raises(UserError, match=f"found {shape[1]} channels and {shape[2]} x {shape[3]} pixels"):
        network(torch.zeros(shape))
