"""The recipes of unpaired translation: killed they end in the same bytes, two processes give one's weights, judged."""

import json
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import toy
from accelerate import Accelerator
from pictures_by_hand import noise, write
from safetensors.torch import load_file
from trainings import fit, killed, outputs
from two_processes import run_in_two

from figura.base.yaml12 import read_yaml
from models.images.pairs import resized
from stages import eval_dump, metrics

FOLDER = Path(__file__).parents[2] / "recipes/unpaired"
RECIPES = ("cyclegan", "cut")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Pictures of noise in two sets, and a truth of those of A."""
    folder = tmp_path_factory.mktemp("sets")
    for split, a, b in (("train", 5, 7), ("validation", 3, 3), ("test", 6, 6)):
        for number in range(max(a, b)):
            for side, count in (("a", a), ("b", b), ("truth", a)):
                if number < count:
                    write(folder / split / side / f"{number}.png", noise(34, 34, 100 * ord(side[0]) + number))
    (folder / "manifest.json").write_text('{"sha256": "0"}')
    return folder


def content(name, root, **changes):
    """Return a recipe's content, small enough for a test."""
    found = read_yaml(FOLDER / f"{name}.yaml")
    networks = {f"networks.{key}.features": 4 for key in found["networks"] if key != "projection"}
    if name == "cut":
        networks |= {"networks.projection.channels": [3, 8, 16, 16], "networks.projection.size": 8}
    small = {
        "data.common.root": str(root), "data.common.crop_size": 32, "data.train.pictures.load_size": 34,
        "data.batch_size": 4, "train.steps": 6, "train.evaluate_every": 3, "train.record_every": 1,
        "runtime.resume_every": 2, "runtime.progress": False, "runtime.trackers": [], "runtime.samples": None,
        "metrics.bootstrap": 20,
    }  # fmt: skip
    if name == "cyclegan":
        small["steps.D.injectors.pool.size"] = 5
    return toy.changed(networks | small | changes, found)


@pytest.mark.parametrize("name", RECIPES)
def test_a_killed_training_ends_in_the_same_bytes(name, root, run):
    whole = fit(run / "whole", {}, content(name, root))
    killed(run / "killed", {}, content(name, root), stop=5)
    assert fit(run / "killed", {}, content(name, root)).done == [4, 5]
    assert outputs(run / "killed") == outputs(run / "whole")
    assert all(np.isfinite(float(row[f"{loss}.raw"])) for row in whole.loss_log.train for loss in ("G_y", "D_fake_y"))


@pytest.fixture(scope="module")
def two(root, tmp_path_factory) -> Path:
    """The run folders of two ranks."""
    folder = tmp_path_factory.mktemp("two")

    def train_all():
        with patch.object(Accelerator, "end_training"):  # several trainings, one group of processes
            for name in RECIPES:
                fit(folder / name, {}, content(name, root, **STEADY))

    run_in_two(train_all)
    return folder


SGD = {"type": "torch.optim.SGD", "lr": 0.001}  # Adam divides by gradients' size, and so makes rounding large
STEADY = {"steps.G.optimizer": SGD, "steps.D.optimizer": SGD, "train.ema": None}


@pytest.mark.parametrize("name", RECIPES)
def test_two_ranks_give_the_weights_of_one(name, root, two, run):
    trainer = fit(run, {}, content(name, root, **STEADY))
    for network in trainer.networks.live:
        shared = load_file(two / name / "model" / f"{network}.safetensors")
        for key, value in load_file(run / "model" / f"{network}.safetensors").items():
            torch.testing.assert_close(shared[key], value, rtol=0, atol=1e-5, msg=f"{network}.{key}")


@pytest.mark.parametrize("name", RECIPES)
def test_judged_beside_the_identity(name, root, tmp_path, monkeypatch):
    """The scores have the truth and the identity: the day pictures differ from their truth as the arrays say."""
    monkeypatch.chdir(tmp_path)
    asked = content(name, root, **{"train.steps": 1})
    Path("recipe.yaml").write_text(json.dumps(asked))  # JSON is YAML
    fit(Path("run"), {}, asked)
    eval_dump.main(["recipe.yaml", "run"])
    metrics.main(["recipe.yaml", "run", "metrics.json", "plots"])
    summary, scores = (json.loads(Path(file).read_text()) for file in ("metrics.json", "full/metrics.json"))
    assert summary["psnr"]["baseline"] == scores["truth_mean"]["psnr"]["value"]
    pictures = {side: [noise(34, 34, 100 * ord(side) + n) for n in range(6)] for side in "at"}
    day, truth = (np.stack([resized(one, (32, 32), nearest=False) for one in pictures[side]]) for side in "at")
    expected = np.abs(day.astype(float) - truth).mean() / 127.5
    assert scores["truth_identity"]["l1"]["value"] == pytest.approx(expected, rel=1e-6)
    assert scores["frechet"]["value"] > 0
    assert scores["kernel_truth"]["value"] is not None
    assert [*Path("plots/pictures").glob("examples*")]
