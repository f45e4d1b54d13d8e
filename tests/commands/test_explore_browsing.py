"""Browsing data without the page: datasets of a recipe, rows, search, examples, statistics, what is left out."""

import json
import os
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
import toy
import toy_pairs

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.explore.browsing import (
    CAPACITY,
    WIDEST,
    OpenDatasets,
    all_names,
    caption,
    dataset_names,
    left_out,
    numeric,
    plots,
    root_of,
    rows_of,
    statistics,
)
from figura.data.preparation.manifest import write_rejected
from figura.engine.build import build_datasets
from figura.engine.data import Mixture

COLUMNS = ("file", "kind", "id", "reason", "detail")


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


def toy_recipe(tmp_path, length=5):
    changes = {
        "data.train": {"ramps": {"type": "toy.Ramps", "length": length}, "named": {"type": "toy.Named", "length": 8}}
    }
    return write_recipe(tmp_path / "toy.yaml", changes)


def test_the_datasets_of_a_recipe(tmp_path):
    names = dataset_names(toy_recipe(tmp_path))
    assert names == {"train": ["ramps", "named"], "validation": ["ramps"], "evaluate": ["ramps"]}


def test_the_folder_of_a_dataset(params, tmp_path):
    assert root_of(params, "validation", "pairs") == Path("data/prepared/pairs")
    assert root_of(toy_recipe(tmp_path), "train", "ramps") is None
    with pytest.raises(UserError, match="'ramp'; there are ramps"):
        root_of(toy_recipe(tmp_path), "validation", "ramp")


def test_an_example_is_that_of_the_training(params):
    dataset = OpenDatasets().open(params, "train", "pairs")
    recipe = toy.checked(content=read_yaml(params))
    trained = Mixture(build_datasets(recipe, "train"), recipe.seed)
    crops = set()
    for epoch in (0, 1, 2):
        drawn = dataset.source.draw(3, epoch)
        for name in ("x", "y"):
            np.testing.assert_array_equal(drawn.example[name], trained[("pairs", epoch, 3)][name])
        crops.add(drawn.pictures["x"].tobytes())
    assert len(crops) > 1  # another epoch is cropped elsewhere


def test_rows_and_what_a_search_leaves(params):
    dataset = OpenDatasets().open(params, "train", "pairs")
    assert dataset.columns == ["index", "name", "file"]
    assert dataset.rows[4] == {"index": 4, "name": "pair4", "file": "pair4.png"}
    assert list(dataset.matching("")) == list(dataset.matching(" ")) == list(range(6))
    assert dataset.matching("PAIR2") == [2]
    assert dataset.matching("png 5") == [5]
    assert dataset.matching("jpg") == []
    assert numeric(dataset.rows, "index")
    assert not numeric(dataset.rows, "file")


def test_rows_of_a_dataset_that_tells_nothing_have_an_index():
    assert rows_of(toy.Ramps(3)) == [{"index": 0}, {"index": 1}, {"index": 2}]


def test_names_that_are_no_text_are_shown_as_escapes():
    class Odd(toy.Ramps):
        def row(self, index):
            return {"file": "a\udcff\x1b[31m", "index": 99}

    (row,) = rows_of(Odd(1))
    assert row["index"] == 0
    assert row["file"].isprintable()
    row["file"].encode()


def test_a_dataset_stays_open_until_recipe_or_data_change(params):
    opened = OpenDatasets()
    first = opened.open(params, "train", "pairs")
    assert opened.open(params, "train", "pairs") is first
    assert opened.open(params, "validation", "pairs") is not first
    params.write_text(params.read_text().replace("crop_size: 12", "crop_size: 10"))
    second = opened.open(params, "train", "pairs")
    assert second is not first
    assert second.source.draw(0).pictures["x"].shape == (10, 10, 3)
    root = Path("data/prepared/pairs")
    write_pairs(root, 7)
    (root / "manifest.json").write_text(json.dumps({"sha256": "prepared again"}))
    assert len(opened.open(params, "train", "pairs").rows) == 7


def test_only_some_datasets_stay_open(tmp_path):
    opened = OpenDatasets()
    params = [tmp_path / f"{place}.yaml" for place in range(CAPACITY + 1)]
    for one in params:
        toy_recipe(tmp_path).rename(one)
    datasets = [opened.open(one, "train", "ramps") for one in params]
    assert opened.open(params[-1], "train", "ramps") is datasets[-1]
    assert opened.open(params[0], "train", "ramps") is not datasets[0]


