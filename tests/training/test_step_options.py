"""Parts of a batch by step, smaller parts when memory runs out, gradient norms of several networks."""

import json
import math

import pytest
import torch
import toy
from trainings import QUIET, Killed, assert_same, history, trained, weights

from figura.base.errors import UserError
from figura.interfaces import Injector
from figura.training.trainer import Trainer

SGD = {"type": "torch.optim.SGD", "lr": 0.1}


class Hungry(Injector):
    """A copy of `x`, which in training needs memory for `limit` examples, `later` from iteration `start` on."""

    def __init__(self, limit: int, later: int | None = None, start: int = 0) -> None:
        self.limit, self.later, self.start = limit, limit if later is None else later, start
        self.reads, self.adds = ("x",), ("fed",)

    def __call__(self, state, networks, step):
        limit = self.later if step >= self.start else self.limit
        if torch.is_grad_enabled() and len(state["x"]) > limit:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        state.add("fed", state["x"] * 1.0)


class Parts(Trainer):
    """Notes how many parts each step gets; stops before iteration `stop`."""

    stop: int | None = None

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.parts = []
        for name, step in self.steps.items():
            step.update = self.noting(name, step.update)

    def _sanity_check(self):
        """Two examples before anything else: here they would be the first to run out of memory."""

    def noting(self, name, update):
        def wrapper(states, *arguments):
            if self.iteration == self.stop:
                raise Killed
            self.parts.append((self.iteration, name, len(states)))
            return update(states, *arguments)

        return wrapper


def two():
    """Two painters, each with a step of its own; without noise and dropout."""
    content = toy.changed({"networks": {name: {"type": "toy.Painter", "width": 2} for name in ("one", "other")}})
    del content["losses"]["square"]
    content["losses"] = {
        name: {**content["losses"]["distance"], "inputs": {"image": name, "target": "y"}, "step": name}
        for name in ("one", "other")
    }
    content["steps"] = {
        name: {
            "trains": [name], "optimizer": SGD,
            "injectors": {
                "paint": {"type": "Forward", "network": name, "inputs": {"x": "x"}, "outputs": {"image": name}},
            },
        }
        for name in ("one", "other")
    }  # fmt: skip
    paint = {"type": "Forward", "network": "one", "inputs": {"x": "x"}, "outputs": {"image": "image"}}
    content["evaluate"]["modes"]["plain"]["injectors"]["paint"] = paint
    content["runtime"]["samples"] = None
    return content


def test_each_step_has_its_own_parts(run):
    whole = trained(run / "1", content=two())
    changes = {"train.accumulation": 2, "steps.other.accumulation": 4, "train.steps": 12}
    cut = trained(run / "2", changes, two(), kind=Parts)
    assert_same(weights(whole), weights(cut), atol=1e-6)
    assert cut.parts[:4] == [(0, "one", 2), (0, "other", 4), (1, "one", 2), (1, "other", 4)]


def test_names_are_shared_by_steps_of_the_same_parts():
    content = two()
    content["steps"]["other"]["injectors"]["paint"]["inputs"] = {"x": "one"}
    toy.checked({"train.accumulation": 3}, content)
    toy.checked({"steps.one.accumulation": 3, "steps.other.accumulation": 3}, content)
    with pytest.raises(UserError) as caught:
        toy.checked({"steps.other.accumulation": 3}, content)
    assert str(caught.value) == (
        "toy.yaml: steps.other.injectors.paint: 'one' is made by steps.one.injectors.paint in 1 parts of a batch, this "
        "goes in 3: names are shared by steps of the same accumulation"
    )


def hungry(limit, **rest):
    paint = {"type": "Forward", "network": "painter", "inputs": {"x": "fed"}, "outputs": {"image": "image"}}
    return {
        "train.find_batch_size": True,
        "networks.painter.dropout": 0.0,
        "steps.painter.optimizer": SGD,
        "steps.painter.injectors": {
            "feed": {"type": "test_step_options.Hungry", "limit": limit, **rest}, "paint": paint,
        },
    }  # fmt: skip


def test_parts_get_smaller_until_they_fit(run, capsys):
    whole = trained(run / "1", hungry(99))
    cut = trained(run / "2", hungry(1), kind=Parts)
    assert [count for *_, count in cut.parts] == [1, 2, *[4] * 12]
    assert_same(weights(whole), weights(cut), atol=1e-6)
    said = capsys.readouterr().out
    assert (
        "warning: memory ran out in iteration 1; going on after iteration 0 with accumulation x 2, 2 examples at"
        in said
    )
    assert "with accumulation x 4, 1 examples at a time" in said
    warnings = [json.loads(line) for line in (run / "2" / "live" / "log.jsonl").read_text().splitlines()]
    assert sum("warning" in line for line in warnings) == 2


def test_late_in_a_training_it_goes_back_to_the_resume_point_and_remembers(run):
    late = hungry(4, later=2, start=9) | {"runtime.resume_every": 3, "train.ema": {"decay": 0.8}}
    whole = trained(run / "1", hungry(99) | {"train.ema": {"decay": 0.8}})
    cut = trained(run / "2", late, kind=Parts)
    assert cut.parts == [*((t, "painter", 1) for t in range(10)), *((t, "painter", 2) for t in range(9, 12))]
    assert_same(weights(whole), weights(cut), atol=1e-6)
    killed = Parts(toy.checked(QUIET | hungry(2) | {"runtime.resume_every": 4}), run / "3")
    killed.stop = 6
    with pytest.raises(Killed):
        killed.fit()
    resumed = trained(run / "3", hungry(2) | {"runtime.resume_every": 4}, kind=Parts)
    assert resumed.parts == [(t, "painter", 2) for t in range(4, 12)]


def test_memory_for_not_even_one_example(run):
    with pytest.raises(UserError, match="memory does not suffice for one example at a time: CUDA out of memory"):
        trained(run, hungry(0), kind=Parts)


def test_without_being_asked_it_cuts_nothing(run):
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        trained(run, hungry(1) | {"train.find_batch_size": False}, kind=Parts)


def test_gradient_norms_of_each_network(run):
    content = two()
    first, second = content["steps"].values()
    content["steps"] = {
        "both": {
            **first,
            "trains": ["one", "other"],
            "injectors": {"a": first["injectors"]["paint"], "b": second["injectors"]["paint"]},
        }
    }
    for loss in content["losses"].values():
        loss["step"] = "both"
    apart, together = (
        trained(run / "1", {"train.record_every": 1}, two()),
        trained(run / "2", {"train.record_every": 1}, content),
    )
    assert_same(weights(apart), weights(together), atol=1e-6)
    for row, other in zip(history(run / "2"), apart.loss_log.train, strict=True):
        norms = [other["one.grad_norm"], other["other.grad_norm"]]
        assert [row["both.one.grad_norm"], row["both.other.grad_norm"]] == pytest.approx(norms, rel=1e-5)
        assert row["both.grad_norm"] == pytest.approx(math.hypot(*norms), rel=1e-5)
    log = [json.loads(line) for line in (run / "2" / "live" / "log.jsonl").read_text().splitlines()]
    norms = {name for name in log[-1] if name.startswith("grad_norm.")}
    assert norms == {"grad_norm.both", "grad_norm.both.one", "grad_norm.both.other"}
