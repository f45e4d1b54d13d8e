"""The recipe of the flow: killed it ends in the same bytes, two processes give one's weights, judged as VUNet is."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import toy
from accelerate import Accelerator
from people_of_noise import prepared
from safetensors.torch import load_file
from trainings import fit, killed, outputs
from two_processes import run_in_two

from figura.base.yaml12 import read_yaml
from stages import eval_dump, metrics

ROOT = Path(__file__).parents[2]
MODES = {"reconstruction": 1, "transfer": 1, "foreign": 1, "prior": 3}
SGD = {"type": "torch.optim.SGD", "lr": 0.001}  # Adam divides by gradients' size, and so makes rounding large
STEADY = {"steps.generator.optimizer": SGD, "train.ema": None}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return prepared(tmp_path_factory.mktemp("people"), [1, 1, 2, 2, 2, 3])


def content(root, **changes):
    """The recipe's content, small enough for a test."""
    steps = {f"evaluate.modes.{mode}.injectors.generate.steps": 1 for mode in MODES}
    small = {
        "data.common.root": str(root), "data.common.image_size": 16, "data.batch_size": 4,
        "networks.generator.channels": [8, 32], "networks.generator.attention": 1, "train.steps": 6,
        "train.evaluate_every": 3, "train.record_every": 1, "evaluate.batch_size": 4,
        "evaluate.grids.transfer.size": 2, "evaluate.averages.mean_target.examples": 4, "metrics.bootstrap": 20,
        "runtime.resume_every": 2, "runtime.progress": False, "runtime.trackers": [], "runtime.samples": None,
    }  # fmt: skip
    return toy.changed(steps | small | changes, read_yaml(ROOT / "recipes/flow.yaml"))


def test_a_killed_training_ends_in_the_same_bytes(root, run):
    whole = fit(run / "whole", {}, content(root))
    killed(run / "killed", {}, content(root), stop=5)
    assert fit(run / "killed", {}, content(root)).done == [4, 5]
    assert outputs(run / "killed") == outputs(run / "whole")
    values = [float(row["velocity.raw"]) for row in whole.loss_log.train]
    assert len(set(values)) == 6
    assert all(0 < value < 10 for value in values)


def test_two_ranks_give_the_weights_of_one(root, run):
    def train():
        with patch.object(Accelerator, "end_training"):
            fit(run / "two", {}, content(root, **STEADY))

    run_in_two(train)
    fit(run / "one", {}, content(root, **STEADY))
    two, one = (load_file(run / name / "model/generator.safetensors") for name in ("two", "one"))
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, rtol=0, atol=1e-5, msg=key)


def test_judged_by_what_judges_vunet(root, tmp_path, monkeypatch):
    """The same modes with the same files, so that each recipe's metrics judge the other's dump."""
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(json.dumps(content(root, **{"train.steps": 1})))  # JSON is YAML
    fit(Path("run"), {}, content(root, **{"train.steps": 1}))
    eval_dump.main(["recipe.yaml", "run"])
    metrics.main(["recipe.yaml", "run", "metrics.json", "plots"])
    own, vunet = content(root), read_yaml(ROOT / "params.yaml")
    for section in ("modes", "grids"):
        saved = {name: one["save"] for name, one in vunet["evaluate"][section].items()}
        assert {name: one["save"] for name, one in own["evaluate"][section].items()} == saved
    assert vunet["evaluate"]["inputs"] == own["evaluate"]["inputs"]
    scores = json.loads(Path("full/metrics.json").read_text())
    images = {name: scores[name]["images"] for name in MODES if name != "prior"}
    assert images == {"reconstruction": 6, "transfer": 5, "foreign": 6}  # the third person is seen once
    assert scores["diversity"]["examples"] == 6
    assert {path.stem for path in Path("plots/pictures").iterdir()} == {"losses", *own["metrics"]["pictures"]}
