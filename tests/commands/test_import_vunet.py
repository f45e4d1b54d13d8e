"""VUNet's PyTorch port, written from its description with its names, and figura's VUNet with its weights."""

import pytest
import torch
import torch.nn.functional as F
from import_by_hand import drawn, imported, largest, pictures
from torch import nn


class Normalised(nn.Module):
    """gamma (conv(x; g v / |v|) + b) + beta."""

    def __init__(self, a, b, size, stride=1, padding=0):
        super().__init__()
        self.beta, self.gamma = (nn.Parameter(torch.zeros(1, b, 1, 1)) for _ in range(2))
        self.conv = nn.Module()
        self.conv.bias, self.conv.weight_g = nn.Parameter(torch.zeros(b)), nn.Parameter(torch.ones(b, 1, 1, 1))
        self.conv.weight_v = nn.Parameter(torch.zeros(b, a, size, size))
        self.stride, self.padding = stride, padding

    def forward(self, x):
        v = self.conv.weight_v
        weight = self.conv.weight_g * v / v.square().sum((1, 2, 3), keepdim=True).sqrt()
        return self.gamma * F.conv2d(x, weight, self.conv.bias, self.stride, self.padding) + self.beta


def down_pixels(x):
    """Pixels of 2 x 2 blocks become four runs of channels, row by row."""
    return torch.cat([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)], 1)


