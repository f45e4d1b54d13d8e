"""Browsing data without the page: datasets of a recipe, their rows and examples."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import toy
import toy_pairs

from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.explore.browsing import (
    numeric,
    open_dataset,
    rows_of,
)
from figura.engine.build import build_datasets
from figura.engine.data import Mixture


def write_recipe(path: Path, changes: dict, content: dict | None = None) -> Path:
    path.write_text(to_yaml(toy.changed(changes, content)))
    return path


def write_pairs(root: Path, count: int) -> None:
    """Noise, as image pairs of 16 pixels, in both splits."""
    for split in ("train", "validation"):
        (root / split).mkdir(parents=True, exist_ok=True)
        for place in range(count):
            sides = np.random.default_rng(place).integers(0, 256, (16, 32, 3), np.uint8)
            cv2.imwrite(str(root / split / f"pair{place}.png"), sides)


@pytest.fixture
def params(tmp_path, monkeypatch):
    """A recipe of six pairs; training crops them at random."""
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "data/prepared/pairs", 6)
    pairs = {"type": "images.ImagePairs", "root": "data/prepared/pairs", "direction": "a_to_b", "crop_size": 12}
    changes = {
        "data.common": pairs,
        "data.train": {"pairs": {"split": "train", "load_size": 16}},
        "data.validation": {"pairs": {"split": "validation"}},
    }
    return write_recipe(tmp_path / "recipe.yaml", {}, toy_pairs.content(changes))


def test_an_example_is_that_of_the_training(params):
    dataset = open_dataset(params, "train", "pairs")
    recipe = toy.checked(content=read_yaml(params))
    trained = Mixture(build_datasets(recipe, "train"), recipe.seed)
    crops = set()
    for epoch in (0, 1, 2):
        drawn = dataset.source.draw(3, epoch)
        for name in ("x", "y"):
            np.testing.assert_array_equal(drawn.example[name], trained[("pairs", epoch, 3)][name])
        crops.add(drawn.pictures["x"].tobytes())
    assert len(crops) > 1  # another epoch is cropped elsewhere


def test_rows(params):
    dataset = open_dataset(params, "train", "pairs")
    assert dataset.columns == ["index", "name", "file"]
    assert dataset.rows[4] == {"index": 4, "name": "pair4", "file": "pair4.png"}
    assert numeric(dataset.rows, "index")
    assert not numeric(dataset.rows, "file")


def test_names_that_are_no_text_are_shown_as_escapes():
    class Odd(toy.Ramps):
        def row(self, index):
            return {"file": "a\udcff\x1b[31m", "index": 99}

    (row,) = rows_of(Odd(1))
    assert row["index"] == 0
    assert row["file"].isprintable()
    row["file"].encode()


def test_a_dataset_stays_open_until_recipe_or_data_change(params):
    first = open_dataset(params, "train", "pairs")
    assert open_dataset(params, "train", "pairs") is first
    assert open_dataset(params, "validation", "pairs") is not first
    params.write_text(params.read_text().replace("crop_size: 12", "crop_size: 10"))
    second = open_dataset(params, "train", "pairs")
    assert second is not first
    assert second.source.draw(0).pictures["x"].shape == (10, 10, 3)
    root = Path("data/prepared/pairs")
    write_pairs(root, 7)
    (root / "manifest.json").write_text(json.dumps({"sha256": "prepared again"}))
    assert len(open_dataset(params, "train", "pairs").rows) == 7
