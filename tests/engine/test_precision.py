"""Losses in float32, one gradient scaler a step, what a precision needs; against values worked out by hand.

float16 runs on the CPU with `torch.amp.GradScaler("cpu")` given to the steps: recipes refuse it without a GPU.
"""

import json
import math
import os
from collections import namedtuple
from typing import ClassVar

import numpy as np
import pytest
import test_steps
import torch
import toy
from accelerate import Accelerator
from safetensors.torch import load_file
from torch import nn
from torch.amp import GradScaler
from trainings import BASE, Killed, Stopping, outputs
from two_processes import run_in_two

from figura.base.errors import UserError
from figura.engine import build
from figura.engine.precision import in_float32
from figura.engine.step import Stopwatch, WeightedLoss
from figura.evaluation.trained import write_dump
from figura.interfaces import Callback, Injector, Loss, Networks, State, StepReport
from figura.schedules import Constant
from figura.training.trainer import Trainer, _note_nonfinite
from models.images.adversarial_losses import GradientPenalty

X, START = test_steps.X, np.array([0.5, -1.0])


def scaled_step(network, scaler, name="a", **keywords):
    one = test_steps.step({name: network}, {"l": test_steps.loss()}, injectors=[test_steps.Times(name)], **keywords)
    one.scaler = scaler
    return one


def update(step, network, name="a", x=X):
    return test_steps.update(step, {name: network}, (State({"x": x}), 1.0))


def overflowing(network):
    """Make the next gradient of a network infinite; return what undoes it."""
    return network.slope.register_hook(lambda gradient: gradient * math.inf).remove


# one scaler a step


@pytest.mark.parametrize("fused", [False, True])
def test_a_scale_changes_no_bit_of_an_update(fused):
    """Fused optimizers would unscale gradients by themselves, were they called by the scaler."""
    reports, networks = [], [test_steps.Line(), test_steps.Line()]
    for network, scaler in zip(networks, (None, GradScaler("cpu", init_scale=1024.0)), strict=True):
        one = scaled_step(network, scaler, clip=0.3)
        if fused:
            one.optimizer = torch.optim.Adam(network.parameters(), lr=0.1, fused=True)
        reports.append([update(one, network) for _ in range(5)])
        undo = overflowing(network)
        assert update(one, network).skipped
        undo()
    assert torch.equal(networks[0].slope, networks[1].slope)
    for expected, found in zip(*reports, strict=True):
        assert torch.equal(found.grad_norm, expected.grad_norm)  # of gradients without the scale
        assert torch.equal(found.raw["l"], expected.raw["l"])


def test_parts_of_a_batch_are_unscaled_once():
    network = test_steps.Line()
    one = scaled_step(network, GradScaler("cpu", init_scale=256.0))
    parts = [(State({"x": X[:1]}), 1 / 3), (State({"x": X[1:]}), 2 / 3)]
    test_steps.update(one, {"a": network}, *parts)
    np.testing.assert_allclose(network.slope.detach(), START - 0.1 * test_steps.gradient(START), atol=1e-6)


def test_overflow_in_one_step_leaves_the_other_alone():
    networks = {name: test_steps.Line() for name in "ab"}
    scalers = {name: GradScaler("cpu", init_scale=scale) for name, scale in (("a", 8.0), ("b", 4.0))}
    steps = {name: scaled_step(networks[name], scalers[name], name) for name in "ab"}
    undo = overflowing(networks["a"])
    reports = {name: update(step, networks[name], name) for name, step in steps.items()}
    undo()
    assert (reports["a"].skipped, reports["a"].overflowed) == (True, True)
    assert (reports["b"].skipped, reports["b"].overflowed) == (False, False)
    assert scalers["a"].get_scale() == 4.0
    assert scalers["b"].get_scale() == 4.0
    assert [scalers[name].state_dict()["_growth_tracker"] for name in "ab"] == [0, 1]
    assert networks["a"].slope.tolist() == START.tolist()
    assert networks["a"].slope.grad is None
    once = START - 0.1 * test_steps.gradient(START)
    np.testing.assert_allclose(networks["b"].slope.detach(), once, atol=1e-6)
    assert not update(steps["a"], networks["a"]).skipped  # at the smaller scale, the same update
    np.testing.assert_allclose(networks["a"].slope.detach(), once, atol=1e-6)
    assert [scalers[name].state_dict()["_growth_tracker"] for name in "ab"] == [1, 1]


