"""The generator and its judges: published sizes, layers by hand, bad arguments and images."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from figura.base.errors import UserError
from models.super_resolution.discriminators import UNetDiscriminator, VGGDiscriminator
from models.super_resolution.residual import ResidualGenerator
from models.super_resolution.rrdb import DenseBlock, ResidualDenseBlocks, RRDBGenerator

SMALL = {"features": 6, "growth": 3, "blocks": 1}


def parameters(network):
    return sum(p.numel() for p in network.parameters())


def test_the_papers_network_has_the_published_number_of_parameters():
    with torch.device("meta"):
        assert parameters(RRDBGenerator()) == 16_697_987  # ESRGAN's RRDBNet: x4, 23 blocks of width 64, growth 32


def by_hand(block, x):
    """A dense block as the papers draw it, in float64."""
    maps = [x]
    for index, layer in enumerate(block.convolutions):
        y = F.conv2d(torch.cat(maps, 1), layer.weight.double(), layer.bias.double(), padding=1)
        maps.append(torch.where(y < 0, 0.2 * y, y) if index < 4 else y)
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


def test_the_trunk_is_added_to_its_input_or_as_in_dl_art_school_to_its_output():
    torch.manual_seed(0)
    x, images = torch.rand(1, 3, 4, 4), {}
    for skip in ("input", "output"):
        network = RRDBGenerator(scale=1, trunk_skip=skip, **SMALL)
        for name, one in network.named_parameters():
            torch.nn.init.constant_(one, 0.01 if name.endswith("weight") else 0.0)
        features = network.first(x)
        blocks, convolution = network.trunk[0], network.trunk[1]
        made = blocks(features)
        summed = convolution(made) + (features if skip == "input" else made)
        expected = network.last(F.leaky_relu(network.painting(summed), 0.2))
        images[skip] = network(x)["image"]
        torch.testing.assert_close(images[skip], expected, atol=0, rtol=1e-6)
    assert not torch.equal(*images.values())


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


# --- judges ---


def weights_of(*layers):
    """(inputs, outputs, side) of convolutions without bias."""
    return sum(inputs * outputs * side**2 for inputs, outputs, side in layers)


def test_judges_have_the_published_numbers_of_parameters():
    down = weights_of((64, 128, 4), (128, 256, 4), (256, 512, 4))
    up = weights_of((512, 256, 3), (256, 128, 3), (128, 64, 3), (64, 64, 3), (64, 64, 3))
    assert parameters(UNetDiscriminator()) == weights_of((3, 64, 3)) + 64 + down + up + 64 * 9 + 1 == 4_376_897
    assert parameters(VGGDiscriminator(image_size=128)) == 14_499_401  # ESRGAN's Discriminator_VGG_128


JUDGES = {
    "unet": lambda **more: UNetDiscriminator(features=4, **more),
    "vgg": lambda **more: VGGDiscriminator(image_size=16, features=4, norm="none", **more),
}


@pytest.mark.parametrize("judge", JUDGES)
def test_real_and_fake_in_one_pass_are_judged_alone(judge):
    torch.manual_seed(0)
    network = JUDGES[judge]().eval()
    image, fake = torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16)
    both = network(image, fake)
    assert set(both) == set(network.outputs)
    torch.testing.assert_close(both["logits"], network(image)["logits"], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(both["fake_logits"], network(fake)["logits"], atol=1e-6, rtol=1e-5)
    if judge == "unet":
        assert both["logits"].shape == (2, 1, 16, 16)


@pytest.mark.parametrize("judge", JUDGES)
def test_values_from_0_to_1_inside(judge):
    """The same weights judge x in [-1, 1] as they would judge (x + 1) / 2: padding by zeros is then black."""
    torch.manual_seed(0)
    signed, unit = JUDGES[judge]().eval(), JUDGES[judge](pixels="unit").eval()
    unit.load_state_dict(signed.state_dict())
    image, fake = torch.rand(2, 2, 3, 16, 16) * 2 - 1
    expected = signed((image + 1) / 2, (fake + 1) / 2)
    for name, logits in unit(image, fake).items():
        torch.testing.assert_close(logits, expected[name], atol=0, rtol=0)
    assert not torch.allclose(unit(image)["logits"], signed(image)["logits"], atol=1e-3)


def test_normalised_layers_have_spectral_norm_one():
    torch.manual_seed(0)
    network = UNetDiscriminator(features=4)
    with torch.no_grad():
        for layer in network.downs:
            layer.parametrizations.weight.original.mul_(30)
        for _ in range(50):
            network(torch.rand(1, 3, 16, 16))
    for layer in [*network.downs, *network.ups, *network.judging]:
        largest = torch.linalg.svdvals(layer.weight.detach().flatten(1))[0].item()
        assert largest == pytest.approx(1.0, abs=0.01)


def test_the_unet_by_hand():
    """Skips are added, enlargement is bilinear; at the coarsest level one pixel remains of eight by eight."""
    torch.manual_seed(0)
    network = UNetDiscriminator(features=2).eval()
    x = torch.rand(1, 3, 8, 8)

    def lrelu(y):
        return torch.where(y < 0, 0.2 * y, y)

    with torch.no_grad():
        found = [lrelu(F.conv2d(x, network.first.weight, network.first.bias, padding=1))]
        for layer in network.downs:
            found.append(lrelu(F.conv2d(found[-1], layer.weight, stride=2, padding=1)))
        y = found.pop()
        assert y.shape == (1, 16, 1, 1)
        for layer in network.ups:
            large = F.interpolate(y, size=found[-1].shape[2:], mode="bilinear")
            y = lrelu(F.conv2d(large, layer.weight, padding=1)) + found.pop()
        for layer in network.judging:
            y = lrelu(F.conv2d(y, layer.weight, padding=1))
        expected = F.conv2d(y, network.last.weight, network.last.bias, padding=1)
        torch.testing.assert_close(network(x)["logits"], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_residual_generator_starts_from_bicubic_and_moves_pixels_by_the_shuffle(scale):
    torch.manual_seed(0)
    network, x = ResidualGenerator(scale=scale, features=6, blocks=2), torch.rand(2, 3, 5, 7)
    bicubic = F.interpolate(x, scale_factor=scale, mode="bicubic", align_corners=False)
    assert torch.equal(network(x)["image"], bicubic if scale > 1 else x)
    channel, row, column = 2, scale - 1, 0
    torch.nn.init.constant_(network.last.bias[channel * scale**2 + row * scale + column :][:1], 1.0)
    added = network(x)["image"] - (bicubic if scale > 1 else x)
    expected = torch.zeros_like(added)
    expected[:, channel, row::scale, column::scale] = 1
    torch.testing.assert_close(added, expected, atol=1e-6, rtol=0)


def test_the_residual_generators_blocks_by_hand():
    torch.manual_seed(0)
    network, x = ResidualGenerator(features=8, blocks=1), torch.randn(1, 8, 6, 6)
    block = network.trunk[0]
    torch.nn.init.normal_(block.second.bias)
    y = F.conv2d(x.double(), block.first.weight.double(), block.first.bias.double(), padding=1).clamp(min=0)
    y = F.conv2d(y, block.second.weight.double(), block.second.bias.double(), padding=1)
    torch.testing.assert_close(block(x).double(), x.double() + y, atol=1e-5, rtol=0)


def test_residual_generator_has_the_stated_size_and_checks_channels():
    assert parameters(ResidualGenerator()) == 636_492
    with pytest.raises(UserError, match="found 1 channels; needed are 3"):
        ResidualGenerator(features=4, blocks=1)(torch.zeros(1, 1, 4, 4))