def up_pixels(x):
    """The inverse."""
    n, c, h, w = x.shape
    out = x.new_zeros(n, c // 4, 2 * h, 2 * w)
    for index, part in enumerate(x.chunk(4, 1)):
        out[:, :, index // 2 :: 2, index % 2 :: 2] = part
    return out


class Block(nn.Module):
    def __init__(self, conv, c, skip=False):
        super().__init__()
        self.conv2d = conv(2 * c if skip else c, c, 3, padding=1)
        if skip:
            self.pre = conv(c, c, 1)

    def forward(self, x, a=None):
        h = x if a is None else torch.cat([x, self.pre(a)], 1)
        return x + self.conv2d(F.elu(h))


def named(**layers):
    module = nn.Module()
    for name, layer in layers.items():
        module.add_module(name, layer)
    return module


class Encoder(nn.Module):
    def __init__(self, conv, channels, widths):
        super().__init__()
        self.in_op = conv(channels, widths[0], 1)
        self.blocks = nn.ModuleDict(
            {f"s{s}_{i}": Block(conv, c) for s, c in enumerate(widths, start=1) for i in (1, 2)}
        )
        self.downs = nn.ModuleDict(
            {
                f"s{s + 1}": named(down=conv(widths[s - 1], widths[s], 3, stride=2, padding=1))
                for s in range(1, len(widths))
            }
        )
        self.stages = len(widths)

    def forward(self, x):
        h, out = self.in_op(x), {}
        for s in range(1, self.stages + 1):
            h = self.downs[f"s{s}"].down(h) if s > 1 else h
            for i in (1, 2):
                h = out[f"s{s}_{i}"] = self.blocks[f"s{s}_{i}"](h)
        return out


class Port(nn.Module):
    """With no noise: z are the posterior's means."""

    def __init__(self, conv, stages, start, tanh):
        super().__init__()
        c = 2 * start
        widths = [start] + [c] * (stages - 1)
        self.f_phi, self.e_theta = Encoder(conv, 3, widths), Encoder(conv, 4, widths)
        self.zc = named(
            blocks=nn.ModuleList(Block(conv, c, True) for _ in range(3)), conv1x1=conv(c, c, 1),
            up=named(up=conv(c, 4 * c, 3, padding=1)), channel_norm=conv(2 * c, c, 1),
        )  # fmt: skip
        top, low = f"s{stages}", f"s{stages - 1}"
        self.bottleneck = named(
            blocks=nn.ModuleDict({f"{s}_{i}": Block(conv, c, True) for s in (top, low) for i in (1, 2)}),
            channel_norm=nn.ModuleDict({s: conv(2 * c, c, 1) for s in (top, low)}), conv1x1=conv(c, c, 1),
            up=named(up=conv(c, 4 * c, 3, padding=1)), param_converter=conv(4 * c, c, 1),
            auto_blocks=nn.ModuleList(Block(conv, c, i > 0) for i in range(4)),
        )  # fmt: skip
        self.decoder = named(
            blocks=nn.ModuleDict(
                {f"s{s}_{i}": Block(conv, widths[s - 1], True) for s in range(1, stages - 1) for i in (1, 2)}
            ),
            ups=nn.ModuleDict(
                {f"s{s + 1}": named(up=conv(c, 4 * widths[s - 1], 3, padding=1)) for s in range(1, stages - 1)}
            ),
            final_layer=conv(start, 3, 1),
        )  # fmt: skip
        self.stages, self.tanh = stages, tanh

    def forward(self, pose, appearance):
        e, f, (t, low) = self.e_theta(pose), self.f_phi(appearance), (f"s{self.stages}", f"s{self.stages - 1}")
        zc, b = self.zc, self.bottleneck
        q_top = zc.blocks[0](zc.conv1x1(f[t + "_2"]), f[t + "_1"])
        h = zc.blocks[1](q_top, zc.channel_norm(torch.cat([f[t + "_1"], q_top], 1)))
        z_low = zc.blocks[2](up_pixels(zc.up.up(h)), f[low + "_1"])
        h = b.blocks[t + "_2"](b.conv1x1(e[t + "_2"]), e[t + "_2"])
        h = b.blocks[t + "_1"](b.channel_norm[t](torch.cat([h, q_top], 1)), e[t + "_1"])
        v = b.blocks[low + "_2"](up_pixels(b.up.up(h)), e[low + "_2"])
        mean = b.param_converter(down_pixels(b.auto_blocks[0](v)))
        means, groups = [mean], down_pixels(z_low).chunk(4, 1)
        for i in range(3):  # one block too early: the first takes no group, the last is never run
            mean = b.auto_blocks[i](mean) if i == 0 else b.auto_blocks[i](mean, groups[i])
            means.append(mean)
        h = b.blocks[low + "_1"](b.channel_norm[low](torch.cat([v, z_low], 1)), e[low + "_1"])
        for s in range(self.stages - 2, 0, -1):
            h = up_pixels(self.decoder.ups[f"s{s + 1}"].up(h))
            for i in (2, 1):
                h = self.decoder.blocks[f"s{s}_{i}"](h, e[f"s{s}_{i}"])
        image = self.decoder.final_layer(h)
        return torch.tanh(image) if self.tanh else image, torch.cat(means, 1)


def port(normalised, stages=5, start=4):
    network = drawn(Port(Normalised if normalised else nn.Conv2d, stages, start, not normalised))
    if normalised:
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.mul_(0.3).add_(0.7 if name.endswith("gamma") else 0.0)
    return network


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("stages", [4, 6])
def test_forward(normalised, stages, tmp_path, capsys):
    theirs = port(normalised, stages)
    content = {"model": theirs.state_dict(), "optimizer": {"state": {}, "param_groups": []}}
    ours, entry = imported("vunet_pytorch", content, tmp_path, capsys)
    size = 2 ** (stages - 1)
    assert (entry["image_size"], entry["nf_start"], entry["nf_max"], entry["pose_channels"]) == (size, 4, 8, 4)
    pose, appearance = pictures(4, size), pictures(3, size, seed=2)
    image, means = theirs.double()(pose, appearance)
    found = ours(pose, appearance, "appearance_transfer")
    assert image.std() > 0.05
    assert largest(found["image"], image) < 1e-9
    assert largest(found["p_means"][f"s{stages - 1}"], means) < 1e-9


def test_parameters_of_the_published_sizes():
    with torch.device("meta"):
        counts = [sum(p.numel() for p in Port(conv, 7, 64, True).parameters()) for conv in (nn.Conv2d, Normalised)]
    extra = 64, 5 * 64  # here a pose has 4 channels, one more: 64 weights of the first convolution
    assert [counts[0] - extra[0], counts[1] - extra[0]] == [15_259_971, 15_302_220]
