"""Browsing data without the page: datasets of a recipe, their rows and examples."""

import json
from pathlib import Path

import numpy as np
import pytest
import toy
import toy_pairs

from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.explore.browsing import open_dataset
from figura.engine.build import build_datasets
from figura.engine.data import Mixture


@pytest.fixture
def params(tmp_path, monkeypatch):
    """A recipe of six pairs."""
    monkeypatch.chdir(tmp_path)
    toy_pairs.write_noise(tmp_path / "data/prepared/pairs", 6)
    (tmp_path / "recipe.yaml").write_text(to_yaml(toy_pairs.content_of_files("data/prepared/pairs")))
    return tmp_path / "recipe.yaml"


def test_an_example_is_that_of_the_training(params):
    dataset = open_dataset(params, "train", "pairs")
    assert list(dataset.columns.items()) == [("index", True), ("name", False), ("file", False)]
    assert dataset.rows[4] == {"index": 4, "name": "pair4", "file": "pair4.png"}
    recipe = toy.checked(content=read_yaml(params))
    trained = Mixture(build_datasets(recipe, "train"), recipe.seed)
    crops = set()
    for epoch in (0, 1, 2):
        drawn = dataset.source.draw(3, epoch)
        for name in ("x", "y"):
            np.testing.assert_array_equal(drawn.example[name], trained[("pairs", epoch, 3)][name])
        crops.add(drawn.pictures["x"].tobytes())
    assert len(crops) > 1  # another epoch is cropped elsewhere


def test_a_dataset_stays_open_until_recipe_or_data_change(params):
    first = open_dataset(params, "train", "pairs")
    assert open_dataset(params, "train", "pairs") is first
    assert open_dataset(params, "validation", "pairs") is not first
    params.write_text(params.read_text().replace("crop_size: 12", "crop_size: 10"))
    second = open_dataset(params, "train", "pairs")
    assert second is not first
    assert second.source.draw(0).pictures["x"].shape == (10, 10, 3)
    content = read_yaml(params)
    data = content["data"]
    Path("data.yaml").write_text(to_yaml({"data": data}))
    params.write_text(to_yaml(content | {"data": data | {"train": {"extends": "data.yaml#data.train"}}}))
    assert open_dataset(params, "train", "pairs").source.draw(0).pictures["x"].shape == (10, 10, 3)
    data["train"]["pairs"] |= {"crop_size": 8}
    Path("data.yaml").write_text(to_yaml({"data": data}))
    assert open_dataset(params, "train", "pairs").source.draw(0).pictures["x"].shape == (8, 8, 3)
    root = Path("data/prepared/pairs")
    toy_pairs.write_noise(root, 7)
    (root / "manifest.json").write_text(json.dumps({"sha256": "prepared again"}))
    assert len(open_dataset(params, "train", "pairs").rows) == 7
