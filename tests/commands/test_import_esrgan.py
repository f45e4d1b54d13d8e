"""RRDBNet with the three sets of names that exist, written from the paper, and figura's generator with its weights."""

import pytest
import torch
import torch.nn.functional as F
from import_by_hand import drawn, imported, largest, pictures
from torch import nn


class Dense(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        for i in range(5):
            outputs = growth if i < 4 else width
            self.add_module(f"conv{i + 1}", nn.Conv2d(width + i * growth, outputs, 3, 1, 1))

    def forward(self, x):
        maps = [x]
        for i in range(4):
            maps.append(F.leaky_relu(getattr(self, f"conv{i + 1}")(torch.cat(maps, 1)), 0.2))
        return 0.2 * self.conv5(torch.cat(maps, 1)) + x


class Residual(nn.Module):
    def __init__(self, width, growth, prefix):
        super().__init__()
        self.names = [f"{prefix}{i}" for i in (1, 2, 3)]
        for name in self.names:
            self.add_module(name, Dense(width, growth))

    def forward(self, x):
        y = x
        for name in self.names:
            y = getattr(self, name)(y)
        return 0.2 * y + x


class RRDBNet(nn.Module):
    """`names`: first, trunk, its dense blocks' prefix, its convolution, doublings, the one before the last, last."""

    def __init__(self, names, channels, width, blocks, growth, unshuffle=1):
        super().__init__()
        self.first, trunk, prefix, self.joining, self.ups, self.high, self.last = names
        self.trunk, self.unshuffle = trunk, unshuffle
        self.add_module(self.first, nn.Conv2d(channels * unshuffle**2, width, 3, 1, 1))
        self.add_module(trunk, nn.Sequential(*(Residual(width, growth, prefix) for _ in range(blocks))))
        for name in (self.joining, *self.ups, self.high):
            self.add_module(name, nn.Conv2d(width, width, 3, 1, 1))
        self.add_module(self.last, nn.Conv2d(width, channels, 3, 1, 1))

    def forward(self, x):
        n, c, h, w = x.shape
        k = self.unshuffle
        x = x.view(n, c, h // k, k, w // k, k).permute(0, 1, 3, 5, 2, 4).reshape(n, c * k * k, h // k, w // k)
        x = getattr(self, self.first)(x)
        x = x + getattr(self, self.joining)(getattr(self, self.trunk)(x))
        for name in self.ups:
            x = F.leaky_relu(getattr(self, name)(x.repeat_interleave(2, 2).repeat_interleave(2, 3)), 0.2)
        return getattr(self, self.last)(F.leaky_relu(getattr(self, self.high)(x), 0.2))


def basicsr(**settings):
    names = ("conv_first", "body", "rdb", "conv_body", ("conv_up1", "conv_up2"), "conv_hr", "conv_last")
    return drawn(RRDBNet(names, 3, 8, 2, 4, **settings))


def released(doublings=2):
    names = ("conv_first", "RRDB_trunk", "RDB", "trunk_conv", ("upconv1", "upconv2")[:doublings], "HRconv", "conv_last")
    return drawn(RRDBNet(names, 3, 8, 2, 4))


def old_names(state, doublings):
    """The names of the time before `RRDB_trunk`: places in one sequence, where a doubling takes three."""
    ups = {f"upconv{i + 1}": f"model.{3 + 3 * i}" for i in range(doublings)}
    end = 2 + 3 * doublings
    places = ups | {
        "conv_first": "model.0",
        "trunk_conv": "model.1.sub.2",
        "HRconv": f"model.{end}",
        "conv_last": f"model.{end + 2}",
    }
    renamed = {}
    for name, value in state.items():
        module, part = name.rsplit(".", 1)
        place = places.get(module) or module.replace("RRDB_trunk", "model.1.sub") + ".0"
        renamed[f"{place}.{part}"] = value
    return renamed


def check(theirs, content, scale, tmp_path, capsys):
    ours, entry = imported("esrgan", content, tmp_path, capsys)
    assert (entry["scale"], entry["features"], entry["blocks"], entry["growth"]) == (scale, 8, 2, 4)
    x = pictures(3, 12, low=0.0)
    expected = theirs.double()(x)
    assert expected.std() > 0.05
    assert largest(ours(2 * x - 1)["image"], 2 * expected - 1) < 1e-9


@pytest.mark.parametrize("unshuffle", [1, 2, 4])
def test_names_of_basicsr(unshuffle, tmp_path, capsys):
    theirs = basicsr(unshuffle=unshuffle)
    other = {name: value + 1 for name, value in theirs.state_dict().items()}
    check(theirs, {"params": other, "params_ema": theirs.state_dict()}, 4 // unshuffle, tmp_path, capsys)


@pytest.mark.parametrize("doublings", [0, 1, 2])
def test_released_and_old_names(doublings, tmp_path, capsys):
    theirs = released(doublings)
    state = theirs.state_dict()
    old, wrapped = old_names(state, doublings), {f"module.{name}": value for name, value in state.items()}
    contents = [{name: value.clone() for name, value in one.items()} for one in (state, old, wrapped)]
    for content in contents:
        check(theirs, content, 2**doublings, tmp_path, capsys)


def test_old_names_are_those_of_the_published_file():
    names = old_names({f"{name}.weight": 0 for name in ("conv_first", "upconv1", "upconv2", "HRconv", "conv_last")}, 2)
    assert list(names) == [f"model.{place}.weight" for place in (0, 3, 6, 8, 10)]
