"""Trainings in half precision on the CPU: convolutions in bfloat16 or float16, losses in float32, all of it finite."""

import drawn_scenes
import numpy as np
import pytest
import torch

from models.engine.state import State
from models.engine.trainer import Trainer
from models.pose.losses import Composite

STEPS = 200
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


def judge(rows, types, half):
    assert types.pop("conv") == {half}
    assert types == {what: {torch.float32} for what in types}
    assert len(rows) == STEPS
    for row in rows:
        assert row["network.skipped"] == 0
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
    judge(trainer.history.train, seen, torch.bfloat16)


def test_float16_by_hand(root, run, seen):
    """Accelerate has no float16 for CPUs: autocast around network and losses, and no scale of the gradients."""
    trainer = Trainer(drawn_scenes.checked(root, {"train.steps": STEPS}), run)
    step, network = trainer.steps["network"], trainer.networks.live["network"]
    watch_convolutions(network, seen)
    rows, batches = [], trainer.loaders.train(0)
    for iteration, batch in zip(range(STEPS), batches, strict=False):
        with torch.autocast("cpu", dtype=torch.float16):
            values = step.observe(State(batch), trainer.networks, iteration, training=True)
        assert {value.dtype for value in values.values()} == {torch.float32}
        means = {name: value.mean() for name, value in values.items()}
        weights = {kind: step.losses[kind].effective_weight(iteration) for kind in PARTS}
        sum(weight * means[kind] for kind, weight in weights.items()).backward()
        skipped = not all(parameter.grad.isfinite().all() for parameter in network.parameters())
        step.optimizer.step()
        step.optimizer.zero_grad()
        row = {f"{name}.raw": mean.item() for name, mean in means.items()} | {"network.skipped": int(skipped)}
        rows.append(row | {f"{kind}.weighted": weight * means[kind].item() for kind, weight in weights.items()})
    judge(rows, seen, torch.float16)
