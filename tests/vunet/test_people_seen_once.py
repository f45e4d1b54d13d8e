"""The default recipe on people of whom some, or all, are seen once: what it judges, and what it leaves out."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy
from accelerate import Accelerator
from people_of_noise import prepared
from real_people import needs_real

from figura.dump import Dump
from figura.engine.build import build_networks
from figura.evaluation.evaluate import Evaluation
from figura.report.metrics import compute_metrics, draw_pictures
from figura.training.trainer import Trainer

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # by pycocotools
CLOTHES = ("clothes", "patterns", "patterns_real")
FRECHET = ("frechet", "frechet_flat", "frechet_real")
NEED_IDENTITIES = ("transfer", "copy_appearance", "flat", *CLOTHES, *FRECHET)
TINY = {
    "data.common.image_size": 16, "data.batch_size": 2, "networks.generator.nf_start": 4,
    "networks.generator.nf_max": 8, "train.steps": 2, "train.evaluate_every": 2, "evaluate.batch_size": 4,
    "evaluate.grids.transfer.size": 2, "evaluate.averages.mean_target.examples": 4, "evaluate.modes.prior.repeat": 1,
    "metrics.bootstrap": 10, "runtime.progress": False, "runtime.trackers": [], "runtime.samples": None,
}  # fmt: skip


def recipe(root, changes=None, file="params.yaml"):
    return toy.checked({"data.common.root": str(root), **(TINY if changes is None else changes)}, toy.shipped(file))


def judged(recipe, folder):
    """The dump of untrained networks, its metrics, and what was said."""
    Evaluation(recipe, build_networks(recipe), folder, Accelerator()).write()
    said: list[str] = []
    dump = Dump(folder)
    return dump, compute_metrics(recipe, dump, say=said.append), said


def test_transfer_is_judged_where_there_is_another_view(tmp_path):
    dump, metrics, said = judged(recipe(prepared(tmp_path / "people", [1, 1, 2, 6, 1, None])), tmp_path / "dump")
    assert [line.split(":")[0].rpartition(".")[2] for line in said] == [*CLOTHES]  # nobody has masks of clothes
    assert {name: metrics[name]["images"] for name in ("reconstruction", "transfer", "copy_appearance")} == {
        "reconstruction": 6, "transfer": 3, "copy_appearance": 3,
    }  # fmt: skip
    rows = dump.mode("transfer")
    places = [index for index, person in enumerate(rows.table["person_id"]) if person == 1]
    assert len(places) == 3
    difference = [np.abs(rows.value(p, "appearance") - rows.value(p, "target")).mean() for p in places]
    assert metrics["copy_appearance"]["l1"]["value"] == pytest.approx(np.mean(difference), rel=1e-5)
    assert min(difference) > 0.05
    draw_pictures(recipe(tmp_path / "people"), dump, tmp_path / "pictures", say=said.append)
    assert (tmp_path / "pictures/transfers.jpg").is_file()


def test_without_identities_there_is_no_transfer(tmp_path):
    _, metrics, said = judged(recipe(prepared(tmp_path / "people", [None] * 4)), tmp_path / "dump")
    reason = "left out: has_other_view holds for none of the 4 examples of mode 'transfer'"
    assert said == [f"metrics.scores.{name}: {reason}" for name in NEED_IDENTITIES]
    assert not metrics.keys() & set(NEED_IDENTITIES)
    assert metrics["reconstruction"]["images"] == metrics["foreign"]["images"] == 4


@needs_real
@pytest.mark.slow
def test_super_resolution_of_real_pictures(real_people, run):
    small = {
        "data.common.size": 32, "networks.generator.features": 4, "networks.generator.growth": 4,
        "networks.discriminator.features": 4, "train.steps": 2, "train.evaluate_every": 2,
        "metrics.bootstrap": 10, "runtime.progress": False, "runtime.trackers": [], "runtime.samples": None,
        "runtime.scores": None,
    }  # fmt: skip
    checked = recipe(real_people, small, "recipes/super_resolution.yaml")
    Trainer(checked, run).fit()
    assert len(pd.read_csv(run / "history/validation.csv")) > 0
    dump, metrics, said = judged(checked, run / "dump")
    draw_pictures(checked, dump, run / "pictures", say=said.append)
    assert said == []
    assert {path.stem for path in (run / "pictures").iterdir()} == {*checked.metrics.pictures}
    assert metrics["upscaling"]["images"] == len(json.loads((real_people / "test.json").read_text())["images"])
