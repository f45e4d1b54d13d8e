"""BasicSR's two discriminators, written from the papers with their names, and figura's with their weights."""

import pytest
import torch
import torch.nn.functional as F
from import_by_hand import drawn, imported, largest, pictures
from torch import nn


def leaky(x):
    return torch.where(x > 0, x, 0.2 * x)


class VGG(nn.Module):
    """Convolutions `conv<stage>_0` of side 3 and `conv<stage>_1` of side 4 and stride 2, down to 4 x 4 pixels."""

    def __init__(self, size, channels, width):
        super().__init__()
        self.stages = {8: 1, 32: 3, 128: 5, 256: 6}[size]
        inputs = channels
        for stage in range(self.stages):
            outputs = width * (1, 2, 4, 8, 8, 8)[stage]
            self.add_module(f"conv{stage}_0", nn.Conv2d(inputs, outputs, 3, 1, 1, bias=stage == 0))
            self.add_module(f"conv{stage}_1", nn.Conv2d(outputs, outputs, 4, 2, 1, bias=False))
            for half in (0, 1)[stage == 0 :]:
                self.add_module(f"bn{stage}_{half}", nn.BatchNorm2d(outputs, affine=True))
            inputs = outputs
        self.linear1, self.linear2 = nn.Linear(inputs * 4 * 4, 100), nn.Linear(100, 1)

    def forward(self, x):
        x = leaky(self.conv0_0(x))
        for stage in range(self.stages):
            for half in (0, 1)[stage == 0 :]:
                x = getattr(self, f"conv{stage}_{half}")(x)
                x = leaky(getattr(self, f"bn{stage}_{half}")(x))
        return self.linear2(leaky(self.linear1(x.reshape(len(x), -1))))


class Divided(nn.Module):
    """A convolution whose weights are divided by u^T W v; the names are those of PyTorch's older spectral norm."""

    def __init__(self, inputs, outputs, side, stride):
        super().__init__()
        self.weight_orig = nn.Parameter(torch.zeros(outputs, inputs, side, side))
        self.register_buffer("weight_u", torch.zeros(outputs))
        self.register_buffer("weight_v", torch.zeros(inputs * side**2))
        self.stride = stride

    def forward(self, x):
        sigma = (self.weight_u[:, None] * self.weight_orig.flatten(1) * self.weight_v).sum()
        return F.conv2d(x, self.weight_orig / sigma, stride=self.stride, padding=1)


class UNet(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        sizes = [(1, 2), (2, 4), (4, 8), (8, 4), (4, 2), (2, 1), (1, 1), (1, 1)]
        self.conv0, self.conv9 = nn.Conv2d(channels, width, 3, 1, 1), nn.Conv2d(width, 1, 3, 1, 1)
        for i, (a, b) in enumerate(sizes, start=1):
            self.add_module(f"conv{i}", Divided(a * width, b * width, *((4, 2) if i <= 3 else (3, 1))))

    def forward(self, x):
        maps = [leaky(self.conv0(x))]
        for layer in (self.conv1, self.conv2, self.conv3):
            maps.append(leaky(layer(maps[-1])))
        x = maps[3]
        for layer, skip in ((self.conv4, maps[2]), (self.conv5, maps[1]), (self.conv6, maps[0])):
            x = leaky(layer(F.interpolate(x, skip.shape[2:], mode="bilinear"))) + skip
        return self.conv9(leaky(self.conv8(leaky(self.conv7(x)))))


@torch.no_grad()
def settled(network):
    """Draw the weights, and make u and v what some steps of the power iteration make of them."""
    drawn(network)
    for layer in network.modules():
        if isinstance(layer, Divided):
            matrix, u = layer.weight_orig.flatten(1).double(), layer.weight_u.double()
            for _ in range(3):
                v = F.normalize(matrix.T @ u, dim=0)
                u = F.normalize(matrix @ v, dim=0)
            layer.weight_u.copy_(u)
            layer.weight_v.copy_(v)
    return network


@torch.no_grad()
def lively(network):
    """Draw the weights; scales of norms are large enough that twelve layers keep what differs between two pictures."""
    for layer in drawn(network).modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.weight.abs_().add_(2)
    return network


@pytest.mark.parametrize(("size", "channels"), [(8, 3), (128, 1)])
def test_vgg(size, channels, tmp_path, capsys):
    theirs = lively(VGG(size, channels, 4))
    ours, entry = imported("esrgan", {"params": theirs.state_dict()}, tmp_path, capsys)
    assert entry.items() >= {"type": "super_resolution.VGGDiscriminator", "image_size": size, "features": 4}.items()
    x = pictures(channels, size, low=0.0)
    expected = theirs.double()(x)
    assert (expected[0] - expected[1]).abs() > 0.01
    assert largest(ours(2 * x - 1)["logits"], expected) < 1e-9


@pytest.mark.parametrize("channels", [3, 1])
def test_unet(channels, tmp_path, capsys):
    theirs = settled(UNet(channels, 4))
    ours, entry = imported("esrgan", {"params": theirs.state_dict()}, tmp_path, capsys)
    assert entry.items() >= {"type": "super_resolution.UNetDiscriminator", "features": 4, "pixels": "unit"}.items()
    x = pictures(channels, 24, low=0.0)
    expected = theirs.double()(x)
    assert expected.std() > 0.01
    assert largest(ours(2 * x - 1)["logits"], expected) < 1e-9


def test_pytorchs_older_spectral_norm_has_these_names_and_numbers():
    layer = torch.nn.utils.spectral_norm(nn.Conv2d(3, 4, 3, padding=1, bias=False))
    layer(torch.rand(1, 3, 5, 5))
    own = Divided(3, 4, 3, 1)
    own.load_state_dict(layer.eval().state_dict())
    x = torch.rand(2, 3, 5, 5)
    assert largest(own(x), layer(x)) < 1e-6


def test_parameters_of_the_published_sizes():
    with torch.device("meta"):
        counts = [sum(p.numel() for p in network.parameters()) for network in (UNet(3, 64), VGG(128, 3, 64))]
    assert counts == [4_376_897, 14_499_401]
