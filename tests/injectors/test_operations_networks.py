"""Calls of networks with taps and modes, and injectors applied to each of several names or slices."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.injectors.color import Grey
from figura.injectors.forward import ForEach, Forward
from figura.injectors.tensors import Multiply, Noise, Select, Sum
from figura.interfaces import Networks, State
from figura.recipe.types import INJECTOR, construct
from models.images.pixel_losses import L1


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


def run(injector, network=None, **batch):
    state = State(batch)
    live = {"n": network} if network is not None else {}
    injector(state, Networks(live, live), 0)
    return state


# taps


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
    assert run(Forward("n", {"x": "x"}, taps={"first": "low"}), network, x=x)["low"].requires_grad
    assert not run(Forward("n", {"x": "x"}, taps={"first": "low"}, grad=False), network, x=x)["low"].requires_grad


def test_taps_of_one_name_are_a_dictionary_that_a_loss_compares():
    torch.manual_seed(0)
    network, x, y = Features(), torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8)
    look = Forward("n", {"x": "item"}, taps={"first": "result", "blocks.1": "result"})
    assert look.adds == ("result",)
    state = run(ForEach({"look": look}, {"x": "x_features", "y": "y_features"}), network, x=x, y=y)
    assert list(state["x_features"]) == ["first", "blocks.1"]
    found = L1(leaf_weights={"first": 1.0, "blocks.1": 0.5})(image=state["x_features"], target=state["y_features"])
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
        network, x = DistributedDataParallel(Features().requires_grad_(True)), torch.randn(2, 1, 8, 8)
        state = run(Forward("n", {"x": "x"}, taps={"first": "low"}), network, x=x)
        np.testing.assert_array_equal(state["low"].detach(), network.module.first(x).detach())
    finally:
        torch.distributed.destroy_process_group()


def test_outputs_of_a_tuple_go_by_place():
    state = run(Forward("n", {"x": "x"}, {"1": "twice"}), Pair(), x=torch.ones(2))
    assert list(state) == ["x", "twice"]
    assert state["twice"].tolist() == [2.0, 2.0]


# modes


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


# each of several


def test_one_declaration_for_several_names():
    x, y = torch.rand(2, 1, 8, 8), torch.rand(2, 1, 8, 8)
    network = Features()
    each = ForEach(
        {
            "double": Sum("doubled", {"item": 2.0}),
            "look": Forward("n", {"x": "doubled"}, {"output": "result"}, taps={"first": "low"}),
        },
        {"x": {"low": "x_low", "result": "x_high"}, "y": "y_high"},
    )
    assert each.reads == ("x", "y")
    assert each.adds == ("x_low", "x_high", "y_high")
    state = run(each, network, x=x, y=y)
    assert list(state) == ["x", "y", "x_low", "x_high", "y_high"]
    np.testing.assert_array_equal(state["x_low"].detach(), network.first(2 * x).detach())
    np.testing.assert_array_equal(state["y_high"].detach(), network(2 * y).detach())


def test_names_from_outside_are_read_inside():
    each = ForEach({"mask": Multiply("result", ["item", "m"])}, {"a": "a_cut", "b": "b_cut"})
    assert each.reads == ("a", "b", "m")
    a, b, m = (torch.rand(2, 3) for _ in range(3))
    state = run(each, a=a, b=b, m=m)
    np.testing.assert_array_equal(state["b_cut"], b * m)


@pytest.mark.parametrize("dim", [1, 2])
def test_slices_are_taken_apart_and_stacked_again(dim):
    frames = torch.rand(2, 3, 3, 4, 5)
    state = run(
        ForEach({"grey": Grey({"item": "result"}, weights=(0.2, 0.3, 0.5))}, {"frames": "grey"}, dim), frames=frames
    )
    channels = 2 if dim == 1 else 1  # where the colours are once the other is taken apart
    expected = np.tensordot(frames.numpy(), [0.2, 0.3, 0.5], (channels, 0))  # (N, 3, H, W)
    expected = np.expand_dims(expected, channels).repeat(3, axis=channels)
    np.testing.assert_allclose(state["grey"], expected, atol=1e-6)


def test_slices_draw_anew():
    state = run(ForEach({"draw": Noise("result", "item")}, {"x": "noise"}, dim=1), x=torch.zeros(2, 4, 5))
    assert state["noise"].shape == (2, 4, 5)
    assert state["noise"].unique().numel() == 40


def test_there_is_nothing_along_the_dimension():
    with pytest.raises(UserError, match="'x' has no dimension 1"):
        run(ForEach({"draw": Noise("result", "item")}, {"x": "noise"}, dim=1), x=torch.zeros(2))


@pytest.mark.parametrize(
    ("injectors", "names", "message"),
    [
        ({}, {"x": "y"}, "injectors, names: at least one"),
        ({"a": Select({"item": "part"}, 1, 0)}, {"x": "y"}, "no injector adds 'result'; they add ['part']"),
        ({"a": Select({"x": "result"}, 1, 0)}, {"x": "y"}, "none of them reads 'item'"),
        ({"a": Select({"item": "item"}, 1, 0)}, {"x": "y"}, "injectors.a adds 'item', which is there already"),
        ({"a": Select({"item": "result"}, 1, 0)}, {"x": "y", "z": "y"}, "adds 'y' twice"),
    ],
)
def test_what_does_not_go_together(injectors, names, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ForEach(injectors, names)


# in a recipe


def faults(**arguments):
    errors = ErrorCollector(Path("recipe"))
    construct("ForEach", arguments, INJECTOR, "steps.G.injectors.each", errors)
    return [line.removeprefix("recipe: steps.G.injectors.each") for line in errors.lines]


def test_faults_of_inner_declarations_stand_under_their_own_keys():
    inner = {
        "cut": {"type": "Crop", "names": {"item": "small"}, "size": 4, "margin": 2},
        "grey": {"type": "Gray", "names": {"small": "result"}},
        "roll": {"type": "Roll", "names": {"small": "other"}, "every": 2},
    }
    found = faults(injectors=inner, names={"x": "y"})
    assert len(found) == 3
    assert found[0] == ".injectors.cut: Crop: write one of size, margin, like"
    assert found[1].startswith(".injectors.grey.type: unknown injector 'Gray' (did you mean 'Grey'?)")
    assert found[2].startswith(".injectors.roll.every: unknown argument of Roll 'every'")


@pytest.mark.parametrize(
    ("injectors", "message"),
    [
        ({"a": 3}, ".injectors.a: found 3; expected a declaration"),
        ({"a": 3, "b": {"type": "Grey", "names": {"item": "result"}}}, ".injectors.a: found 3; expected a declaration"),
        ({"type": "Grey", "names": {"item": "result"}}, ".injectors: found one Grey; expected a map"),
        ("Grey", ".injectors: found 'Grey'; expected a map"),
    ],
)
def test_a_map_of_declarations_is_needed(injectors, message):
    found = faults(injectors=injectors, names={"x": "y"})
    assert len(found) == 1
    assert found[0].startswith(message)


EACH = "steps.painter.injectors.each"


def each(**call):
    paint = {"type": "Forward", "network": "painter", "inputs": {"x": "item"}, "outputs": {"image": "result"}}
    return {"type": "ForEach", "names": {"x": "x_again", "y": "y_again"}, "injectors": {"paint": {**paint, **call}}}


def test_a_recipe_with_injectors_in_an_injector():
    changes = {EACH: each(), "losses.distance.inputs.image": "x_again", "losses.distance.inputs.target": "y_again"}
    assert toy.checked(changes).losses["distance"].inputs == {"image": "x_again", "target": "y_again"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            {"network": "paintre"},
            f"{EACH}.injectors.paint.network: unknown network 'paintre' (did you mean 'painter'?)",
        ),
        ({"outputs": {"imge": "result"}}, f"{EACH}.injectors.paint.outputs: unknown output of Painter 'imge'"),
        ({"inputs": {"y": "item"}}, f"{EACH}.injectors.paint.y: unknown input of Painter 'y'"),
        ({"inputs": {"x": "item", "noise": "nose"}}, f"{EACH}: unknown name: nobody provides 'nose'"),
    ],
)
def test_calls_inside_are_held_against_the_networks(call, message):
    with pytest.raises(UserError, match=re.escape(message)):
        toy.checked({EACH: each(**call)})
