"""Real pairs, labels to photos of facades, by changing paths (and which half is the input)."""

import json

import pandas as pd
import pytest

from pipeline.project import ROOT, Project

REAL = ROOT.parent / "shared" / "data" / "facades_real"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not REAL.is_dir(), reason=f"no sample of real pairs at {REAL}"),
]
ENTRY = "data/params.yaml:datasets.pairs"
RECIPE = "recipes/pix2pix.yaml"


def test_real_pairs_by_paths(project: Project) -> None:
    changes = [f"{ENTRY}.kind=paired", f"{ENTRY}.source={REAL}"]
    changes += [f"{RECIPE}:data.common.direction=b_to_a"]
    changes += [f"{RECIPE}:train.steps=40", f"{RECIPE}:train.evaluate_every=20"]
    changes += [f"{RECIPE}:steps.{step}.lr_schedule.{k}" for step in "DG" for k in ("start=30", "end=40")]
    project.run("dvc", "exp", "run", *(word for change in changes for word in ("-S", change)))
    prepared = project.folder / "data/prepared/pairs"
    assert len((prepared / "rejected.csv").read_text().splitlines()) == 1  # the head: nothing was rejected
    for split, folder in (("train", "train"), ("validation", "val")):
        files = sorted(path.name for path in (REAL / folder).glob("*.jpg"))
        assert sorted(path.name for path in (prepared / split).glob("*.jpg")) == files
    metrics = json.loads((project.folder / "metrics/full/pix2pix.json").read_text())
    assert metrics["translation"]["images"] == len(list((REAL / "val").glob("*.jpg")))
    validation = pd.read_csv(project.folder / "runs/pix2pix/history/validation.csv")["G_L1.raw"]
    assert validation.iloc[-1] < validation.iloc[0]
    assert (project.folder / "plots/pix2pix/pictures/triptychs.jpg").is_file()
    predicts_the_validation_pairs(project, metrics["translation"]["l1"]["value"])


def predicts_the_validation_pairs(project: Project, l1: float) -> None:
    """Which half is the input is known from the training; the mean over all pairs is that of the metrics."""
    words = (RECIPE, "runs/pix2pix", str(REAL / "val"), "--output", "predicted")
    done = project.run("figura", "predict", *words, "--set", "predict.data.layout=pairs")
    files = sorted(path.stem for path in (REAL / "val").glob("*.jpg"))
    table = pd.read_csv(project.folder / "predicted/predictions.csv")
    assert sorted(table["name"].astype(str)) == files
    assert table["fake.l1"].mean() == pytest.approx(l1, abs=1e-4)
    assert f"on average fake.l1 {table['fake.l1'].mean():.4g}" in done.stdout
    assert len(list((project.folder / "predicted").glob("*.fake.compared.png"))) == len(files)