@pytest.mark.parametrize(
    ("scale", "x", "infinite", "overflowed", "then"),
    [
        (4.0, 1.0, True, True, 2.0),
        (2.0, 1.0, True, True, 1.0),
        (1.0, 1.0, True, False, 0.5),
        (0.5, 1.0, True, False, 0.25),
        (4.0, math.inf, False, False, 2.0),
        (4.0, 1.0, False, False, 4.0),
    ],
    ids=["the scale can fall", "to 1", "no scale is left", "nor below", "the loss is infinite", "nothing is"],
)
def test_what_a_scale_is_to_blame_for(scale, x, infinite, overflowed, then):
    network, scaler = test_steps.Line(), GradScaler("cpu", init_scale=scale)
    if infinite:
        overflowing(network)
    report = update(scaled_step(network, scaler), network, x=torch.tensor([[x, 1.0]]))
    assert report.overflowed == overflowed
    assert report.skipped == (infinite or not math.isfinite(x))
    assert scaler.get_scale() == then


def test_what_a_hook_makes_of_unscaled_gradients_is_what_counts():
    seen = []

    def hooked(change):
        network, scaler = test_steps.Line(), GradScaler("cpu", init_scale=64.0)
        one = scaled_step(network, scaler)

        def hook():
            seen.append(network.slope.grad.clone())
            change(network.slope.grad)

        networks = Networks({"a": network}, {"a": network})
        accelerator, watch = Accelerator(), Stopwatch(on=False)
        return one.update([(State({"x": X}), 1.0)], networks, 0, accelerator, watch, hook), network, scaler

    report, network, _ = hooked(lambda gradient: gradient.mul_(2))
    np.testing.assert_allclose(seen[0], test_steps.gradient(START), rtol=1e-6)
    np.testing.assert_allclose(network.slope.detach(), START - 0.2 * test_steps.gradient(START), atol=1e-6)
    report, network, scaler = hooked(lambda gradient: gradient.fill_(math.inf))
    assert (report.skipped, report.overflowed) == (True, False)  # no scale was to blame, and none is changed
    assert network.slope.tolist() == START.tolist()
    assert scaler.get_scale() == 64.0


def test_without_a_gradient_there_is_nothing_to_scale():
    """A loss that reaches networks of another step only."""
    networks = {"a": test_steps.Line(), "b": test_steps.Line()}
    one = test_steps.step({"b": networks["b"]}, {"l": test_steps.loss()}, injectors=[test_steps.Times("a")])
    one.scaler = GradScaler("cpu", init_scale=2.0)
    for _ in range(2):
        test_steps.update(one, networks, (State({"x": X}), 1.0))
    assert networks["b"].slope.tolist() == START.tolist()
    assert one.scaler.get_scale() == 2.0


@pytest.mark.parametrize(("kinds", "noted"), [("o" * 20, []), ("soo", [1]), ("sog", []), ("s", [1]), ("sns", [1, 3])])
def test_neither_searching_for_a_scale_nor_an_iteration_without_losses_counts_or_ends_a_row(kinds, noted):
    good, skipped, overflowed = (StepReport({"a": X}, skipped=one in "so", overflowed=one == "o") for one in "gso")
    rows = {}
    for iteration, kind in enumerate(kinds, 1):
        report = {"g": good, "s": skipped, "o": overflowed, "n": StepReport()}[kind]
        _note_nonfinite(rows, iteration, {"painter": report})
    assert rows == ({"painter": noted} if noted else {})


class Overflow(Injector):
    """`output` is `image`, whose gradient is infinite in the iterations `at` (in all of them without)."""

    def __init__(self, output: str, at: list[int] | None = None) -> None:
        self.output, self.at, self.reads, self.adds = output, at, ("image",), (output,)

    def __call__(self, state, networks, step):
        image = state["image"] * 1.0
        if image.requires_grad and (self.at is None or step in self.at):
            image.register_hook(lambda gradient: gradient * math.inf)
        state.add(self.output, image)


