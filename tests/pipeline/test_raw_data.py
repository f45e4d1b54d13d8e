"""Data of one's own in a queued experiment, which DVC runs in a folder of its own: what `dvc add` knows is there."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from splits_by_hand import fraction

from pipeline.project import clone

pytestmark = pytest.mark.slow
ENTRY = {
    "kind": "images",
    "source": "data/raw/mine",
    "seed": 7,
    "max_rejected": 0.0,
    "images": {"train": "photos", "shares": {"validation": 0.2}},
}


def write_pictures(folder: Path) -> None:
    """Write twenty small pictures of noise."""
    folder.mkdir(parents=True)
    for number in range(20):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def test_a_queued_experiment_finds_added_data(tmp_path: Path) -> None:
    project = clone(tmp_path / "figura")
    write_pictures(project.folder / "data/raw/mine/photos")
    project.set("data/params.yaml", {"datasets.mine": ENTRY})
    project.run("dvc", "add", "data/raw/mine")
    project.commit("data of our own")
    share = "data/params.yaml:datasets.mine.images.shares.validation=0.5"
    project.run("dvc", "exp", "run", "--queue", "--name", "half", "-S", share, "prepare@mine")
    project.run("dvc", "exp", "run", "--run-all")
    assert "Success" in project.run("dvc", "queue", "status").stdout
    project.run("dvc", "exp", "apply", "half", code=None)  # complains about the outputs of stages that nobody ran
    project.run("dvc", "checkout", "data/prepared/mine")
    statistics = json.loads((project.folder / "data/prepared/mine/statistics.json").read_text())
    counts = {split: one["images"] for split, one in statistics.items()}
    drawn = sum(fraction(f"{number}.png") < 0.5 for number in range(20))
    assert counts == {"train": 20 - drawn, "validation": drawn}
