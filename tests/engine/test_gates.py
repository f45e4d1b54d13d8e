"""When things run: gates of losses and injectors, names that a batch lacks, and who may then read which name."""

from typing import ClassVar

import numpy as np
import pytest
import torch
import toy
from test_mixtures import MIXED
from torch import nn
from trainings import QUIET, Recording, history, trained

from figura.interfaces import Loss
from figura.recipe.gates import Gate
from figura.recipe.name_check import can_run, covers_every_iteration
from figura.training.trainer import Trainer

PAINT = "steps.painter.injectors.paint"
FORWARD = toy.PAINT


class Counted(Loss):
    """Zero; the iterations in which it was computed, training and validation apart."""

    calls: ClassVar[list[bool]] = []

    def forward(self, *, image):
        type(self).calls.append(torch.is_grad_enabled())
        return 0 * image.mean(dim=(1, 2, 3))


class Heads(nn.Module):
    """A stem and two heads; each loss of `HEADS` needs one of them."""

    outputs: ClassVar[tuple[str, ...]] = ("left", "right")

    def __init__(self):
        super().__init__()
        self.stem, self.left, self.right = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 1, 1), nn.Conv2d(3, 1, 1)

    def forward(self, x):
        hidden = torch.tanh(self.stem(x))
        return {"left": self.left(hidden), "right": self.right(hidden)}