OVERFLOW = {"type": "test_precision.Overflow", "output": "passed"}


@pytest.fixture
def with_scalers(monkeypatch):
    """Steps of every recipe get scalers, with the numbers of this function."""

    def use(**numbers):
        monkeypatch.setattr(build, "gradient_scaler", lambda accelerator: GradScaler("cpu", **numbers))

    return use


def overflowing_painter(at=None, **changes):
    content = toy.recipe()
    injectors = content["steps"]["painter"]["injectors"] | {"overflow": OVERFLOW | ({"at": at} if at else {})}
    inputs = {f"losses.{name}.inputs": {"image": "passed", "target": "y"} for name in ("distance", "square")}
    return toy.checked(BASE | {"steps.painter.injectors": injectors, **inputs} | changes)


def test_gradients_that_no_scale_helps_end_a_training(run, with_scalers):
    """From 65536 = 2^16, 16 updates search (the last at a scale of 2); those at 1, 1/2 and 1/4 count."""
    with_scalers()
    trainer = Trainer(overflowing_painter(**{"train.steps": 40}), run)
    before = {key: value.clone() for key, value in trainer.networks.live["painter"].state_dict().items()}
    first = r"19\. .* a gradient of step 'painter', in iteration 17: "
    with pytest.raises(UserError, match=rf"3 updates in a row were not finite .* the last in iteration {first}"):
        trainer.fit()
    assert trainer.steps["painter"].scaler.get_scale() == 2.0**-3
    for networks in (trainer.networks.live, trainer.networks.ema):
        for key, value in networks["painter"].state_dict().items():
            assert torch.equal(value, before[key])


def test_resume_goes_on_with_every_scale(run, tmp_path, with_scalers):
    with_scalers(init_scale=2.0**10, growth_interval=3)
    content = toy.gan()
    content["steps"]["painter"]["injectors"] |= {"overflow": {**OVERFLOW, "at": [1, 6]}}
    content["losses"]["distance"]["inputs"]["image"] = "passed"
    recipe = toy.checked(BASE, content)
    whole = Stopping(recipe, tmp_path / "whole")
    whole.fit()
    stopped = Stopping(recipe, run)
    stopped.stop = 7
    with pytest.raises(Killed):
        stopped.fit()
    trainer = Stopping(recipe, run)
    trainer.fit()
    assert trainer.done == list(range(4, 12))
    assert outputs(run) == outputs(tmp_path / "whole")
    states = {name: step.scaler.state_dict() for name, step in trainer.steps.items()}
    assert states == {name: step.scaler.state_dict() for name, step in whole.steps.items()}
    # 12 good updates double four times; 1 good, 1 bad, 4 good, 1 bad, 5 good: halved, doubled, halved, doubled
    assert {name: state["scale"] for name, state in states.items()} == {"critic": 2.0**14, "painter": 2.0**10}
    assert {name: state["_growth_tracker"] for name, state in states.items()} == {"critic": 0, "painter": 2}


# losses in float32


def dtypes(value):
    if isinstance(value, torch.Tensor):
        return value.dtype
    return {k: dtypes(v) for k, v in value.items()} if isinstance(value, dict) else type(value)(map(dtypes, value))


class Halves(Injector):
    """`halves`: what a network without the accelerator's wrapping may give, nested."""

    reads, adds = ("image", "index"), ("halves",)

    def __call__(self, state, networks, step):
        image = state["image"]
        nested = ([image.half(), image.double()], image > 0, state["index"], {"in": (image.bfloat16(),)})
        state.add("halves", {"image": image.bfloat16(), "nested": nested})


class Noting(Loss):
    """L1 of a nested input, with a network of its own; notes what it got and under what it computed."""

    seen: ClassVar[list] = []

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 1, 1).requires_grad_(False)

    def forward(self, *, halves, target):
        found = self.layer(halves["image"])
        Noting.seen.append((torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), dtypes(halves), found.dtype))
        return (found - target).abs().mean(dim=(1, 2, 3))


