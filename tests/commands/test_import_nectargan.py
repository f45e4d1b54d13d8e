"""NectarGAN's networks, written from their description with their names, and figura's networks with their weights."""

from itertools import pairwise

import pytest
import torch
from import_by_hand import drawn, imported, largest, pictures, refused
from torch import nn


class Unet(nn.Module):
    """A block: `conv` is a sequence whose first layer with weights is 0, or 2 behind bilinear upsampling."""

    def __init__(self, a, b, activation, norm, down, bias, bilinear, residual):
        super().__init__()
        if down:
            layers = [nn.Conv2d(a, b, 4, 2, 1, bias=bias, padding_mode="reflect")]
        elif bilinear:
            layers = [nn.Upsample(scale_factor=2, mode="bilinear"), nn.ReflectionPad2d(1), nn.Conv2d(a, b, 3)]
        else:
            layers = [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=bias)]
        self.conv = nn.Sequential(*layers, nn.InstanceNorm2d(b) if norm else nn.Identity(), activation)
        self.residual = None
        if residual and down:
            self.residual = nn.Sequential(nn.Conv2d(a, b, 1, 2), nn.ReLU())
        elif residual and a != b:
            self.residual = nn.Sequential(nn.ConvTranspose2d(a, b, 1, 2, output_padding=1), nn.ReLU())
        elif residual:
            self.residual = nn.Sequential(nn.Identity())

    def forward(self, x):
        return self.conv(x) if self.residual is None else self.conv(x) + self.residual(x)


class Generator(nn.Module):
    def __init__(self, channels, width, n_downs, bilinear, residual):
        super().__init__()
        widths = [min(2**i, 8) * width for i in range(n_downs + 1)]
        common = {"bilinear": bilinear, "residual": residual}
        leaky, relu = nn.LeakyReLU(0.2), nn.ReLU()
        self.initial_down = Unet(channels, width, leaky, False, True, True, **common)
        self.downs = nn.ModuleList(Unet(a, b, leaky, True, True, False, **common) for a, b in pairwise(widths))
        self.bottleneck = Unet(8 * width, 8 * width, relu, False, True, True, **common)
        ups = [(8 * width, 8 * width), *((2 * b, a) for a, b in reversed(list(pairwise(widths))))]
        self.ups = nn.ModuleList(Unet(a, b, relu, True, False, False, **common) for a, b in ups)
        self.final_up = Unet(2 * width, channels, nn.Tanh(), False, False, True, **common)

    def forward(self, x):
        skips = [self.initial_down(x)]
        for down in self.downs:
            skips.append(down(skips[-1]))
        x = self.ups[0](self.bottleneck(skips[-1]))
        for up in self.ups[1:]:
            x = up(torch.cat([x, skips.pop()], 1))
        return self.final_up(torch.cat([x, skips.pop()], 1))


class Block(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        convolution = nn.Conv2d(a, b, 4, stride, 1, bias=False, padding_mode="reflect")
        self.conv = nn.Sequential(convolution, nn.InstanceNorm2d(b), nn.LeakyReLU(0.2))

    def forward(self, x):
        return self.conv(x)


class Discriminator(nn.Module):
    def __init__(self, channels, width, layers, most):
        super().__init__()
        first = nn.Conv2d(2 * channels, width, 4, 2, 1, padding_mode="reflect")
        parts = [first, nn.LeakyReLU(0.2)]
        for i in range(1, layers):
            parts.append(Block(width, min(2 * width, most), 1 if i == layers - 1 else 2))
            width = min(2 * width, most)
        self.model = nn.Sequential(*parts, nn.Conv2d(width, 1, 4, 1, 1, padding_mode="reflect"))

    def forward(self, x, y):
        return self.model(torch.cat([x, y], 1))


@pytest.mark.parametrize("bilinear", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("channels", "n_downs"), [(3, 3), (1, 5)])
def test_generator(bilinear, residual, channels, n_downs, tmp_path, capsys):
    theirs = drawn(Generator(channels, 4, n_downs, bilinear, residual))
    ours, entry = imported(
        "nectargan", {"state_dict": theirs.state_dict(), "optimizer": {"state": {}}}, tmp_path, capsys
    )
    assert (entry["features"], entry["n_downs"], entry["in_channels"]) == (4, n_downs, channels)
    # A residual bottleneck of more than one pixel crashes there.
    x = pictures(channels, 2 ** (n_downs + 2) * (1 if residual else 2))
    expected = theirs.double()(x)
    assert expected.std() > 0.05
    assert largest(ours(x)["image"], expected) < 1e-9


def test_parameters_of_the_default_generator():
    with torch.device("meta"):
        assert sum(p.numel() for p in Generator(3, 64, 6, False, False).parameters()) == 54_404_675


@pytest.mark.parametrize(("layers", "most"), [(1, 512), (3, 512), (5, 16)])
def test_discriminator(layers, most, tmp_path, capsys):
    theirs = drawn(Discriminator(3, 8, layers, most))
    ours, entry = imported("nectargan", {"state_dict": theirs.state_dict()}, tmp_path, capsys)
    assert (entry["type"], entry["n_layers"]) == ("pix2pix.PatchDiscriminator", layers)
    x, y = pictures(3, 64), pictures(3, 64, seed=2)
    assert largest(ours(x, y)["logits"], theirs.double()(x, y)) < 1e-9


def test_what_does_not_fit(tmp_path, capsys):
    later = Generator(3, 4, 3, False, False).state_dict() | {"bottleneck.1.weight": torch.zeros(32, 32, 3, 3)}
    assert "after 0.2.3" in refused("nectargan", later, tmp_path, capsys)
    shallow = {
        name: value for name, value in Generator(3, 4, 3, False, False).state_dict().items() if "downs.2" not in name
    }
    said = refused("nectargan", shallow, tmp_path, capsys)
    assert "refused.pth: 6 tensors do not fit pix2pix.UNetGenerator" in said
    said = refused("nectargan", {"state_dict": {"a.weight": torch.zeros(2)}}, tmp_path, capsys)
    assert "there is no tensor initial_down.conv.0.weight (generator)" in said
