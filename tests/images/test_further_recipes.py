"""Recipes beside the four default ones: killed they end in the same bytes, and they are judged."""

import json
from pathlib import Path

import numpy as np
import pytest
import toy
from people_of_noise import prepared
from pictures_by_hand import noise, write
from trainings import fit, killed, outputs

from models.images.pairs import resized
from stages import eval_dump, metrics

ROOT = Path(__file__).parents[2]
FILES = {"cyclegan": "recipes/unpaired/cyclegan.yaml", "cut": "recipes/unpaired/cut.yaml", "flow": "recipes/flow.yaml"}
MODES = {"reconstruction": 6, "transfer": 5, "foreign": 6}  # images: the third person is seen once


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Pictures of noise in two sets with a truth of those of A, and people of noise."""
    folder = tmp_path_factory.mktemp("data")
    for split, a, b in (("train", 5, 7), ("validation", 3, 3), ("test", 6, 6)):
        for number in range(max(a, b)):
            for side, count in (("a", a), ("b", b), ("truth", a)):
                if number < count:
                    write(folder / "sets" / split / side / f"{number}.png", noise(34, 34, 100 * ord(side[0]) + number))
    (folder / "sets/manifest.json").write_text('{"sha256": "0"}')
    prepared(folder / "people", [1, 1, 2, 2, 2, 3])
    return folder


def content(name, root, **changes):
    """Return a recipe's content, small enough for a test."""
    found = toy.shipped(FILES[name])
    small = {
        "data.batch_size": 4, "train.steps": 4, "train.evaluate_every": 2, "train.record_every": 1,
        "runtime.resume_every": 2, "runtime.progress": False, "runtime.trackers": [], "runtime.samples": None,
        "metrics.bootstrap": 20,
    }  # fmt: skip
    if name == "flow":
        small |= {
            "data.common.root": str(root / "people"), "data.common.image_size": 16,
            "networks.generator.channels": [8, 32], "networks.generator.attention": 1, "evaluate.batch_size": 4,
            "evaluate.grids.transfer.size": 2, "evaluate.averages.mean_target.examples": 4,
            **{f"evaluate.modes.{mode}.injectors.generate.steps": 1 for mode in (*MODES, "prior")},
        }  # fmt: skip
    else:
        small |= {
            "data.common.root": str(root / "sets"), "data.common.crop_size": 32, "data.train.pictures.load_size": 34,
            **{f"networks.{key}.features": 4 for key in found["networks"] if key != "projection"},
        }  # fmt: skip
    if name == "cut":
        small |= {"networks.projection.channels": [3, 8, 16, 16], "networks.projection.size": 8}
    if name == "cyclegan":
        small["steps.D.injectors.pool.size"] = 5
    return toy.changed(small | changes, found)


@pytest.mark.parametrize("name", ["cyclegan", "flow"])
def test_a_killed_training_ends_in_the_same_bytes(name, root, run):
    whole = fit(run / "whole", {}, content(name, root))
    killed(run / "killed", {}, content(name, root), stop=3)
    assert fit(run / "killed", {}, content(name, root)).done == [2, 3]
    assert outputs(run / "killed") == outputs(run / "whole")
    for loss in ("velocity",) if name == "flow" else ("G_y", "D_fake_y"):
        values = [float(row[f"{loss}.raw"]) for row in whole.loss_log.train]
        assert len(set(values)) == 4
        assert np.isfinite(values).all()


def judged(name, root, tmp_path, monkeypatch):
    """Train for a step, write a dump and its metrics; return the recipe's content and all metrics."""
    monkeypatch.chdir(tmp_path)
    asked = content(name, root, **{"train.steps": 1})
    Path("recipe.yaml").write_text(json.dumps(asked))  # JSON is YAML
    fit(Path("run"), {}, asked)
    eval_dump.main(["recipe.yaml", "run"])
    metrics.main(["recipe.yaml", "run", "metrics.json", "plots"])
    return asked, json.loads(Path("full/metrics.json").read_text())


def test_pictures_without_pairs_are_judged_beside_the_identity(root, tmp_path, monkeypatch):
    """The scores have the truth and the identity: the day pictures differ from their truth as the arrays say."""
    _, scores = judged("cut", root, tmp_path, monkeypatch)
    assert json.loads(Path("metrics.json").read_text())["psnr"]["baseline"] == scores["truth_mean"]["psnr"]["value"]
    pictures = {side: [noise(34, 34, 100 * ord(side) + n) for n in range(6)] for side in "at"}
    day, truth = (np.stack([resized(one, (32, 32), nearest=False) for one in pictures[side]]) for side in "at")
    expected = np.abs(day.astype(float) - truth).mean() / 127.5
    assert scores["truth_identity"]["l1"]["value"] == pytest.approx(expected, rel=1e-6)
    assert scores["frechet"]["value"] > 0
    assert scores["kernel_truth"]["value"] is not None
    assert [*Path("plots/pictures").glob("examples*")]


def test_the_flow_is_judged_by_what_judges_vunet(root, tmp_path, monkeypatch):
    """The same modes with the same files, so that each recipe's metrics judge the other's dump."""
    own, scores = judged("flow", root, tmp_path, monkeypatch)
    vunet = toy.shipped("params.yaml")
    for section in ("modes", "grids"):
        saved = {name: one["save"] for name, one in vunet["evaluate"][section].items()}
        assert {name: one["save"] for name, one in own["evaluate"][section].items()} == saved
    assert vunet["evaluate"]["inputs"] == own["evaluate"]["inputs"]
    assert {name: scores[name]["images"] for name in MODES} == MODES
    assert scores["diversity"]["examples"] == 6
    assert {path.stem for path in Path("plots/pictures").iterdir()} == {"losses", *own["metrics"]["pictures"]}
