"""One step by itself, against PyTorch and NumPy."""

import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import nn

from figura.engine.build import parameter_groups
from figura.engine.step import GatedInjector, Step, Stopwatch, WeightedLoss
from figura.interfaces import Injector, Loss, Networks, State, batch_size, split_batch
from figura.recipe.gates import Gate
from figura.recipe.schema import Group
from figura.schedules import Constant, Linear


class Line(nn.Module):
    def __init__(self, slope=0.5):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([slope, -1.0]))


class Times(Injector):
    """`out` = `x` times the slope of a network."""

    def __init__(self, network="a", reads="x", out="out"):
        self.network, self.source, self.out = network, reads, out

    def __call__(self, state, networks, step):
        state.add(self.out, state[self.source] * networks.live[self.network].slope)


class Power(Loss):
    def __init__(self, exponent=2.0):
        super().__init__()
        self.exponent, self.calls = exponent, 0

    def forward(self, *, value):
        self.calls += 1
        return (value.abs() ** self.exponent).sum(dim=1)


def loss(weight=1.0, name="out", exponent=2.0, schedule=None):
    return WeightedLoss(Power(exponent), {"value": name}, weight, schedule or Constant())


def step(trains, losses, *, injectors=None, clip=None, lr=0.1, lr_schedule=None, detach=()):
    parameters = [p for network in trains.values() for p in network.parameters()]
    return Step(
        trains=trains, injectors={str(n): GatedInjector(i) for n, i in enumerate(injectors or [Times()])},
        losses=losses, clip=clip,
        detach=detach, gate=Gate(), optimizer=torch.optim.SGD(parameters, lr=lr), lr_schedule=lr_schedule or Constant(),
    )  # fmt: skip


def update(step, networks, *parts, iteration=0):
    return step.update(list(parts), Networks(networks, networks), iteration, Accelerator(), Stopwatch(on=False))


X = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]])


def gradient(slope, x=X):
    """Of the mean over instances of sum_j (x_j slope_j)^2, in float64."""
    x = x.double().numpy()
    return (2 * x**2 * np.asarray(slope)).mean(axis=0)


@pytest.mark.parametrize(("clip", "value"), [(None, None), (0.3, None), (1e6, None), (1.5, 1.0), (0.5, 1.0)])
def test_update_is_weighted_gradient_clipped_by_value_then_by_norm_times_rate(clip, value):
    network = Line()
    one = step({"a": network}, {"l": loss(weight=3.0)}, clip=clip)
    one.clip_value = value
    report = update(one, {"a": network}, (State({"x": X}), 1.0))
    whole = 3 * gradient([0.5, -1.0])
    assert np.linalg.norm(np.clip(whole, -1, 1)) < 1.5 < np.linalg.norm(whole)
    expected = whole if value is None else np.clip(whole, -value, value)
    factor = 1.0 if clip is None else min(1.0, clip / (np.linalg.norm(expected) + 1e-6))
    np.testing.assert_allclose(network.slope.detach(), np.array([0.5, -1.0]) - 0.1 * factor * expected, atol=1e-6)
    assert report.grad_norm.item() == pytest.approx(np.linalg.norm(whole), rel=1e-6)  # before any clipping
    assert report.raw["l"].item() == pytest.approx(((X.numpy() * [0.5, -1.0]) ** 2).sum(axis=1).mean(), rel=1e-6)
    assert report.weights == {"l": 3.0}
    assert not report.skipped


def test_the_norm_that_is_clipped_is_over_all_networks_of_the_step():
    networks = {"a": Line(), "b": Line(2.0)}
    both = step(
        networks, {"l": loss(), "m": loss(name="other")}, injectors=[Times(), Times("b", out="other")], clip=0.5, lr=1.0
    )
    before = {name: network.slope.detach().double().numpy() for name, network in networks.items()}
    update(both, networks, (State({"x": X}), 1.0))
    moved = np.concatenate([networks[name].slope.detach().numpy() - before[name] for name in "ab"])
    assert np.linalg.norm(moved) == pytest.approx(0.5, rel=1e-5)
    wanted = -np.concatenate([gradient(before[name]) for name in "ab"])
    np.testing.assert_allclose(moved / np.linalg.norm(moved), wanted / np.linalg.norm(wanted), atol=1e-6)


def test_schedules_of_weight_and_rate():
    network = Line()
    one = step(
        {"a": network}, {"l": loss(weight=4.0, schedule=Linear(0, 10, 0.0, 1.0))}, lr_schedule=Linear(0, 10, 1.0, 0.0)
    )
    report = update(one, {"a": network}, (State({"x": X}), 1.0), iteration=5)
    assert report.weights == {"l": 2.0}
    assert report.learning_rate == pytest.approx(0.05)
    np.testing.assert_allclose(
        network.slope.detach(), np.array([0.5, -1.0]) - 0.05 * 2 * gradient([0.5, -1.0]), atol=1e-6
    )
    update(one, {"a": network}, (State({"x": X}), 1.0), iteration=8)
    assert one.optimizer.param_groups[0]["lr"] == pytest.approx(0.02)  # of the first rate, not of the last