def noting(**changes):
    content = toy.recipe()
    paint = {"paint": content["evaluate"]["modes"]["plain"]["injectors"]["paint"]}
    halves = paint | {"halves": {"type": "test_precision.Halves"}}
    content["losses"] = {
        "noting": {"type": "test_precision.Noting", "inputs": {"halves": "halves", "target": "y"}, "weight": 1.0}
    }
    content["steps"]["painter"]["injectors"] = halves
    content["evaluate"]["modes"]["plain"] = {"injectors": halves, "save": {"image": "array"}}
    content["metrics"]["scores"]["distance"]["column"] = "loss.noting"
    return toy.checked(BASE | {"train.steps": 3, "train.precision": "bf16"} | changes, content)


def test_losses_compute_in_float32_wherever_they_run(run, tmp_path):
    Noting.seen.clear()
    trainer = Trainer(noting(), run)
    types = set()
    trainer.networks.live["painter"].layer.register_forward_hook(lambda _, __, out: types.add(out.dtype))
    trainer.fit()
    assert types == {torch.bfloat16}
    nested = ([torch.float32, torch.float64], torch.bool, torch.int64, {"in": (torch.float32,)})
    expected = {"image": torch.float32, "nested": nested}
    assert {grad for _, grad, _, _ in Noting.seen} == {True, False}  # training and validation
    trained = len(Noting.seen)
    write_dump(noting(), trainer.networks.ema, tmp_path / "dump")
    assert len(Noting.seen) > trained
    for autocast, _, found, inside in Noting.seen:
        assert (autocast, found, inside) == (False, expected, torch.float32)


def test_losses_written_by_hand_are_averaged_in_float32():
    network = test_steps.Line()
    one = test_steps.step({"a": network}, {"l": test_steps.loss()})
    values = (network.slope.sum() + torch.tensor([1.5, 1.5078125, 1.5078125])).bfloat16()  # 1, 1 + 2^-7, 1 + 2^-7
    report = one.optimize({"l": values}, 0, Accelerator())
    assert report.raw["l"].dtype == torch.float32
    assert report.raw["l"].item() == pytest.approx(1 + 2 / 3 / 128, abs=1e-7)  # no bfloat16
    third = 171 / 512  # 1/3 in 8 binary digits, which came back through the losses' own type three times
    np.testing.assert_allclose(network.slope.detach(), START - 0.1 * 3 * third, atol=1e-6)


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [
            nn.Conv2d(2, 16, 3, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 16, 3, 1, 1),
            nn.Tanh(),
            nn.Conv2d(16, 1, 3),
        ]
        self.layers = nn.Sequential(*layers)

    def forward(self, image):
        return self.layers(image)


