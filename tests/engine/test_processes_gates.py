"""Two ranks in which gates and mixtures leave parameters without gradient, against one."""

from unittest.mock import patch

import pytest
import test_gates
import test_mixtures
import torch
import toy
from accelerate import Accelerator
from safetensors.torch import load_file
from trainings import history
from two_processes import run_in_two

from figura.training.trainer import Trainer

FORWARD = test_gates.FORWARD
SGD = test_gates.HEADS["steps.painter.optimizer"]
STEADY = {"data.batch_size": 4, "train.ema": None, "train.steps": 11, "train.record_every": 1}
GATED = test_gates.HEADS | STEADY | {"losses.right.every": 3, "losses.left.after": 2}
MIXED = {
    **test_gates.HEADS, **STEADY,
    "data.train": test_mixtures.MIXED["data.train"], "data.validation": test_mixtures.MIXED["data.validation"],
    "evaluate.inputs": {"x": "image"},
    "losses.right.inputs.target": "other",
}  # fmt: skip
LEFT_OUT = GATED | {  # two networks, of which one is not even called in most iterations
    "networks": {name: {"type": "test_gates.Heads"} for name in ("painter", "second")},
    "steps.painter.trains": ["painter", "second"],
    "steps.painter.accumulation": 2,
    "steps.painter.injectors": {
        "paint": {**FORWARD, "outputs": {"left": "left", "right": "right"}},
        "again": {**FORWARD, "network": "second", "outputs": {"right": "again"}, "every": 4},
    },
    "losses.again": {"type": "toy.Distance", "inputs": {"image": "again", "target": "y"}, "weight": 1.0, "every": 4},
}
JUDGE = {"type": "Forward", "network": "second", "inputs": {"x": "left"}, "outputs": {"image": "judged"}}
SHARED = test_gates.QUIET | STEADY | {  # the second step goes back through a forward of the first, in parts
    "networks": {"painter": {"type": "test_gates.Heads"}, "second": {"type": "toy.Painter"}},
    "steps": {
        "judge": {
            "trains": ["second"], "optimizer": SGD,
            "injectors": {"paint": {**FORWARD, "outputs": {"left": "left", "right": "right"}}, "judge": JUDGE},
        },
        "painter": {
            "trains": ["painter"], "optimizer": SGD, "every": 2,
            "injectors": {"judge": {**JUDGE, "outputs": {"image": "again"}}},
        },
    },
    "losses": {
        "judge": {"type": "toy.Distance", "inputs": {"image": "judged", "target": "x"}, "weight": 1.0, "step": "judge"},
        "fool": {"type": "toy.Distance", "inputs": {"image": "again", "target": "y"}, "weight": 1.0, "step": "painter"},
    },
    "train.accumulation": 2,
    "evaluate.modes.plain": test_gates.HEADS["evaluate.modes.plain"],
}  # fmt: skip
LIMITED = test_gates.QUIET | STEADY | {
    "networks.painter.dropout": 0.0, "train.evaluate_limit": 4, "data.validation.ramps.length": 10,
}  # fmt: skip
RECIPES = {"gated": GATED, "mixed": MIXED, "left out": LEFT_OUT, "shared": SHARED, "limited": LIMITED}


def train_all(folder):
    with patch.object(Accelerator, "end_training"):  # several trainings, one group of processes
        for name, changes in RECIPES.items():
            Trainer(toy.checked(changes), folder / name).fit()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    run_in_two(lambda: train_all(folder))
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_two_ranks_give_the_same_weights_as_one(name, two, run):
    one = Trainer(toy.checked(RECIPES[name]), run)
    one.fit()
    for path in sorted((run / "model").glob("*.safetensors")):
        expected, shared = load_file(path), load_file(two / name / "model" / path.name)
        for key, value in expected.items():
            torch.testing.assert_close(shared[key], value, rtol=0, atol=1e-6, msg=f"{path.stem}.{key}")
    ours, theirs = ((folder / "live/losses.csv").read_text().splitlines() for folder in (run, two / name))
    for row, other in zip(ours[1:], theirs[1:], strict=True):
        assert row.split(",")[:2] == other.split(",")[:2]
        assert float(row.split(",")[2]) == pytest.approx(float(other.split(",")[2]), rel=1e-4)
    for row, other in zip(history(run, "validation"), history(two / name, "validation"), strict=True):
        assert row == pytest.approx(other, rel=1e-4)
