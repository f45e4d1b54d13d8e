"""Datasets that drive different losses: what one does not provide, its batches do not train."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from trainings import trained

from figura.training.trainer import Trainer


class OnlyX(toy.Ramps):
    """Ramps without target, but with a picture to be unlike."""

    names: ClassVar[tuple[str, ...]] = ("x", "other", "index")

    def example(self, index, random):
        found = super().example(index, random)
        return {"x": found["x"], "other": np.ones_like(found["x"]), "index": index}


MIXED = {
    "data.train": {
        "ramps": {"type": "toy.Ramps", "length": 40, "weight": 1.0},
        "plain": {"type": "test_mixtures.OnlyX", "length": 40, "weight": 0.5},
    },
    "data.validation": {
        "ramps": {"type": "toy.Ramps", "length": 6},
        "plain": {"type": "test_mixtures.OnlyX", "length": 5},
    },
    "losses.other": {"type": "toy.Distance", "inputs": {"image": "image", "target": "other"}, "weight": 0.1},
    "evaluate.inputs": {"x": "image"},
    "runtime.samples": None,
    "train.steps": 15,
    "train.record_every": 1,
}


def test_batches_by_weight_and_losses_by_what_is_there(run):
    trainer = trained(run, MIXED)
    rows = trainer.loss_log.history()
    steps = {name: rows.loc[rows["loss"] == name, "step"].tolist() for name in ("distance", "square", "other")}
    assert steps["distance"] == steps["square"]
    assert len(steps["distance"]) == 10  # exactly two thirds of 15
    assert len(steps["other"]) == 5
    assert sorted(steps["distance"] + steps["other"]) == list(range(1, 16))
    assert steps["other"][:4] == [2, 5, 8, 11]  # the lowest counter over weight is next
    validation = pd.read_csv(run / "history/validation.csv")
    assert validation[["distance.raw", "other.raw"]].notna().all().all()


def test_validation_means_are_over_the_instances_that_have_the_loss(run):
    trainer = trained(run, MIXED | {"train.steps": 1, "steps.painter.injectors.paint.args": {}})
    painter = trainer.networks.ema["painter"].eval()
    data = OnlyX(5)
    with torch.no_grad():
        values = [(painter(torch.from_numpy(data[i]["x"])[None])["image"] - 1).abs().mean().item() for i in range(5)]
    assert trainer.loss_log.validation[-1]["other.raw"] == pytest.approx(np.mean(values), rel=1e-5)


def test_a_batch_with_nothing_to_learn_from_moves_nothing(run):
    changes = {key: value for key, value in MIXED.items() if key != "losses.other"}
    trainer = Trainer(toy.checked(changes), run)
    before = [p.clone() for p in trainer.networks.live["painter"].parameters()]
    one = {"x": torch.rand(4, 1, 4, 4), "other": torch.ones(4, 1, 4, 4)}
    report = trainer.train_op(one)["painter"]
    assert report.raw == {}
    assert not report.skipped
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.networks.live["painter"].parameters(), strict=True))
