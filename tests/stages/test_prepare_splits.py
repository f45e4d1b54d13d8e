"""Splits by name and at random: people, image pairs, plain pictures."""

import json
import os
import re
import textwrap
from pathlib import Path

import pytest
from prepared_files import content, rows, write_entry, write_picture
from splits_by_hand import fraction

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.validation import validated
from figura.base.yaml12 import parse_yaml
from figura.formats.split_advice import splits_of
from figura.preparation.datasets import Dataset
from figura.preparation.splits import drawn_split, joined_groups
from models.people.persons import Persons
from models.super_resolution.patches import Patches
from stages.prepare import main

pytestmark = pytest.mark.usefixtures("project")

PREPARED = Path("data/prepared/mine")


def write_params(kind="coco", max_rejected=0.0, **section):
    entry = {"kind": kind, "source": "raw", "seed": 7, "max_rejected": max_rejected, kind: section}
    write_entry("mine", entry)


def write_people(name, numbers, identities=None, annotated=True):
    """Write a COCO file of images, each of which shows one person, or those of `identities`."""
    for number in numbers:
        write_picture(f"raw/images/{number:03}.png", number)
    images = [{"id": number, "file_name": f"{number:03}.png", "width": 48, "height": 32} for number in numbers]
    document = {"images": images, "categories": [{"id": 1, "name": "person"}]}
    if annotated:
        shown = [(number, person) for number in numbers for person in (identities or {}).get(number, [None])]
        document["annotations"] = [
            {
                "id": 1000 + index, "image_id": number, "category_id": 1, "iscrowd": 0, "bbox": [5, 5, 20, 25],
                "area": 400, "keypoints": [20, 10, 2] + [0] * 48, "num_keypoints": 1,
                **({} if person is None else {"person_id": person}),
            }
            for index, (number, person) in enumerate(shown)
        ]  # fmt: skip
    Path(f"raw/{name}").write_text(json.dumps(document))


def images_of(split):
    return {one["id"] for one in json.loads((PREPARED / f"{split}.json").read_text())["images"]}


# --- people ---


def test_people_with_a_file_for_each_split(capsys):
    write_people("a.json", range(1, 5))
    write_people("b.json", range(5, 8))
    write_people("c.json", range(8, 10))
    write_people("image_info.json", range(10, 14), annotated=False)
    write_params(
        images="images",
        annotations={"test-dev": "image_info.json", "train": "a.json", "validation": "b.json", "test": "c.json"},
    )
    assert run(main, ["mine"]) == 0
    expected = {"train": {1, 2, 3, 4}, "validation": {5, 6, 7}, "test": {8, 9}, "test-dev": {10, 11, 12, 13}}
    assert {split: images_of(split) for split in expected} == expected
    assert splits_of(PREPARED) == sorted(expected)
    printed = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    order = [printed.index(split) for split in ("train", "validation", "test", "test-dev")]
    assert order == sorted(order)
    assert {name.split("/")[0] for name in content(PREPARED / "images")} == set(expected)
    assert len(Persons(PREPARED, "test", min_keypoints=1, min_height=1)) == 2
    with pytest.raises(UserError, match=r"has the splits test, test-dev, train, validation \(did you mean 'test'\?\)"):
        Persons(PREPARED, "tests", min_keypoints=1, min_height=1)
    with pytest.raises(UserError, match=r"write its entry, `datasets\.other`, to data/params\.yaml, and run `dvc"):
        Persons(PREPARED.with_name("other"), "train", min_keypoints=1, min_height=1)


def test_shares_of_people_by_image():
    write_people("all.json", range(1, 61))
    write_people("more.json", range(61, 66))
    files = {"train": "all.json", "more": "more.json"}
    write_params(images="images", annotations=files, shares={"validation": 0.3, "test": 0.2})
    assert run(main, ["mine"]) == 0
    assert images_of("more") == set(range(61, 66))
    chosen = {"validation": lambda f: f < 0.3, "test": lambda f: 0.3 <= f < 0.5, "train": lambda f: f >= 0.5}
    for split, holds in chosen.items():
        assert images_of(split) == {number for number in range(1, 61) if holds(fraction(f"{number:03}.png"))}
        assert len(images_of(split)) > 5