HEADS = QUIET | {
    "networks": {"painter": {"type": "test_gates.Heads"}},
    PAINT: {**FORWARD, "outputs": {"left": "left", "right": "right"}},
    "losses": {
        name: {"type": "toy.Distance", "power": 2.0, "inputs": {"image": name, "target": "y"}, "weight": 1.0}
        for name in ("left", "right")
    },
    "steps.painter.optimizer": {"type": "torch.optim.SGD", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
    "evaluate.modes.plain": {
        "injectors": {"paint": {**FORWARD, "outputs": {"left": "left"}}}, "save": {"left": "array"},
    },
}  # fmt: skip


def test_always_and_ever_are_what_counting_says():
    random = np.random.default_rng(0)

    def draw():
        after = int(random.integers(0, 9))
        before = None if random.random() < 0.5 else after + int(random.integers(1, 12))
        return Gate(int(random.integers(1, 5)), after, before)

    found = set()
    for _ in range(400):
        reader = tuple(draw() for _ in range(random.integers(1, 3)))
        makers = [tuple(draw() for _ in range(random.integers(1, 3))) for _ in range(random.integers(1, 4))]
        times = [t for t in range(200) if all(gate.open(t) for gate in reader)]
        covered = all(any(all(g.open(t) for g in maker) for maker in makers) for t in times)
        assert can_run(reader) == bool(times)
        assert covers_every_iteration(reader, makers) == covered
        found.add((bool(times), covered))
    assert len(found) == 3  # a reader that never runs finds everything


def test_a_closed_loss_is_neither_computed_nor_reported(run):
    class Unchecked(Trainer):
        def _sanity_check(self):
            """It computes the loss once, whatever its gate."""

    Counted.calls.clear()
    gated = {"type": "test_gates.Counted", "inputs": {"image": "image"}, "weight": 1.0}
    gated |= {"after": 3, "before": 9, "every": 2}
    trainer = Unchecked(toy.checked(QUIET | {"losses.gated": gated, "train.record_every": 1}), run)
    trainer.fit()
    rows = trainer.loss_log.history("gated")
    assert rows["step"].tolist() == [4, 6, 8]  # iterations 3, 5 and 7
    assert [int(row["step"]) for row in history(run) if "gated.raw" in row] == [4, 6, 8]
    assert sum(Counted.calls) == 3
    # after 5 updates it is within `after` and `before`, after 10 and 12 it is not; looks at 4, 8, 12: two batches each
    assert ["gated.raw" in row for row in history(run, "validation")] == [True, False, False]
    assert Counted.calls.count(False) == 2 + 1 + 1


def test_parameters_that_no_open_loss_needs_stay_where_they_are(run):
    """Momentum and weight decay do not move them either."""
    moved = trained(run, HEADS | {"losses.right.every": 3, "train.ema": None}, kind=Recording).moved()
    assert ["painter.right.weight" in names for names in moved] == [t % 3 == 0 for t in range(11)]
    assert all("painter.left.weight" in names for names in moved)


def test_training_and_validation_have_injectors_of_their_own(run):
    """The same name: with noise in training, without in validation."""
    both = {
        "noisy": {**FORWARD, "args": {"noise": 0.5}, "only": "training"},
        "plain": {**FORWARD, "only": "evaluation"},
    }
    changes = {"steps.painter.injectors": both, "networks.painter.dropout": 0.0, "train.ema": None, "train.steps": 5}
    trainer = trained(run / "1", changes)
    data = toy.Ramps(6)
    examples = [data.example(index, np.random.default_rng(0)) for index in range(6)]
    painter = trainer.networks.live["painter"]
    with torch.no_grad():
        error = [
            (painter(torch.from_numpy(e["x"])[None])["image"] - torch.from_numpy(e["y"])).abs().mean() for e in examples
        ]
    assert history(run / "1", "validation")[-1]["distance.raw"] == pytest.approx(np.mean(error), rel=1e-5)
    noisy = trained(run / "2", changes | {"steps.painter.injectors": {"paint": {**FORWARD, "args": {"noise": 0.5}}}})
    for a, b in zip(painter.parameters(), noisy.networks.live["painter"].parameters(), strict=True):
        assert torch.equal(a, b)  # training was the same


@pytest.mark.parametrize("only", [None, "evaluation"])
def test_a_step_and_those_that_read_its_names_are_left_out_where_a_batch_lacks_what_they_read(run, capsys, only):
    """Of the datasets, only one has y, which one injector of the first step reads, perhaps in evaluation alone."""
    content = toy.changed({key: value for key, value in MIXED.items() if key != "losses.other"} | {"train.ema": None})
    content["networks"]["second"] = {"type": "toy.Painter"}
    late = {"late": {**FORWARD, "network": "second", "inputs": {"x": "image"}, "outputs": {"image": "late"}}}
    spare = {"spare": {**FORWARD, "inputs": {"x": "y"}, "outputs": {"image": "again"}, "only": only}}
    content["steps"]["painter"]["injectors"] = {"paint": FORWARD, **spare}
    content["steps"]["second"] = content["steps"]["painter"] | {"trains": ["second"], "injectors": late}
    losses = content["losses"]
    losses["second"] = losses["distance"] | {"inputs": {"image": "late", "target": "x"}, "step": "second"}
    losses["distance"] |= {"inputs": {"image": "image", "target": "x"}, "step": "painter"}
    losses["square"]["step"] = "painter"
    trainer = trained(run, content=content)
    said = capsys.readouterr().out
    for name, lacking in {"painter": "y", "second": "image"}.items():
        assert (f"warning: steps.{name} is left out for batches that lack {lacking}\n" in said) == (only is None)
    for loss in ("distance", "second"):
        trained_at = [t for t in range(1, 16) if only or t % 3 != 2]
        assert trainer.loss_log.history(loss)["step"].tolist() == trained_at
    one = {"x": torch.rand(4, 1, 4, 4), "other": torch.ones(4, 1, 4, 4)}
    assert set(trainer.train_op(one)) == ({"painter", "second"} if only else set())
    assert trainer.eval_op(one) == {}


def test_a_name_may_be_made_in_turns(run):
    turns = {"early": {**FORWARD, "before": 4}, "late": {**FORWARD, "args": {"noise": 0.5}, "after": 4}}
    trainer = trained(run / "1", {"steps.painter.injectors": turns, "train.steps": 6})
    other = trained(run / "2", {"steps.painter.injectors": {"paint": FORWARD}, "train.steps": 6})
    raw, plain = (t.loss_log.history("distance")["raw"].to_numpy() for t in (trainer, other))
    assert (raw[:4] == plain[:4]).all()
    assert raw[4] != plain[4]
