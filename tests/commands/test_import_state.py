"""State dictionaries for a network whose class is the user's own file, in all that may lie around them."""

import sys
from importlib import import_module

import pytest
import torch
from import_by_hand import drawn, refused
from safetensors.torch import load_file
from test_import_command import imports, recipe_with

MINE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width))
        self.last = nn.Conv2d(width, 3, 1, bias=False)

    def forward(self, x):
        return self.last(self.body(x))
"""
OTHER = {"conv.weight": torch.ones(2, 2, 1, 1), "conv.bias": torch.ones(2)}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    (tmp_path / "mine_net.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield recipe_with(tmp_path, generator={"type": "mine_net.Net", "width": 5})
    sys.modules.pop("mine_net", None)


def network():
    return drawn(import_module("mine_net").Net(5))


def before(prefix, state):
    return {prefix + name: tensor for name, tensor in state.items()}


AROUND = {
    "nothing": lambda net, state: state,
    "params": lambda net, state: {"params": state},
    "params_ema": lambda net, state: {"params": OTHER, "params_ema": state},
    "state_dict": lambda net, state: {"epoch": 3, "state_dict": state, "optimizer": {"state": {}, "param_groups": []}},
    "model": lambda net, state: {"model": before("module.", state)},
    "module": lambda net, state: before("module.", state),
    "compiled": lambda net, state: before("_orig_mod.module.", state),
    "lightning": lambda net, state: {"state_dict": before("generator.", state) | before("discriminator.", OTHER)},
    "several": lambda net, state: {"netD": OTHER, "netG": before("module.", state)},
    "half": lambda net, state: {name: one.half() if one.is_floating_point() else one for name, one in state.items()},
    "pickled": lambda net, state: net,
    "pickled_below": lambda net, state: {"model": net, "epoch": 3},
}


@pytest.mark.parametrize("around", AROUND)
def test_a_state_comes_in(around, recipe, tmp_path, capsys):
    net = network()
    state = {name: one.clone() for name, one in net.state_dict().items()}
    content = AROUND[around](net, state)
    assert imports(content, tmp_path, "--recipe", recipe, "--network", "generator", kind="state") == 0
    said = capsys.readouterr().out
    assert f"become mine_net.Net with {3 * 5 * 9 + 5 + 2 * 5 + 5 * 3} parameters" in said
    assert ("2 tensors without the prefix" in said) == (around in ("lightning", "several"))
    found = load_file(tmp_path / "out.safetensors")
    rounded = {name: one.half().float() if one.is_floating_point() else one for name, one in state.items()}
    wanted = rounded if around == "half" else state
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], one) for name, one in wanted.items())


def test_what_does_not_fit_is_listed(recipe, tmp_path, capsys):
    state = network().state_dict()
    del state["last.weight"]
    state |= {"extra.bias": torch.zeros(2), "body.0.bias": torch.zeros(4)}
    said = refused("state", state, tmp_path, capsys, "--recipe", str(recipe), "--network", "generator")
    assert said.splitlines() == [
        f"error: {tmp_path}/refused.pth, for networks.generator of {recipe}: 3 tensors do not fit mine_net.Net:",
        "  body.0.bias has shape (4,), body.0.bias of the network (5,)",
        "  missing last.weight, of shape (3, 5, 1, 1), for last.weight",
        "  left over extra.bias, of shape (2,)",
    ]


def test_which_network_is_not_guessed(recipe, tmp_path, capsys):
    state = network().state_dict()
    words = ("state", state, tmp_path, capsys)
    assert "the recipe has painter (" in (said := refused(*words, "--recipe", str(recipe)))
    assert said.endswith("; choose one by --network: painter, generator\n")
    assert "state: --recipe is needed, such as mine.yaml" in refused(*words)
    twice = {"G": state, "G_ema": state}
    said = refused("state", twice, tmp_path, capsys, "--recipe", str(recipe), "--network", "generator")
    assert "behind each of the prefixes 'G.', 'G_ema.'; write the tensors of one prefix to a file" in said
