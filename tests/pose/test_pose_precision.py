"""Trainings in half precision on the CPU: convolutions in bfloat16 or float16, losses in float32, all of it finite."""

import drawn_scenes
import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.amp import GradScaler

from figura.engine import build as assemble
from figura.training.trainer import Trainer
from models.pose.composite_losses import Composite

STEPS = 60
PARTS = {
    "cif": ("confidence", "vector", "scale"),
    "caf": ("confidence", "vector", "scale"),
    "cifdet": ("confidence", "vector"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    drawn_scenes.write(folder)
    return folder


@pytest.fixture
def seen(monkeypatch):
    """The types of what the loss computes from and of what it gives, and of what the convolutions give."""
    types = {"logits": set(), "offset": set(), "raw": set(), "values": set(), "conv": set()}

    def watched(name, what):
        original = getattr(Composite, name)

        def call(self, first, *rest):
            found = original(self, first, *rest)
            types[what].add(first.dtype)
            types["values"].add(found.dtype)
            return found

        monkeypatch.setattr(Composite, name, call)

    for name, what in (("confidence", "logits"), ("regression", "offset"), ("scale", "raw")):
        watched(name, what)
    return types


def watch_convolutions(network, types):
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(lambda _, __, out: types["conv"].add(out.dtype))


def totals(rows):
    """Weighted sums of all heads, by row."""
    return np.array([sum(row[f"{kind}.weighted"] for kind in PARTS) for row in rows])


def judge(rows, types, half, searching=0):
    assert types.pop("conv") == {half}
    assert types == {what: {torch.float32} for what in types}
    assert len(rows) == STEPS
    assert not any(row["network.skipped"] for row in rows[searching:])
    rows = [row for row in rows if not row["network.skipped"]]
    for row in rows:
        assert np.isfinite(list(row.values())).all()
        assert {f"{kind}.{part}.raw" for kind, parts in PARTS.items() for part in parts} <= row.keys()
    found = totals(rows)
    assert found[-20:].mean() < found[20:40].mean() < found[:5].mean()
    for kind in PARTS:  # each head learns to say where, not the loudest alone
        confidence = np.array([row[f"{kind}.confidence.raw"] for row in rows])
        assert confidence[-20:].mean() < confidence[:5].mean() / 2


def test_bfloat16_by_the_recipe(root, run, seen):
    trainer = Trainer(drawn_scenes.checked(root, {"train.steps": STEPS, "train.precision": "bf16"}), run)
    watch_convolutions(trainer.networks.live["network"], seen)
    trainer.fit()
    judge(trainer.loss_log.train, seen, torch.bfloat16)


@pytest.mark.slow
def test_float16_with_a_scaler(root, run, seen, monkeypatch):
    """Recipes have no float16 on a CPU: autocast and the scaler are put in its place."""
    monkeypatch.setattr(assemble, "gradient_scaler", lambda accelerator: GradScaler("cpu"))
    monkeypatch.setattr(Accelerator, "autocast", lambda self: torch.autocast("cpu", dtype=torch.float16))
    monkeypatch.setattr(Trainer, "_sanity_check", lambda self: None)  # its forwards have no autocast around them
    trainer = Trainer(drawn_scenes.checked(root, {"train.steps": STEPS}), run)
    watch_convolutions(trainer.networks.live["network"], seen)
    trainer.fit()
    judge(trainer.loss_log.train, seen, torch.float16, searching=16)  # from 2^16 to 1, if need be