class Judging(Injector):
    """`points` that take a gradient, in a type of their own, and `logits` of them."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __call__(self, state, networks, step):
        points = state["x"].to(self.dtype).requires_grad_()
        state.add("points", points)
        state.add("logits", networks.live["judge"](points))


def penalised(half, scaler, dtype=torch.float32, lr=1.0):
    """The change of all weights in one update of plain gradient descent by a penalty."""
    torch.manual_seed(0)
    judge, x = Judge(), torch.rand(4, 2, 32, 32) * 2 - 1
    before = torch.cat([p.detach().flatten().clone() for p in judge.parameters()])
    inputs = {"points": "points", "logits": "logits"}
    losses = {"slope": WeightedLoss(GradientPenalty(centre=1.0), inputs, 10.0, Constant())}
    one = test_steps.step({"judge": judge}, losses, injectors=[Judging(dtype)], lr=lr)
    one.scaler = scaler
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Accelerator, "autocast", lambda self: torch.autocast("cpu", half, enabled=half is not None))
        while (report := test_steps.update(one, {"judge": judge}, (State({"x": x}), 1.0))).overflowed:
            pass
    assert not report.skipped
    return torch.cat([p.detach().flatten() for p in judge.parameters()]) - before, report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_gradient_penalty_goes_through_the_scale(dtype):
    """float16 has 11 binary digits: a gradient of sums over few layers keeps two decimal ones."""
    expected, exact = penalised(None, None)
    found, report = penalised(torch.float16, GradScaler("cpu"), dtype)
    assert report.raw["slope"].dtype == torch.float32
    assert report.raw["slope"].item() == pytest.approx(exact.raw["slope"].item(), rel=2e-3)
    assert torch.linalg.vector_norm(found - expected) < 0.02 * torch.linalg.vector_norm(expected)


class Kinds(Callback):
    """The types of all that a training keeps, at its end."""

    def __init__(self):
        self.found = set()

    def after_update(self, trainer, step, report):
        tree = trainer.state.state_dict()
        for part in ("networks", "averages"):
            for state in tree[part].values():
                self.found |= {value.dtype for value in state.values()}
        for state in tree["optimizers"].values():
            self.found |= {v.dtype for one in state["state"].values() for v in one.values() if torch.is_tensor(v)}
        for one in trainer.steps[step].trains.values():
            self.found |= {module.running_mean.dtype for module in one.modules() if isinstance(module, nn.BatchNorm2d)}


def test_all_that_is_kept_and_written_is_float32(run, tmp_path):
    kinds = Kinds()
    recipe = toy.checked(BASE | {"train.precision": "bf16", "train.ema": {"decay": 0.9}}, toy.gan())
    trainer = Trainer(recipe, run, callbacks={"kinds": kinds})
    trainer.fit()
    assert kinds.found == {torch.float32, torch.int64}  # int64: how many batches a batch norm has seen
    for name in ("painter", "critic"):
        written = load_file(run / "model" / f"{name}.safetensors")
        assert {value.dtype for value in written.values() if value.is_floating_point()} == {torch.float32}
    write_dump(recipe, trainer.networks.ema, tmp_path / "dump")
    (archive,) = (tmp_path / "dump").glob("plain.*.zip")
    assert {value.dtype for value in np.load(archive).values()} == {np.dtype(np.float32)}


# what a machine can do


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU")
def test_fp16_without_a_gpu_is_refused_before_anything_is_built(run):
    with pytest.raises(UserError, match=r"^toy\.yaml: train\.precision: found 'fp16', which needs a GPU"):
        Trainer(toy.checked({"train.precision": "fp16"}), run)
    assert not run.exists()


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU, which computes a dump in fp16")
@pytest.mark.parametrize("asked", ["no", "fp16", "bf16"])
def test_what_was_trained_elsewhere_is_evaluated_here(asked, tmp_path):
    torch.manual_seed(0)
    write_dump(toy.checked({"train.precision": asked}), {"painter": toy.Painter(2, 0.1)}, tmp_path / "dump")
    assert len((tmp_path / "dump/examples.csv").read_text().splitlines()) == 1 + 6


def overflow_on_the_second(folder):
    """Train in a rank; note of each iteration whether the update was skipped, why, and the scale; then the weights."""
    rank = int(os.environ["RANK"])
    build.gradient_scaler = lambda accelerator: GradScaler("cpu", init_scale=64.0, growth_interval=4)
    recipe = overflowing_painter([2], **{"train.steps": 8, "train.ema": None, "runtime.resume_every": 8})
    trainer = Trainer(recipe, folder / "run")
    trainer.steps["painter"].injectors["overflow"].injector.at = [2] if rank == 1 else [99]
    update_averages, seen = trainer.update_averages, []

    def note(reports):
        report, scaler = reports["painter"], trainer.steps["painter"].scaler
        seen.append([report.skipped, report.overflowed, scaler.get_scale()])
        update_averages(reports)

    trainer.update_averages = note
    trainer.fit()
    weights = [p.tolist() for p in trainer.accelerator.unwrap_model(trainer.networks.live["painter"]).parameters()]
    (folder / f"{rank}.json").write_text(json.dumps([seen, weights]))


def test_all_ranks_agree_on_an_overflow(tmp_path):
    run_in_two(lambda: overflow_on_the_second(tmp_path))
    (seen, weights), (others, theirs) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    good, bad = [False, False], [True, True]
    scales = [64.0, 64.0, 32.0, 32.0, 32.0, 32.0, 64.0, 64.0]  # halved by the third update, doubled by four good ones
    assert seen == others == [[*(bad if place == 2 else good), scale] for place, scale in enumerate(scales)]
    assert weights == theirs


def test_a_named_tuple_keeps_its_type():
    pair = namedtuple("Pair", "mean place")
    found = in_float32(pair(torch.zeros(1).half(), 3))
    assert (type(found), found.mean.dtype, found.place) == (pair, torch.float32, 3)