def test_a_loss_of_weight_0_is_not_computed_and_a_scheduled_0_is():
    network = Line()
    never, later = loss(weight=0.0), loss(schedule=Linear(5, 9, 0.0, 1.0))
    report = update(
        step({"a": network}, {"l": loss(), "never": never, "later": later}), {"a": network}, (State({"x": X}), 1.0)
    )
    assert never.loss.calls == 0
    assert later.loss.calls == 1
    assert report.weights == {"l": 1.0, "later": 0.0}
    np.testing.assert_allclose(network.slope.detach(), np.array([0.5, -1.0]) - 0.1 * gradient([0.5, -1.0]), atol=1e-6)


def test_only_what_the_step_trains_gathers_gradients():
    networks = {"a": Line(), "b": Line(2.0)}
    chain = [Times(), Times("b", reads="out", out="judged")]
    first = step({"a": networks["a"]}, {"l": loss(name="judged")}, injectors=chain)
    update(first, networks, (State({"x": X}), 1.0))
    assert networks["b"].slope.tolist() == [2.0, -1.0]
    assert networks["b"].slope.grad is None
    assert networks["a"].slope.tolist() != [0.5, -1.0]
    assert networks["a"].slope.grad is None  # released


def test_a_later_step_sees_names_and_their_graph_unless_detached():
    networks = {"a": Line(), "b": Line(2.0)}
    state = State({"x": X})
    paint = step({"a": networks["a"]}, {"l": loss()})
    judge = step(
        {"b": networks["b"]}, {"m": loss(name="judged")}, injectors=[Times("b", "out", "judged")], detach=["out"]
    )
    both = Networks(networks, networks)
    paint.observe(state, both, 0)
    judge.observe(state, both, 0)
    assert list(state) == ["x", "out", "judged"]
    assert state["out"].requires_grad
    state["judged"].sum().backward()
    assert networks["a"].slope.grad is None
    assert networks["b"].slope.grad is not None


@pytest.mark.parametrize(
    ("exponent", "x"),
    [(2.0, [[math.nan, 1.0]]), (2.0, [[math.inf, 1.0]]), (0.5, [[0.0, 1.0]])],
    ids=["loss is nan", "loss is inf", "loss is finite and its gradient is not"],
)
def test_what_is_not_finite_changes_nothing(exponent, x):
    network = Line()
    one = step({"a": network}, {"l": loss(exponent=exponent)}, clip=1.0)
    one.optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    good = (State({"x": X}), 0.5)
    report = update(one, {"a": network}, good, (State({"x": torch.tensor(x)}), 0.5))
    assert report.skipped
    assert network.slope.tolist() == [0.5, -1.0]
    assert not one.optimizer.state  # moments untouched
    assert network.slope.grad is None
    assert not update(one, {"a": network}, (State({"x": X}), 1.0)).skipped
    assert next(iter(one.optimizer.state.values()))["step"] == 1


def test_a_loss_gives_one_value_an_instance():
    class Total(Loss):
        def forward(self, *, value):
            return value.mean()

    wrong = WeightedLoss(Total(), {"value": "out"}, 1.0, Constant())
    network = Line()
    with pytest.raises(ValueError, match=r"Total gave shape \(\), a loss gives \(batch,\)"):
        update(step({"a": network}, {"l": wrong}), {"a": network}, (State({"x": X}), 1.0))


def test_groups_of_parameters_have_their_own_options():
    networks = {"net": nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 1, 1))}
    groups = {"norms": Group(pattern=r"net\.1\.", weight_decay=0.0), "biases": Group(pattern=r"bias$", lr=0.5)}
    found = parameter_groups(networks, groups)
    names = {id(parameter): name for name, parameter in networks["net"].named_parameters()}
    assert [[names[id(p)] for p in group["params"]] for group in found] == [
        ["0.weight", "2.weight"], ["1.weight", "1.bias"], ["0.bias", "2.bias"],
    ]  # fmt: skip
    assert found[1]["weight_decay"] == 0.0
    optimizer = torch.optim.SGD(found, lr=0.1, weight_decay=1e-4)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1, 0.5]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [1e-4, 0.0, 1e-4]
    assert parameter_groups(networks, {}) == list(networks["net"].parameters())


def test_a_name_is_written_once_and_what_is_detached_is_a_view_of_its_own():
    source = torch.ones(3, requires_grad=True)
    state = State({"a": source * 2, "b": {"c": [source * 3]}})
    state.add("kept", source * 4)
    with pytest.raises(KeyError, match="'kept' is there already"):
        state.add("kept", source)
    view = state.detached(["a", "b"])
    assert not view["a"].requires_grad
    assert not view["b"]["c"][0].requires_grad
    assert view["kept"] is state["kept"]
    assert state["a"].requires_grad
    view.add("new", source)
    assert list(state) == ["a", "b", "kept"]


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 12])
def test_pieces_of_a_batch_are_the_batch(parts):
    batch = {"word": list("abcdefg"), "x": torch.arange(14).reshape(7, 2)}
    assert batch_size(batch) == 7
    pieces = split_batch(batch, parts)
    assert len(pieces) == min(parts, 7)
    assert torch.equal(torch.cat([piece["x"] for piece, _ in pieces]), batch["x"])
    assert [word for piece, _ in pieces for word in piece["word"]] == batch["word"]
    assert [share for _, share in pieces] == [len(piece["x"]) / 7 for piece, _ in pieces]
    assert sum(share for _, share in pieces) == pytest.approx(1)
