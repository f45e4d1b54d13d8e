"""A loss that gives its components: they are followed, and counted once."""

import pandas as pd
import pytest
import torch
import toy

from figura.interfaces import Loss
from figura.training.trainer import Trainer


class Parts(Loss):
    """Distance in two components."""

    def forward(self, *, image, target):
        difference = (image - target).abs()
        return {"near": 2 * difference.mean(dim=(1, 2, 3)), "far": (difference**2).mean(dim=(1, 2, 3))}


TWO = {"type": "test_components.Parts", "inputs": {"image": "image", "target": "y"}, "weight": 3.0}
PARTS = {"losses": {"two": TWO}, "runtime.samples": None, "train.record_every": 1}
WHOLE = {
    "losses": {
        "near": {"type": "toy.Distance", "inputs": TWO["inputs"], "weight": 6.0},
        "far": {"type": "toy.Distance", "power": 2.0, "inputs": TWO["inputs"], "weight": 3.0},
    },
    "runtime.samples": None,
}


def test_the_sum_is_trained_and_the_parts_are_recorded(run):
    trainer, same = Trainer(toy.checked(PARTS), run / "a"), Trainer(toy.checked(WHOLE), run / "b")
    trainer.fit()
    same.fit()
    pairs = zip(trainer.networks.live["painter"].parameters(), same.networks.live["painter"].parameters(), strict=True)
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    for row in trainer.loss_log.train:
        assert row["two.raw"] == pytest.approx(row["two.near.raw"] + row["two.far.raw"], rel=1e-6)
        assert row["two.near.weight"] == row["two.weight"] == 3
    book = trainer.loss_log
    assert set(book.history("two")["loss"]) == {"two", "two.near", "two.far"}
    assert list(book.last("painter")) == ["two", "two.near", "two.far"]
    validation = pd.read_csv(run / "a/history/validation.csv")
    assert {"two.raw", "two.near.raw", "two.far.raw"} <= set(validation)


def test_the_total_counts_a_loss_once(run):
    trainer = Trainer(toy.checked(PARTS), run)
    batch = {"x": torch.rand(4, 1, 4, 4), "y": torch.rand(4, 1, 4, 4)}
    _, means = trainer.log_op(batch)
    assert means["total"] == pytest.approx(3 * means["two"])
