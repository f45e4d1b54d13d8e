"""The network of the flow: what it guesses untrained, its unit variance, its attention against NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from figura.base.errors import UserError
from models.flow.unet import Attention, FlowUNet, folded, time_embedding

SMALL = {"channels": [8, 32, 32], "attention": 1, "scale": 0.3}


def disturbed(network, std=0.3):
    """All weights drawn: no branch begins as nothing."""
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=std)
    return network


def batch(n=2, size=16, seed=0):
    torch.manual_seed(seed)
    return {name: torch.randn(n, 3, size, size) for name in ("point", "pose", "appearance")}


def test_untrained_it_gives_the_best_linear_guess():
    """At t = 1/4, s^2 = 1/16 + 9/16 = 5/8: the velocity is -0.5 / (5/8) = -0.8 of the point, the picture 0.4 of it."""
    network, given = FlowUNet(**SMALL), batch(3)
    found = network(time=torch.tensor([0.25, 0.0, 1.0]), **given)
    for index, (velocity, image) in enumerate(((-0.8, 0.4), (-1.0, 0.0), (1.0, 1.0))):
        torch.testing.assert_close(found["velocity"][index], velocity * given["point"][index])
        torch.testing.assert_close(found["image"][index], image * given["point"][index], atol=1e-6, rtol=1e-5)


def test_attention_against_numpy():
    torch.manual_seed(2)
    layer = disturbed(Attention(64), std=0.2).double()
    x, other = torch.randn(1, 64, 2, 3, dtype=torch.float64), torch.randn(1, 64, 2, 2, dtype=torch.float64)
    layer.norm, layer.other_norm = nn.Identity(), nn.Identity()
    found = layer(x, other)[0].detach().flatten(1).numpy().T

    def linear(module, rows):
        return rows @ module.weight.detach().numpy().T + module.bias.detach().numpy()

    own, looked = (one[0].flatten(1).numpy().T for one in (x, other))
    queries = linear(layer.query, own)
    keys, values = np.split(np.concatenate([linear(layer.own, own), linear(layer.other, looked)]), 2, axis=1)
    heads = []
    for head in (slice(0, 32), slice(32, 64)):
        weights = np.exp(queries[:, head] @ keys[:, head].T / 32**0.5)
        heads.append(weights / weights.sum(axis=1, keepdims=True) @ values[:, head])
    np.testing.assert_allclose(found, own + linear(layer.out, np.concatenate(heads, axis=1)), rtol=1e-9)


def test_folds_and_places_by_hand():
    picture = torch.arange(16.0).reshape(1, 1, 4, 4)
    found = folded([picture])[0]
    assert found[:, 0, 1].tolist() == [2, 3, 6, 7, 1, -1]  # top right: its four pixels, x, y
    assert found[:, 1, 0].tolist() == [8, 9, 12, 13, -1, 1]


def test_time_embedding_by_hand():
    found = time_embedding(torch.tensor([0.5], dtype=torch.float64))[0]
    assert len(found) == 64
    assert found[[0, 31, 32, 63]].tolist() == pytest.approx([np.sin(0.5), np.sin(500), np.cos(0.5), np.cos(500)])


def test_every_condition_counts_and_every_weight_learns():
    network, given = disturbed(FlowUNet(**SMALL)), batch()
    time = torch.tensor([0.3, 0.7])
    plain = network(time=time, **given)["velocity"]
    for name in given:
        other = network(time=time, **given | {name: given[name].flip(3)})["velocity"]
        assert float((other - plain).detach().abs().max()) > 1e-3, name
    assert float((network(time=time.flip(0), **given)["velocity"] - plain).detach().abs().max()) > 1e-3
    plain.square().sum().backward()
    assert [n for n, p in network.named_parameters() if p.grad is None or not p.grad.abs().max() > 0] == []


def test_examples_do_not_see_each_other():
    network, given = disturbed(FlowUNet(**SMALL)), batch(3)
    time = torch.tensor([0.1, 0.5, 0.9])
    whole = network(time=time, **given)["velocity"]
    alone = network(time=time[1:2], **{name: value[1:2] for name, value in given.items()})["velocity"]
    torch.testing.assert_close(whole[1:2], alone, atol=1e-5, rtol=1e-4)


def test_pictures_that_cannot_be_halved_are_refused():
    network = FlowUNet(**SMALL)
    with pytest.raises(UserError, match=r"found 12 x 12 pixels; with 3 levels .* multiples of 8"):
        network(time=torch.zeros(2), **batch(size=12))
