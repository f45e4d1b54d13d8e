"""Real people and pairs by changing paths only, and data of one's own in an experiment in another folder.

Other recipes on real people: tests/pose and tests/vunet, without DVC.
"""

import contextlib
import io
import json
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from pycocotools.coco import COCO
from real_people import REAL, needs_real
from splits_by_hand import fraction

from pipeline.project import ROOT, Project, clone

pytestmark = pytest.mark.slow
PEOPLE, PAIRS = "data/params.yaml:datasets.people", "data/params.yaml:datasets.pairs"
CLOTHES = ("clothes", "patterns", "patterns_real")
FRECHET = ("frechet", "frechet_flat", "frechet_real")
NEED_IDENTITIES = ("transfer", "copy_appearance", "flat", *CLOTHES, *FRECHET)  # COCO has none
FACADES = ROOT.parent / "shared/data/facades_real"
RECIPE = "recipes/pix2pix.yaml"
OWN = {
    "kind": "images",
    "source": "data/raw/mine",
    "seed": 7,
    "max_rejected": 0.0,
    "images": {"train": "photos", "shares": {"validation": 0.2}},
}


def used_by_hand(path: Path, keypoints: int, height: float) -> int:
    """Count, with pycocotools, persons with so many labelled keypoints and a box so high."""
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(path))
    people = coco.loadAnns(coco.getAnnIds(catIds=coco.getCatIds(catNms=["person"]), iscrowd=False))
    return sum(sum(v > 0 for v in p["keypoints"][2::3]) >= keypoints and p["bbox"][3] >= height for p in people)


@needs_real
def test_real_people_by_paths(project: Project) -> None:
    changes = [f"{PEOPLE}.kind=coco", f"{PEOPLE}.source={REAL}"]
    done = project.run("dvc", "exp", "run", *(word for change in changes for word in ("-S", change)), "metrics@vunet")
    prepared = project.folder / "data/prepared/people"
    statistics = json.loads((prepared / "statistics.json").read_text())
    with contextlib.redirect_stdout(io.StringIO()):
        raw = COCO(str(REAL / "annotations.json"))
    assert sum(split["images"] for split in statistics.values()) == len(raw.imgs)
    assert len((prepared / "rejected.csv").read_text().splitlines()) == 1  # the head: nothing was rejected
    rows = (project.folder / "runs/vunet/dump/examples.csv").read_text().splitlines()
    reconstructions = sum(row.startswith("reconstruction,") for row in rows)
    assert reconstructions == used_by_hand(prepared / "test.json", keypoints=10, height=60)
    metrics = json.loads((project.folder / "metrics/full/vunet.json").read_text())
    assert metrics["reconstruction"]["images"] == reconstructions
    pictures = project.folder / "plots/vunet/pictures"
    assert (pictures / "reconstructions.jpg").is_file()
    reason = f"left out: has_other_view holds for none of the {reconstructions} examples of mode 'transfer'"
    for name in NEED_IDENTITIES:
        assert f"metrics.scores.{name}: {reason}\n" in done.stdout
        assert name not in metrics
    assert f"metrics.pictures.transfers: {reason}\n" in done.stdout
    assert not (pictures / "transfers.jpg").exists()


@pytest.mark.skipif(not FACADES.is_dir(), reason=f"no sample of real pairs at {FACADES}")
def test_real_pairs_by_paths(project: Project) -> None:
    changes = [f"{PAIRS}.kind=paired", f"{PAIRS}.source={FACADES}"]
    changes += [f"{RECIPE}:data.common.direction=b_to_a", f"{RECIPE}:evaluate.data.pairs.split=validation"]
    changes += [f"{RECIPE}:train.steps=40", f"{RECIPE}:train.evaluate_every=20"]
    changes += [f"{RECIPE}:steps.{step}.lr_schedule.{k}" for step in "DG" for k in ("start=30", "end=40")]
    project.run("dvc", "exp", "run", *(word for change in changes for word in ("-S", change)), "metrics@pix2pix")
    prepared = project.folder / "data/prepared/pairs"
    assert len((prepared / "rejected.csv").read_text().splitlines()) == 1  # the head: nothing was rejected
    for split, folder in (("train", "train"), ("validation", "val")):
        files = sorted(path.name for path in (FACADES / folder).glob("*.jpg"))
        assert ZipFile(prepared / f"{split}.zip").namelist() == [f"{split}/{name}" for name in files]
    metrics = json.loads((project.folder / "metrics/full/pix2pix.json").read_text())
    assert metrics["translation"]["images"] == len(list((FACADES / "val").glob("*.jpg")))
    validation = pd.read_csv(project.folder / "runs/pix2pix/history/validation.csv")["G_L1.raw"]
    assert validation.iloc[-1] < validation.iloc[0]
    assert (project.folder / "plots/pix2pix/pictures/triptychs.jpg").is_file()
    predicts_the_validation_pairs(project, metrics["translation"]["l1"]["value"])


def predicts_the_validation_pairs(project: Project, l1: float) -> None:
    """Which half is the input is known from the training; the mean over all pairs is that of the metrics."""
    words = (RECIPE, "runs/pix2pix", str(FACADES / "val"), "--output", "predicted")
    done = project.run("figura", "predict", *words, "--set", "predict.data.layout=pairs")
    files = sorted(path.stem for path in (FACADES / "val").glob("*.jpg"))
    table = pd.read_csv(project.folder / "predicted/predictions.csv")
    assert sorted(table["name"].astype(str)) == files
    assert table["fake.l1"].mean() == pytest.approx(l1, abs=1e-4)
    assert f"on average fake.l1 {table['fake.l1'].mean():.4g}" in done.stdout
    assert len(list((project.folder / "predicted").glob("*.fake.compared.png"))) == len(files)


def write_pictures(folder: Path) -> None:
    """Write twenty small pictures of noise."""
    folder.mkdir(parents=True)
    for number in range(20):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def test_an_experiment_in_a_folder_of_its_own_finds_added_data(tmp_path: Path) -> None:
    project = clone(tmp_path / "figura")
    write_pictures(project.folder / "data/raw/mine/photos")
    project.set("data/params.yaml", {"datasets.mine": OWN})
    project.run("dvc", "add", "data/raw/mine")
    project.commit("data of our own")
    share = "data/params.yaml:datasets.mine.images.shares.validation=0.5"
    project.run("dvc", "exp", "run", "--temp", "--name", "half", "-S", share, "prepare@mine")
    project.run("dvc", "exp", "apply", "half", code=None)  # complains about the outputs of stages that nobody ran
    project.run("dvc", "checkout", "data/prepared/mine")
    statistics = json.loads((project.folder / "data/prepared/mine/statistics.json").read_text())
    counts = {split: one["images"] for split, one in statistics.items()}
    drawn = sum(fraction(f"{number}.png") < 0.5 for number in range(20))
    assert counts == {"train": 20 - drawn, "validation": drawn}
