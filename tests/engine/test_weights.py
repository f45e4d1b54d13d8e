"""Weights on disk: they come back whole, and what does not fit is said."""

import os

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from figura.base.errors import UserError
from figura.engine.weights import load_weights, save_weights, to_device


def network(width=3):
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width))


def test_weights_and_buffers_come_back(tmp_path):
    source, target = network(), network()
    source(torch.randn(8, 2))  # moves the running statistics
    save_weights(source, tmp_path / "model" / "n.safetensors")
    load_weights(target, tmp_path / "model" / "n.safetensors")
    assert source.state_dict().keys() == target.state_dict().keys()
    for name, value in source.state_dict().items():
        assert torch.equal(value, target.state_dict()[name]), name
    assert os.listdir(tmp_path / "model") == ["n.safetensors"]


def test_weights_that_do_not_fit_are_all_listed(tmp_path):
    path = tmp_path / "n.safetensors"
    save_file({"0.weight": torch.zeros(4, 2), "0.bias": torch.zeros(3), "extra": torch.zeros(1)}, path)
    target = nn.Sequential(nn.Linear(2, 3))
    before = target[0].weight.detach().clone()
    target.register_parameter("gain", nn.Parameter(torch.zeros(1)))
    with pytest.raises(UserError) as caught:
        load_weights(target, path)
    assert str(caught.value) == (
        f"{path} does not fit Sequential: 0.weight has shape [4, 2], the network [3, 2]; missing gain; unexpected extra"
    )
    assert torch.equal(target[0].weight, before)


def test_weights_that_are_not_there_or_no_weights(tmp_path):
    with pytest.raises(UserError, match=r"n\.safetensors: no such file"):
        load_weights(network(), tmp_path / "n.safetensors")
    (tmp_path / "n.safetensors").write_bytes(b"\x80\x04never unpickled")
    with pytest.raises(UserError, match="not a readable safetensors file"):
        load_weights(network(), tmp_path / "n.safetensors")


def test_to_device_moves_tensors_alone():
    batch = {"x": torch.zeros(2), "word": ["a", "b"], "more": {"y": [torch.ones(1)]}, "n": 3}
    moved = to_device(batch, torch.device("meta"))
    assert moved["x"].device.type == moved["more"]["y"][0].device.type == "meta"
    assert moved["word"] == ["a", "b"]
    assert moved["n"] == 3
