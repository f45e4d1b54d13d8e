import numpy as np
import pytest
import torch
import torch.nn.functional as F

from figura.base.errors import UserError
from models.super_resolution.rrdb import DenseBlock, ResidualDenseBlocks, RRDBGenerator

SMALL = {"features": 6, "growth": 3, "blocks": 1}


def parameters(network):
    return sum(p.numel() for p in network.parameters())


def test_the_papers_network_has_the_published_number_of_parameters():
    with torch.device("meta"):
        assert parameters(RRDBGenerator()) == 16_697_987  # ESRGAN's RRDBNet: x4, 23 blocks of width 64, growth 32


@pytest.mark.parametrize("upsampling", ["nearest", "pixel_shuffle"])
@pytest.mark.parametrize("scale", [1, 2, 4])
def test_any_size_becomes_scale_times_as_large(scale, upsampling):
    network = RRDBGenerator(scale=scale, upsampling=upsampling, out_channels=1, **SMALL)
    assert network(torch.rand(2, 3, 5, 7))["image"].shape == (2, 1, 5 * scale, 7 * scale)


def by_hand(block, x):
    """A dense block as the papers draw it, in float64."""
    maps = [x]
    for place, layer in enumerate(block.convolutions):
        y = F.conv2d(torch.cat(maps, 1), layer.weight.double(), layer.bias.double(), padding=1)
        maps.append(torch.where(y < 0, 0.2 * y, y) if place < 4 else y)
    return x + 0.2 * maps[-1]


def test_dense_blocks_and_their_residuals():
    torch.manual_seed(0)
    three, x = ResidualDenseBlocks(6, 3, 0.2), torch.randn(2, 6, 8, 8)
    inner = x.double()
    for block in three.blocks:
        assert isinstance(block, DenseBlock)
        inner = by_hand(block, inner)
    kept = x.clone()
    np.testing.assert_allclose(three(x).detach(), (x + 0.2 * inner).detach(), atol=1e-5)
    assert torch.equal(x, kept)  # activations in place touch nothing that is still needed


def test_with_a_bicubic_skip_it_starts_from_bicubic():
    torch.manual_seed(0)
    x = torch.rand(1, 3, 9, 6)
    image = RRDBGenerator(scale=2, bicubic_skip=True, **SMALL)(x)["image"]
    # output pixel 2i is a quarter pixel before input pixel i: distances 5/4, 1/4, 3/4, 7/4 of Keys' kernel, a = -3/4
    a, near, far = -0.75, (0.25, 0.75), (1.25, 1.75)
    inside = [(a + 2) * d**3 - (a + 3) * d**2 + 1 for d in near]
    outside = [a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a for d in far]
    weights = torch.tensor([outside[1], inside[1], inside[0], outside[0]])  # of input pixels i - 2 to i + 1
    expected = torch.einsum("cyx,y,x->c", x[0, :, 2:6, 1:5], weights, weights)  # i = 4 and 3
    torch.testing.assert_close(image[0, :, 8, 6], expected, atol=1e-5, rtol=0)


def test_residual_blocks_start_small():
    torch.manual_seed(0)
    one, tenth = (RRDBGenerator(blocks=1, features=64, initial_scale=s) for s in (1.0, 0.1))
    for network, scale in ((one, 1.0), (tenth, 0.1)):
        weight = network.trunk[0].blocks[0].convolutions[0].weight
        assert weight.std().item() == pytest.approx(
            scale * (2 / 1.04 / (64 * 9)) ** 0.5, rel=0.05
        )  # He et al., a = 0.2
        assert network.first.weight.std().item() == pytest.approx((2 / 1.04 / 27) ** 0.5, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"scale": 3}, "scale 3: 1, 2 or 4"),
        ({"blocks": 0}, "blocks 0"),
        ({"scaling": 0.0}, "scaling 0.0"),
        ({"initial_scale": 1.5}, "initial_scale 1.5"),
        ({"bicubic_skip": True, "in_channels": 1}, "in_channels 1 and out_channels 3 must be the same"),
    ],
)
def test_bad_arguments(arguments, said):
    with pytest.raises(ValueError, match=said):
        RRDBGenerator(**(SMALL | arguments))


def test_images_of_other_channels():
    with pytest.raises(UserError, match="found 1 channels; needed are 3"):
        RRDBGenerator(**SMALL)(torch.zeros(1, 1, 4, 4))
