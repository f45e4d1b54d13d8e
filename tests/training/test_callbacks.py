"""Code of users that a recipe names, or that is given to a trainer, at the fixed points of an iteration."""

import pytest
import torch
import toy
from trainings import Killed, history, outputs

from figura.base.errors import UserError
from figura.interfaces import Callback
from figura.training.trainer import Trainer

QUIET = {"runtime.samples": None, "runtime.timing": False}


class Watch(Callback):
    """Notes what it is called with, scales gradients, and counts updates."""

    def __init__(self, scale: float = 1.0, stop: int | None = None) -> None:
        self.scale, self.stop, self.seen, self.updates = scale, stop, [], 0

    def before_step(self, trainer, step):
        if trainer.iteration == self.stop:
            raise Killed
        self.seen.append(("before_step", step, trainer.iteration))

    def before_update(self, trainer, step):
        gradients = [p.grad for p in trainer.steps[step].parameters]
        assert all(gradient is not None for gradient in gradients)
        for gradient in gradients:
            gradient *= self.scale
        self.seen.append(("before_update", step, trainer.iteration))

    def after_update(self, trainer, step, report):
        assert not report.skipped
        self.updates += 1
        self.seen.append(("after_update", step, trainer.iteration))

    def on_evaluation(self, trainer, row):
        return {"updates": float(self.updates), "distance": row["distance.raw"]}

    def state_dict(self):
        return {"updates": self.updates, "some": torch.tensor([1.0])}

    def load_state_dict(self, state):
        assert torch.equal(state["some"], torch.tensor([1.0]))
        self.updates = state["updates"]


WATCHED = QUIET | {"callbacks": {"watch": {"type": "test_callbacks.Watch"}}}


def trained(run, changes=None, content=None, kind=Trainer, **keywords):
    trainer = kind(toy.checked(QUIET | (changes or {}), content), run, **keywords)
    trainer.fit()
    return trainer


def test_order_and_scalars(run):
    trainer = trained(run, WATCHED | {"train.steps": 4, "steps.painter.after": 2}, toy.gan())
    seen = trainer.callbacks["watch"].seen
    points = ("before_step", "before_update", "after_update")
    steps = [(t, step) for t in range(4) for step in ("critic", "painter") if step == "critic" or t >= 2]
    assert seen == [(point, step, t) for t, step in steps for point in points]
    (row,) = history(run, "validation")
    assert row["watch.updates"] == 6
    assert row["watch.distance"] == row["distance.raw"]


def test_gradients_may_be_changed_before_clipping_and_the_update(run):
    sgd = {
        "steps.painter.optimizer": {"type": "torch.optim.SGD", "lr": 0.125},
        "steps.painter.clip": None,
        "train.ema": None,
    }
    scaled = trained(run / "1", sgd | {"callbacks": {"watch": {"type": "test_callbacks.Watch", "scale": 2.0}}})
    faster = trained(run / "2", sgd | {"steps.painter.optimizer.lr": 0.25})
    for a, b in zip(*(t.networks.live["painter"].parameters() for t in (scaled, faster)), strict=True):
        assert torch.equal(a, b)
    steep = {"callbacks": {"watch": {"type": "test_callbacks.Watch", "scale": 1e3}}}
    clipped = trained(run / "3", sgd | steep | {"steps.painter.clip": 1.0, "train.steps": 1})
    norm = float(clipped.loss_log.train[-1]["painter.grad_norm"])
    assert norm > 50


def test_looking_changes_no_weights(run):
    trained(run / "1", WATCHED)
    trained(run / "2")
    for name in ("model/painter.safetensors", "history/train.csv"):
        assert outputs(run / "1")[name] == outputs(run / "2")[name]


def test_its_state_goes_on_after_a_kill(run):
    trained(run / "whole", WATCHED)
    with pytest.raises(Killed):
        trained(run / "killed", WATCHED | {"runtime.checkpoint_every": 100}, callbacks={"stop": Watch(stop=9)})
    whole = toy.checked(WATCHED)
    trainer = Trainer(whole, run / "killed", callbacks={"stop": Watch()})
    trainer.fit()
    assert trainer.callbacks["watch"].updates == 12
    assert trainer.callbacks["watch"].seen[0] == ("before_step", "painter", 8)
    assert outputs(run / "killed")["model/painter.safetensors"] == outputs(run / "whole")["model/painter.safetensors"]
    assert [row["watch.updates"] for row in history(run / "killed", "validation")] == [5, 10, 12]


def test_by_hand_too(run):
    def train_step(trainer, x, y):
        image = trainer.networks.live["painter"](x)["image"]
        error = (image - y).abs()
        return {"painter": trainer.optimize("painter", {"distance": error.mean(), "square": (error**2).mean()})}

    trainer = trained(run, WATCHED | {"train.steps": 2}, train_step=train_step)
    assert [point for point, *_ in trainer.callbacks["watch"].seen[:3]] == [
        "before_step",
        "before_update",
        "after_update",
    ]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"type": "test_callbacks.Wacth"},
            r"callbacks\.watch\.type: unknown callback .*did you mean 'test_callbacks\.Watch'",
        ),
        ({"type": "toy.Painter"}, r"callbacks\.watch\.type: 'toy\.Painter' is no callback"),
        ({"type": "test_callbacks.Watch", "scael": 1.0}, r"callbacks\.watch\.scael: unknown argument of Watch"),
    ],
)  # fmt: skip
def test_what_is_no_callback(entry, said):
    with pytest.raises(UserError, match=said):
        toy.checked({"callbacks": {"watch": entry}})


def test_a_name_that_is_taken(run):
    with pytest.raises(UserError, match="callbacks: 'watch' is in the recipe already"):
        Trainer(toy.checked(WATCHED), run, callbacks={"watch": Watch()})