def test_data_that_are_not_prepared(params):
    os.rename("data/prepared/pairs", "data/prepared/other")
    for act in (lambda: OpenDatasets().open(params, "train", "pairs"),
                lambda: statistics(Path("data/prepared/pairs")),
                lambda: left_out(Path("data/prepared/pairs"))):  # fmt: skip
        with pytest.raises(UserError, match="dvc repro prepare@pairs"):
            act()


def test_ten_thousand_rows_and_a_search_take_no_time(tmp_path):
    dataset = OpenDatasets().open(toy_recipe(tmp_path, 10_000), "train", "ramps")
    start = time.perf_counter()
    rows, left = rows_of(dataset.source.data), dataset.matching("777")
    assert time.perf_counter() - start < 1
    assert len(rows) == 10_000
    assert left == [index for index in range(10_000) if "777" in str(index)]


def test_captions_and_names():
    example = {"x": np.array([[[-1.0, 0.25]]], np.float32), "word": "a\nb", "index": 3}
    assert caption("x vectors", example) == "float32 (1, 1, 2), -1 to 0.25"
    assert caption("annotated", example) == ""
    rows = {row["name"]: row for row in all_names(example)}
    assert rows["x"]["mean"] == "-0.375"
    assert rows["word"]["min"] == "a\\nb"
    assert rows["index"]["shape"] == "()"


def test_statistics_are_tables_with_a_column_for_each_split(tmp_path):
    joints = {"nose": {"visible": 3, "hidden": 1}}
    content = {
        "train": {"images": 3000, "annotated": True, "share": 0.25, "keypoints": joints, "rejected": {}},
        "validation": {"images": 20, "annotated": False, "rejected": {}},
    }
    (tmp_path / "statistics.json").write_text(json.dumps(content))
    counts, keypoints = statistics(tmp_path)
    assert counts.header == ["counts", "train", "validation"]
    assert keypoints.header == ["keypoints", "train", "validation"]
    assert counts.rows == [["images", "3,000", "20"], ["annotated", "yes", "no"], ["share", "0.25", ""]]
    assert keypoints.rows == [["nose.visible", "3", ""], ["nose.hidden", "1", ""]]


@pytest.mark.parametrize("text", ["[1]", '{"train": 3}', "no json"])
def test_statistics_that_are_none(text, tmp_path):
    (tmp_path / "statistics.json").write_text(text)
    with pytest.raises(UserError, match=r"statistics\.json.*dvc repro prepare@"):
        statistics(tmp_path)


def test_plots_are_as_wide_as_the_page_shows_them(tmp_path):
    (tmp_path / "plots").mkdir()
    for name, size in {"wide_one": (100, 2 * WIDEST, 3), "small": (30, 40, 3)}.items():
        cv2.imwrite(str(tmp_path / f"plots/{name}.png"), np.zeros(size, np.uint8))
    assert {title: pixels.shape for title, pixels in plots(tmp_path).items()} == {
        "small": (30, 40, 3), "wide one": (50, WIDEST, 3)
    }  # fmt: skip
    assert plots(tmp_path / "elsewhere") == {}


def test_records_left_out_are_counted_by_reason(tmp_path):
    root = tmp_path / "people"
    root.mkdir()
    records = [("a.json", "annotation", n, "no area", f"box {n}") for n in range(3)]
    records.append(("a.json", "image", 7, "unreadable", "a,b"))
    write_rejected(root / "rejected.csv", COLUMNS, [])
    assert left_out(root).reasons == {}
    write_rejected(root / "rejected.csv", COLUMNS, records)
    told = left_out(root)
    assert (told.reasons, told.stopped) == ({"no area": 3, "unreadable": 1}, False)
    assert told.rows[3] == dict(zip(COLUMNS, ("a.json", "image", "7", "unreadable", "a,b"), strict=True))
    write_rejected(tmp_path / "people.rejected.csv", COLUMNS, records[3:])  # of a preparation that stopped
    told = left_out(root)
    assert (told.reasons, told.stopped) == ({"unreadable": 1}, True)