def test_an_image_stays_in_its_split_if_others_are_added():
    """Tools number the images of an export anew, in the order of their names."""

    def names_of(split):
        return {Path(one["file_name"]).name for one in json.loads((PREPARED / f"{split}.json").read_text())["images"]}

    write_people("all.json", range(21, 61))
    write_params(images="images", annotations="all.json", shares={"validation": 0.4})
    assert run(main, ["mine"]) == 0
    before = names_of("train"), names_of("validation")
    write_people("all.json", range(1, 61))
    document = json.loads(Path("raw/all.json").read_text())
    for one in document["images"]:
        one["id"] += 1000
    for one in document["annotations"]:
        one["image_id"] += 1000
    Path("raw/all.json").write_text(json.dumps(document))
    assert run(main, ["mine"]) == 0
    assert before[0] <= names_of("train")
    assert before[1] <= names_of("validation")


def test_images_that_share_a_person_belong_to_one_split(capsys):
    """Person 1 is in images 1 and 2, person 2 in 2 and 3: so 1, 2 and 3 go together; the others in twos, or alone."""
    identities = {1: [1], 2: [1, 2], 3: [2]}
    identities |= {number: [100 + number // 2] for number in range(4, 44)}
    write_people("all.json", range(1, 61), identities)
    write_params(images="images", annotations="all.json", shares={"validation": 0.4})
    assert run(main, ["mine"]) == 0
    keys = {1: "person 1", 2: "person 1", 3: "person 1"}
    keys |= {number: f"person {100 + number // 2}" for number in range(4, 44)}
    keys |= {number: f"{number:03}.png" for number in range(44, 61)}
    assert images_of("validation") == {number for number, key in keys.items() if fraction(key) < 0.4}
    facts = json.loads((PREPARED / "facts.json").read_text())["annotated"]
    assert sum(one["identities_seen_twice"] for one in facts.values()) == 22
    assert "go together: 43 images in 21 groups, at most 3 in one" in capsys.readouterr().out


def test_persons_whose_id_is_a_name_belong_to_one_split(capsys):
    identities = {number: [f"Ms {number // 4}"] for number in range(1, 41)}
    write_people("all.json", range(1, 41), identities)
    write_params(images="images", annotations="all.json", shares={"validation": 0.5})
    assert run(main, ["mine"]) == 0
    assert images_of("validation") == {n for n in range(1, 41) if fraction(f"person Ms {n // 4}") < 0.5}
    assert "repaired: 40 person_id that is no whole number" in capsys.readouterr().out


def test_groups_of_identities():
    shown = [(1, 5), (1, 9), (2, 9), (2, 3), (7, 8), (4, 8), (6, 1)]
    assert joined_groups(shown) == {1: 3, 2: 3, 7: 8, 4: 8, 6: 1}
    assert joined_groups([("b", 7), ("a", "x"), ("a", 7)]) == {"a": 7, "b": 7}  # numbers before texts


def test_a_further_share_leaves_validation_as_it_is():
    one, three = {"validation": 0.2}, {"extra": 0.3, "test": 0.1, "validation": 0.2}
    names = [f"{number}.png" for number in range(2000)]
    before, after = ([drawn_split(3, shares, name) for name in names] for shares in (one, three))
    changed = {(one, other) for one, other in zip(before, after, strict=True) if one != other}
    assert changed == {("train", "extra"), ("train", "test")}
    for split, share in (three | {"train": 0.4}).items():
        assert abs(after.count(split) / 2000 - share) < 0.05
    backwards = dict(reversed(three.items()))
    assert [drawn_split(3, backwards, name) for name in names] == after  # DVC does not see the order of keys


def test_an_empty_split_is_told_with_the_others(capsys):
    write_people("all.json", range(1, 4), {1: [1], 2: [1], 3: [1]})
    write_params(images="images", annotations="all.json", shares={"validation": 0.3})
    assert run(main, ["mine"]) == 1
    printed = capsys.readouterr()
    assert "has no image; the splits are train (" in printed.err
    assert "3 images in 1 groups, at most 3 in one" in printed.out


# --- image pairs ---


def test_shares_of_pairs_by_name():
    for number in range(40):
        write_picture(f"raw/all/a/{number}.png", number)
        write_picture(f"raw/all/b/{number}.jpg", number)
    write_picture("raw/all/a/alone.png", 0)
    write_params("paired", max_rejected=0.1, train="all", shares={"validation": 0.3, "test": 0.2})
    assert run(main, ["mine"]) == 0
    folders = {split: {Path(one).stem for one in content(PREPARED / split / "a")} for split in splits_of(PREPARED)}
    assert folders["validation"] == {str(number) for number in range(40) if fraction(number) < 0.3}
    assert folders["test"] == {str(number) for number in range(40) if 0.3 <= fraction(number) < 0.5}
    assert set().union(*folders.values()) == {str(number) for number in range(40)}
    assert {Path(one).stem for one in content(PREPARED / "test/b")} == folders["test"]
    assert [(row["file"], row["reason"]) for row in rows(PREPARED / "rejected.csv")] == [
        ("a/alone.png", "missing partner")
    ]


# --- plain pictures ---


def test_plain_pictures(capsys):
    for number in range(6):
        write_picture(f"raw/DIV2K_train_HR/{number:04}.png", number, (40 + number, 50))
    for number in range(6, 9):
        write_picture(f"raw/DIV2K_valid_HR/more/{number:04}.png", number)
    name = os.fsdecode(b"caf\xe9.png")
    Path("raw/DIV2K_valid_HR/more/0008.png").rename(Path("raw/DIV2K_valid_HR/more", name))
    Path("raw/DIV2K_train_HR/.hidden.png").touch()
    Path("raw/DIV2K_train_HR/readme.txt").touch()
    Path("raw/DIV2K_train_HR/9999.png").write_text("no picture")
    write_params("images", max_rejected=0.2, train="DIV2K_train_HR", validation="DIV2K_valid_HR")
    assert run(main, ["mine"]) == 0
    train = json.loads((PREPARED / "train.json").read_text())
    assert train["annotations"] == []
    assert [(one["id"], one["file_name"], one["height"]) for one in train["images"]] == [
        (number + 1, f"train/{number:04}.png", 40 + number) for number in range(6)
    ]
    assert content(PREPARED / "images")["train/0003.png"] == Path("raw/DIV2K_train_HR/0003.png").read_bytes()
    listed = rows(PREPARED / "rejected.csv")
    assert [(row["file"], row["reason"]) for row in listed] == [("DIV2K_train_HR", "image file broken")]
    assert "9999.png" in listed[0]["detail"]
    assert not list(PREPARED.glob(".*"))
    heights = json.loads((PREPARED / "statistics.json").read_text())["train"]["image_height_quantiles"]
    assert [heights[level] for level in ("0.00", "0.50", "1.00")] == [40, 42.5, 45]
    assert "train: 6 images" in capsys.readouterr().out
    for split, count in {"train": 6, "validation": 3}.items():
        patches = Patches(root=str(PREPARED), split=split, scale=4, size=16)
        assert len(patches) == count
        assert patches[0]["hq"].shape == (3, 16, 16)


def test_shares_of_plain_pictures_by_name():
    for number in range(30):
        write_picture(f"raw/photos/{number}.png", number)
    write_params("images", train="photos", shares={"validation": 0.3})
    assert run(main, ["mine"]) == 0
    names = {*content(PREPARED / "images/validation")}
    assert names == {f"{number}.png" for number in range(30) if fraction(f"{number}.png") < 0.3}
    assert len(content(PREPARED / "images/train")) == 30 - len(names)


def test_folders_of_pairs_may_lie_in_each_other():
    """All pictures below a folder count, so theirs may not; of pairs only those in it."""
    for number in range(2):
        write_picture(f"raw/all/{number}.png", number)
        write_picture(f"raw/all/val/more/{number}.png", number)
    write_params("paired", train="all", validation="./all//val/more")
    assert run(main, ["mine"]) == 0
    assert {split: len(content(PREPARED / split)) for split in splits_of(PREPARED)} == {"train": 2, "validation": 2}


# --- data/raw/README.md ---


def test_the_examples_of_the_readme_are_valid():
    page = (Path(__file__).parents[2] / "data/raw/README.md").read_text()
    blocks = [
        parse_yaml(textwrap.dedent(block), "README.md") for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    ]
    errors = ErrorCollector(Path("README.md"))
    for block in blocks:
        if "annotations" in block:
            block = {"mine": {"kind": "coco", "coco": block}}
        if "paired" in block:
            block = {"mine": {"kind": "paired", **block}}
        for name, entry in block.items():
            validated(Dataset, {"source": "x", "seed": 1, "max_rejected": 0.0, **entry}, errors, name)
    errors.raise_any()
    kinds = {
        entry["kind"] for block in blocks for entry in block.values() if isinstance(entry, dict) and "kind" in entry
    }
    assert kinds == {"coco", "market1501", "deepfashion", "images", "unpaired"}
    assert len(blocks) == 6
