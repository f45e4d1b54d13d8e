"""Code of users at the fixed points of an iteration: callbacks of a recipe, hooks of a trainer."""

import pytest
import torch
import toy
from trainings import QUIET, Killed, history, outputs, trained

from figura.base.errors import UserError
from figura.interfaces import Callback
from figura.training.trainer import Trainer


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
    sgd = {"steps.painter.optimizer": {"type": "torch.optim.SGD", "lr": 0.125}, "steps.painter.clip": None}
    scaled = trained(run / "1", sgd | {"callbacks": {"watch": {"type": "test_callbacks.Watch", "scale": 2.0}}})
    faster = trained(run / "2", sgd | {"steps.painter.optimizer.lr": 0.25})
    for a, b in zip(*(t.networks.live["painter"].parameters() for t in (scaled, faster)), strict=True):
        assert torch.equal(a, b)
    steep = {"callbacks": {"watch": {"type": "test_callbacks.Watch", "scale": 1e3}}}
    clipped = trained(run / "3", sgd | steep | {"steps.painter.clip": 1.0, "train.steps": 1})
    norm = float(clipped.loss_log.train[-1]["painter.grad_norm"])
    assert norm > 50


def test_by_hand_too(run):
    def train_step(trainer, x, y):
        image = trainer.networks.live["painter"](x)["image"]
        error = (image - y).abs()
        return {"painter": trainer.optimize("painter", {"distance": error.mean(), "square": (error**2).mean()})}

    trainer = trained(run, WATCHED | {"train.steps": 2}, train_step=train_step)
    points = ["before_step", "before_update", "after_update"]
    assert [point for point, *_ in trainer.callbacks["watch"].seen[:3]] == points


def test_a_trainer_with_a_method_of_a_callback_is_refused(run):
    class Mine(Trainer):
        def after_update(self, step, report):
            raise AssertionError

    with pytest.raises(UserError, match=r"^Mine\.after_update: write a Callback with it"):
        Mine(toy.checked(), run)


def test_looking_changes_no_weights_and_its_state_goes_on_after_a_kill(run):
    trained(run / "whole", WATCHED)
    trained(run / "unwatched")
    for name in ("model/painter.safetensors", "history/train.csv"):
        assert outputs(run / "whole")[name] == outputs(run / "unwatched")[name]
    with pytest.raises(Killed):
        trained(run / "killed", WATCHED | {"runtime.checkpoint_every": 100}, callbacks={"stop": Watch(stop=9)})
    whole = toy.checked(WATCHED)
    trainer = Trainer(whole, run / "killed", callbacks={"stop": Watch()})
    trainer.fit()
    assert trainer.callbacks["watch"].updates == 12
    assert trainer.callbacks["watch"].seen[0] == ("before_step", "painter", 8)
    assert outputs(run / "killed")["model/painter.safetensors"] == outputs(run / "whole")["model/painter.safetensors"]
    assert [row["watch.updates"] for row in history(run / "killed", "validation")] == [5, 10, 12]


def test_hooks_given_to_the_trainer(run):
    seen = []

    def start(trainer, epoch, *, word):
        seen.append(("start", type(trainer), epoch, word))

    def step(trainer, x, y, index, *, factor=1, **rest):
        seen.append(("step", x.shape, y.shape, index, factor, rest))
        return trainer.train_op({"x": x, "y": y})

    def end(trainer, epoch):
        seen.append(("end", epoch))

    keywords = {"on_epoch_start": {"word": "go"}, "train_step": {"index": 7, "more": 3}}
    hooks = {"on_epoch_start": start, "train_step": step, "on_epoch_end": end}
    Trainer(toy.checked(QUIET | {"train.steps": 5}), run, **hooks, hook_kwargs=keywords).fit()
    size = (4, 1, 4, 4)  # a keyword replaces what is offered: the index
    assert seen == [("start", Trainer, 0, "go"), *[("step", size, size, 7, 1, {"more": 3})] * 5, ("end", 0)]


def test_hooks_by_subclass(run):
    seen = []

    class Watched(Trainer):
        def on_epoch_start(self, epoch):
            seen.append(("start", epoch, self.iteration))

        def train_step(self, batch, index):
            seen.append(("step", index, tuple(batch["x"].shape)))
            return self.train_op(batch)

        def on_epoch_end(self, epoch, **keywords):
            seen.append(("end", epoch, self.iteration, keywords))

    Watched(toy.checked(QUIET), run, hook_kwargs={"on_epoch_end": {"word": "done"}}).fit()
    word = {"word": "done"}
    assert [entry for entry in seen if entry[0] != "step"] == [
        ("start", 0, 0), ("end", 0, 5, word), ("start", 1, 5), ("end", 1, 10, word), ("start", 2, 10),
    ]  # fmt: skip
    assert [entry for entry in seen if entry[0] == "step"] == [("step", i % 5, (4, 1, 4, 4)) for i in range(12)]


@pytest.mark.parametrize(
    ("hooks", "keywords", "error", "said"),
    [
        ({"callbacks": {"watch": Watch()}}, {}, UserError, "callbacks: 'watch' is in the recipe already"),
        ({}, {"train_stpe": {}}, UserError, r"unknown hook 'train_stpe' \(did you mean 'train_step'\?\); there are "),
        ({}, {"on_epoch_start": {"word": 1}}, TypeError, "'word'"),
        ({"train_step": lambda trainer, x, yy: {}}, {}, TypeError, "'yy'"),
    ],
)
def test_what_does_not_fit_is_an_error_before_anything_is_built(run, hooks, keywords, error, said):
    with pytest.raises(error, match=said):
        Trainer(toy.checked(WATCHED), run, **hooks, hook_kwargs=keywords)
    assert not run.exists()


def test_epoch_start_prints_all_weights_no_oftener_than_the_log(run, capsys):
    def said(**keywords):
        Trainer(toy.checked(QUIET), run, **keywords).fit()
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]

    # at steps 0, 5 and 10: `distance` 2; `square` 0.5 times a ramp from step 2 to 6
    weights = ("distance 2, square 0", "distance 2, square 0.375", "distance 2, square 0.5")
    assert said() == [f"epoch {epoch}: loss weights {one}" for epoch, one in enumerate(weights)]
    assert said(hook_kwargs={"on_epoch_start": {"print_train_start": False}}) == []
    Trainer(toy.checked(QUIET | {"runtime.log_every": 7}), run).fit()
    assert "epoch 1" not in capsys.readouterr().out  # after 5 iterations
