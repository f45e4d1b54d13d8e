"""Parts of a batch by step, gradient norms of several networks."""

import json
import math

import pytest
import toy
from trainings import assert_same, history, trained, weights

from figura.training.trainer import Trainer

SGD = {"type": "torch.optim.SGD", "lr": 0.1}


class Parts(Trainer):
    """Notes how many parts each step gets."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.parts = []
        for name, step in self.steps.items():
            step.update = self.noting(name, step.update)

    def noting(self, name, update):
        def wrapper(states, *arguments):
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


def test_gradient_norms_of_each_network(run):
    content = two()
    first, second = content["steps"].values()
    injectors = {"a": first["injectors"]["paint"], "b": second["injectors"]["paint"]}
    content["steps"] = {"both": first | {"trains": ["one", "other"], "injectors": injectors}}
    for loss in content["losses"].values():
        loss["step"] = "both"
    each = {"train.record_every": 1}
    apart, together = trained(run / "1", each, two()), trained(run / "2", each, content)
    assert_same(weights(apart), weights(together), atol=1e-6)
    for row, other in zip(history(run / "2"), apart.loss_log.train, strict=True):
        norms = [other["one.grad_norm"], other["other.grad_norm"]]
        assert [row["both.one.grad_norm"], row["both.other.grad_norm"]] == pytest.approx(norms, rel=1e-5)
        assert row["both.grad_norm"] == pytest.approx(math.hypot(*norms), rel=1e-5)
    log = [json.loads(line) for line in (run / "2" / "live" / "log.jsonl").read_text().splitlines()]
    norms = {name for name in log[-1] if name.startswith("grad_norm.")}
    assert norms == {"grad_norm.both", "grad_norm.both.one", "grad_norm.both.other"}
