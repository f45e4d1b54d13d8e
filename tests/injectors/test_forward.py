"""`Forward`: calls of networks by names, with taps, modes, schedules and either weights."""

import re

import numpy as np
import pytest
import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from figura.base.errors import UserError
from figura.injectors.forward import Forward
from figura.interfaces import Networks, State
from figura.schedules import Linear
from models.images.pixel_losses import L1


class Affine(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x, shift=0.0):
        return {"sum": self.factor * x + shift, "mean": (self.factor * x).mean()}


class Features(nn.Module):
    """Two convolutions; what the first gives is overwritten by what follows it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3, padding=1)
        self.blocks = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(2, 3, 3, stride=2))
        self.unused = nn.Linear(1, 1)

    def forward(self, x):
        return self.blocks(self.first(x))


class Pair(nn.Module):
    def forward(self, x):
        return x, 2 * x


class Normed(nn.Module):
    """Batch normalisation and dropout: what they do depends on the mode."""

    def __init__(self):
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm1d(1), nn.Dropout(0.5)

    def forward(self, x):
        return {"normed": self.norm(x), "dropped": self.dropout(x)}


def run(injector, network=None, step=0, **batch):
    state = State(batch)
    live = {"n": network or Affine(2.0)}
    injector(state, Networks(live, live), step)
    return state


def test_outputs_of_one_tensor_and_of_a_tuple():
    assert run(Forward("n", {"input": "x"}, {"output": "y"}), nn.Identity(), x=torch.ones(2))["y"].tolist() == [1, 1]
    assert run(Forward("n", {"x": "x"}, {"1": "twice"}), Pair(), x=torch.ones(2))["twice"].tolist() == [2.0, 2.0]


def test_what_cannot_be_called():
    with pytest.raises(KeyError, match=r"network 'n' gives \['mean', 'sum'\], not 'total'"):
        run(Forward("n", {"x": "x"}, {"total": "y"}), x=torch.zeros(2))
    with pytest.raises(ValueError, match="outputs: missing; a call without taps needs them"):
        Forward("n", {"x": "x"})


@pytest.mark.parametrize(("step", "shift"), [(0, 0.0), (5, 0.5), (99, 1.0)])
def test_an_argument_may_follow_a_schedule(step, shift):
    forward = Forward("n", {"x": "x"}, {"sum": "y"}, args={"shift": Linear(0, 10, 0.0, 1.0)})
    assert run(forward, step=step, x=torch.zeros(1))["y"].item() == pytest.approx(shift)


def test_live_or_averaged_weights():
    networks = Networks({"n": Affine(2.0)}, {"n": Affine(5.0)})
    for weights, value in (("live", 2.0), ("ema", 5.0)):
        state = State({"x": torch.ones(1)})
        Forward("n", {"x": "x"}, {"sum": "y"}, weights=weights)(state, networks, 0)
        assert state["y"].item() == value


def test_taps_are_what_submodules_gave():
    torch.manual_seed(0)
    network, x = Features(), torch.randn(2, 1, 8, 8)
    forward = Forward("n", {"x": "x"}, {"output": "y"}, taps={"first": "low", "blocks.1": "high"})
    assert forward.adds == ("y", "low", "high")
    state = run(forward, network, x=x)
    np.testing.assert_array_equal(state["low"].detach(), network.first(x).detach())  # from before the ReLU
    assert state["low"].min() < 0
    np.testing.assert_array_equal(state["high"].detach(), state["y"].detach())
    assert not network.first._forward_hooks
    assert not run(Forward("n", {"x": "x"}, taps={"first": "low"}, grad=False), network, x=x)["low"].requires_grad


def test_taps_of_one_name_are_a_dictionary_that_a_loss_compares():
    torch.manual_seed(0)
    network, x, y = Features(), torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8)
    features = [
        run(Forward("n", {"x": "x"}, taps={"first": "features", "blocks.1": "features"}), network, x=one)["features"]
        for one in (x, y)
    ]
    assert list(features[0]) == ["first", "blocks.1"]
    found = L1(leaf_weights={"first": 1.0, "blocks.1": 0.5})(image=features[0], target=features[1])
    low, high = ((f(x) - f(y)).abs().mean(dim=(1, 2, 3)) for f in (network.first, network))
    np.testing.assert_allclose(found.detach(), (low + 0.5 * high).detach(), rtol=1e-5)


def test_a_feature_loss_has_the_gradient_of_its_formula():
    torch.manual_seed(0)
    network, x = Features(), torch.randn(2, 1, 8, 8, requires_grad=True)
    target = torch.randn(2, 2, 8, 8)
    state = run(Forward("n", {"x": "x"}, taps={"first": "low"}), network, x=x)
    (state["low"] - target).square().sum().backward()
    residual = network.first(x.detach()).detach() - target
    expected = 2 * nn.functional.conv_transpose2d(residual, network.first.weight.detach(), padding=1)
    np.testing.assert_allclose(x.grad, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("tap", "message"),
    [
        ("frist", "Features has no submodule 'frist' to tap (did you mean 'first'?)"),
        ("unused", "tap 'unused' of network 'n' is called 0 times, not once"),
    ],
)
def test_taps_that_give_nothing(tap, message):
    with pytest.raises(UserError, match=re.escape(message)):
        run(Forward("n", {"x": "x"}, taps={tap: "low"}), Features(), x=torch.zeros(1, 1, 8, 8))


def test_taps_reach_into_a_network_of_several_processes(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        network, x = DistributedDataParallel(Features()), torch.randn(2, 1, 8, 8)
        state = run(Forward("n", {"x": "x"}, taps={"first": "low"}), network, x=x)
        np.testing.assert_array_equal(state["low"].detach(), network.module.first(x).detach())
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mode", ["inherit", "train", "eval"])
def test_the_mode_is_chosen_apart_from_gradients(mode, training):
    network = Normed().train(training)
    network.dropout.eval()
    x = torch.tensor([[1.0], [3.0]])
    forward = Forward("n", {"x": "x"}, {"normed": "normed", "dropped": "dropped"}, mode=mode, grad=False)
    state = run(forward, network, x=x)
    trained = mode == "train" or (mode == "inherit" and training)
    by_batch, by_average = (x - 2) / np.sqrt(1 + 1e-5), x / np.sqrt(1 + 1e-5)  # running mean 0, variance 1
    np.testing.assert_allclose(state["normed"], by_batch if trained else by_average, rtol=1e-6)
    assert set(state["dropped"].flatten().tolist()) <= ({0.0, 2.0, 6.0} if mode == "train" else {1.0, 3.0})
    assert [m.training for m in network.modules()] == [training, training, False]
    assert network.norm.running_mean.item() == pytest.approx(0.2 if trained else 0.0)  # momentum 0.1


def test_an_evaluation_in_training_mode_moves_no_statistics():
    network = Normed().eval()
    with torch.no_grad():
        state = run(Forward("n", {"x": "x"}, {"normed": "y"}, mode="train"), network, x=torch.tensor([[1.0], [3.0]]))
    np.testing.assert_allclose(state["y"], [[-1.0], [1.0]], atol=1e-4)
    assert (network.norm.running_mean.item(), network.norm.num_batches_tracked.item()) == (0.0, 0)
