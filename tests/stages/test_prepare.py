import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from prepared_files import content, rows, write_entry
from pycocotools.coco import COCO

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.formats.coco import KEYPOINTS, SKELETON
from figura.preparation.datasets import read_dataset
from stages.prepare import main
from tests.real_people import REAL, needs_real

pytestmark = pytest.mark.usefixtures("project")

PREPARED = Path("data/prepared/people")
COCO_SECTION = {"images": "images", "annotations": "annotations.json", "shares": {"validation": 0.3}}
SYNTHETIC_SECTION = {
    "image_size": 64, "jpeg_quality": 90, "scenes": {"train": 5, "validation": 2, "test": 1},
    "identities": {"train": 6, "validation": 3, "test": 2}, "people_per_scene": {"1": 0.5, "2": 0.5},
    "objects_per_scene": {"1": 1.0}, "height_range": [0.5, 0.9],
    "views": {"front": 0.5, "back": 0.2, "side": 0.3}, "poses": {"standing": 1.0},
    "max_overlap": 0.3, "cut_share": 0.1, "crowd_share": 0.2, "limb_thickness": 1.2, "head_size": 1.2, "clutter": 5,
}  # fmt: skip


def write_params(**changes):
    entry = {"kind": "coco", "source": "raw", "seed": 7, "max_rejected": 0.0, "coco": COCO_SECTION, **changes}
    write_entry("people", entry)


def image(number):
    return {"id": number, "file_name": f"{number:03}.jpg", "width": 48, "height": 32, "license": 3}


def annotation(number, **changes):
    keypoints = [20.5, 10, 2, 22, 9, 1] + [0] * 45
    return {
        "id": number, "image_id": number % 20 + 1, "category_id": 1, "iscrowd": 0, "bbox": [5, 5, 20, 25.5],
        "area": 250, "segmentation": [[5, 5, 25, 5, 25, 30]], "keypoints": keypoints, "num_keypoints": 2,
        "mood": "fine", **changes,
    }  # fmt: skip


def write_raw(images=range(1, 31), annotations=None, folder="raw", name="annotations.json"):
    """Thirty images, of which 21 to 30 are empty, and forty persons; ids come in falling order."""
    pictures = Path(folder) / "images"
    pictures.mkdir(parents=True, exist_ok=True)
    for number in images:
        pixels = np.random.default_rng(number).integers(0, 256, (32, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(pictures / f"{number:03}.jpg")
    records = [annotation(number) for number in range(40, 0, -1)] if annotations is None else annotations
    document = {
        "info": {"year": 2017},
        "images": [image(number) for number in sorted(images, reverse=True)],
        "annotations": records,
        "categories": [{"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}, {"id": 5, "name": "ball"}],
    }
    (Path(folder) / name).write_text(json.dumps(document))
    return document


def load(split):
    return json.loads((PREPARED / f"{split}.json").read_text())


def test_prepared_folder(capsys):
    document = write_raw()
    assert run(main, ["people"]) == 0
    splits, stored = {split: load(split) for split in ("train", "validation")}, content(PREPARED / "images")
    for key in ("images", "annotations"):
        records = [record for one in splits.values() for record in one[key]]
        if key == "images":
            for split, one in splits.items():
                for record in one["images"]:
                    name = Path(record["file_name"])
                    assert name.parent.name == split
                    assert stored[record["file_name"]] == Path("raw/images", name.name).read_bytes()
            records = [record | {"file_name": Path(record["file_name"]).name} for record in records]
        assert sorted(records, key=lambda one: one["id"]) == sorted(document[key], key=lambda one: one["id"])
    for split, one in splits.items():
        assert one["info"] == document["info"]
        person = {**document["categories"][0], "skeleton": [list(pair) for pair in SKELETON]}
        assert one["categories"] == [person, *document["categories"][1:]]
        for key in ("images", "annotations"):
            numbers = [record["id"] for record in one[key]]
            assert numbers == sorted(numbers)
        assert {record["image_id"] for record in one["annotations"]} <= {record["id"] for record in one["images"]}
        assert len(COCO(str(PREPARED / f"{split}.json")).getImgIds()) == len(one["images"])
    assert 3 <= len(splits["validation"]["images"]) <= 16  # 9 expected, standard deviation 2.5
    assert (PREPARED / "rejected.csv").read_text() == "file,kind,id,reason,detail\n"
    assert sorted(path.name for path in PREPARED.parent.iterdir()) == ["people"]
    named = json.loads((PREPARED / "manifest.json").read_text())
    assert named["files"] == 30 + 5
    assert {name for name in named["hashes"] if "/" in name} == {"images/train.zip", "images/validation.zip"}
    assert named["sha256"] in capsys.readouterr().out
    first = content(PREPARED)
    assert run(main, ["people"]) == 0
    assert content(PREPARED) == first
    assert "plots/people.png" in first


def test_manifest_names_the_data():
    names = set()
    for mood in ("fine", "fine", "sad"):
        write_raw(annotations=[annotation(1, mood=mood)])
        assert run(main, ["people"]) == 0
        names.add((PREPARED / "manifest.json").read_text())
        assert "drawn" not in json.loads((PREPARED / "manifest.json").read_text())
    assert len(names) == 2


def test_statistics():
    extra = [
        annotation(41, iscrowd=1, keypoints=[0] * 51, num_keypoints=0),
        annotation(42, category_id=5),
        annotation(43, image_id=21, keypoints=[0] * 51, num_keypoints=0, bbox=[0, 0, 10, 10.5]),
    ]
    write_raw(annotations=[annotation(number) for number in range(1, 41)] + extra)
    assert run(main, ["people"]) == 0
    both = json.loads((PREPARED / "statistics.json").read_text()).values()
    totals = {key: sum(one[key] for one in both) for key in ("images", "persons", "crowds", "other_objects")}
    assert totals == {"images": 30, "persons": 41, "crowds": 1, "other_objects": 1}
    assert sum(one["persons_with_keypoints"] for one in both) == 40
    histogram = {str(count): sum(one["persons_per_image"].get(str(count), 0) for one in both) for count in range(3)}
    assert histogram == {"0": 9, "1": 1, "2": 20}
    visibilities = ("unlabelled", "hidden", "visible")
    seen = {
        joint: [sum(one["keypoint_visibility"][joint][how] for one in both) for how in visibilities]
        for joint in ("nose", "left_eye", "right_eye")
    }
    assert seen == {"nose": [0, 0, 40], "left_eye": [0, 40, 0], "right_eye": [40, 0, 0]}
    assert max(one["person_height_quantiles"]["1.00"] for one in both) == 25.5
    assert min(one["person_height_quantiles"]["0.00"] for one in both) == 10.5


def broken_picture():
    path = Path("raw/images/003.jpg")
    path.write_bytes(path.read_bytes()[:-200])


def broken_annotation():
    document = json.loads(Path("raw/annotations.json").read_text())
    document["annotations"][-2] |= {"bbox": None, "keypoints": [0] * 51, "segmentation": []}  # id 2, on image 3
    Path("raw/annotations.json").write_text(json.dumps(document))


BROKEN = {
    "truncated JPEG": (broken_picture, [("image", "3", "image file broken")]),
    "no box": (broken_annotation, [("annotation", "2", "box is not four numbers")]),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_records_are_dropped_and_listed(kind):
    write_raw()
    write_params(max_rejected=0.05)
    damage, expected = BROKEN[kind]
    damage()
    assert run(main, ["people"]) == 0
    listed = rows(PREPARED / "rejected.csv")
    assert [(row["kind"], row["id"], row["reason"]) for row in listed] == expected
    assert {row["file"] for row in listed} == {"annotations.json"}
    images = [record for split in ("train", "validation") for record in load(split)["images"]]
    annotations = [record for split in ("train", "validation") for record in load(split)["annotations"]]
    on_image_3 = 2 if expected[0][0] == "image" else 0  # annotations of the rejected image are not listed again
    assert len(images) + len(annotations) == 70 - len(expected) - on_image_3
    assert len(content(PREPARED / "images")) == len(images)
    counted = [one["rejected"] for one in json.loads((PREPARED / "statistics.json").read_text()).values()]
    assert sum(sum(one.values()) for one in counted) == len(expected) + on_image_3
    assert sum(one.get("annotation of a rejected image", 0) for one in counted) == on_image_3


@pytest.mark.parametrize("kind", BROKEN)
def test_too_many_broken_records_leave_everything(kind, capsys):
    write_raw()
    assert run(main, ["people"]) == 0
    before = content(PREPARED)
    capsys.readouterr()
    damage, expected = BROKEN[kind]
    damage()
    assert run(main, ["people"]) == 1
    message = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(message) == 1
    assert f"datasets.people.max_rejected: {len(expected)} of 70 records" in message[0]
    assert expected[0][2] in message[0]
    assert "data/prepared/people.rejected.csv" in message[0]
    assert content(PREPARED) == before
    assert len(rows(Path("data/prepared/people.rejected.csv"))) == len(expected)
    assert sorted(path.name for path in PREPARED.parent.iterdir()) == ["people", "people.rejected.csv"]
    write_raw()
    assert run(main, ["people"]) == 0
    assert sorted(path.name for path in PREPARED.parent.iterdir()) == ["people"]


def test_a_category_that_cannot_be_printed(capsys):
    write_raw()
    path = Path("raw/annotations.json")
    path.write_text(path.read_text().replace('"ball"', '"\\ud800"').replace('"category_id": 1', '"category_id": 5', 1))
    assert run(main, ["people"]) == 0
    assert "\\ud800 1" in capsys.readouterr().out


def test_interrupted_run_leaves_everything(monkeypatch, capsys):
    write_raw()
    assert run(main, ["people"]) == 0
    before = content(PREPARED)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("figura.preparation.people.write_people", interrupt)
    assert run(main, ["people"]) == 130
    assert content(PREPARED) == before
    assert sorted(path.name for path in PREPARED.parent.iterdir()) == ["people"]


def test_killed_between_the_renames_is_repaired():
    write_raw()
    assert run(main, ["people"]) == 0
    before = content(PREPARED)
    PREPARED.rename(PREPARED.with_name(".people.old"))
    (PREPARED.parent / ".people.partial/images").mkdir(parents=True)
    Path("raw/annotations.json").write_text("{")
    assert run(main, ["people"]) == 1
    assert content(PREPARED) == before
    assert sorted(path.name for path in PREPARED.parent.iterdir()) == ["people"]
    (PREPARED.parent / ".people.rejected.x1y2z3w4.csv").touch()
    write_raw()
    assert run(main, ["people"]) == 0
    assert sorted(path.name for path in PREPARED.parent.iterdir()) == ["people"]


def test_ready_splits():
    write_raw(images=range(1, 21), folder="raw/a")
    write_raw(images=range(11, 31), annotations=[annotation(1, image_id=12)], folder="raw/b", name="other.json")
    write_params(
        coco={
            "images": {"train": "a/images", "validation": "b/images"},
            "annotations": {"train": "a/annotations.json", "validation": "b/other.json"},
            "shares": None,  # as `dvc exp run -S ...shares=null` leaves it
        }
    )
    assert run(main, ["people"]) == 0
    assert [record["id"] for record in load("train")["images"]] == list(range(1, 21))
    assert [record["id"] for record in load("validation")["images"]] == list(range(11, 31))
    assert len(load("train")["annotations"]) == 40
    assert len(load("validation")["annotations"]) == 1


def test_drawn_people():
    write_params(kind="synthetic", source="figura/synthetic", synthetic=SYNTHETIC_SECTION)
    assert run(main, ["people"]) == 0
    statistics = json.loads((PREPARED / "statistics.json").read_text())
    assert [statistics[split]["images"] for split in ("train", "validation")] == [5, 2]
    assert statistics["train"]["persons"] >= 5
    assert not rows(PREPARED / "rejected.csv")
    assert not (PREPARED / "repaired.csv").exists()
    assert len(content(PREPARED / "images/train")) == 5


# --- the entry in data/params.yaml ---


def test_without_a_name_the_datasets_are_listed(capsys):
    assert run(main, []) == 1
    assert capsys.readouterr().err == "error: which dataset? data/params.yaml has people\n"


@pytest.mark.parametrize("text", ["datasets: [", "datasets: 5", "", "datasets: {../x: {}}"])
def test_faulty_params(text):
    Path("data/params.yaml").write_text(text)
    with pytest.raises(UserError, match=r"data/params\.yaml"):
        read_dataset("../x")


# --- real data ---


@needs_real
def test_counts_on_real_data():
    write_params(source=str(REAL))
    assert run(main, ["people"]) == 0
    reference = COCO(str(REAL / "annotations.json"))
    every = reference.loadAnns(reference.getAnnIds())
    persons = reference.loadAnns(reference.getAnnIds(catIds=reference.getCatIds(["person"]), iscrowd=False))
    statistics = json.loads((PREPARED / "statistics.json").read_text()).values()
    assert not rows(PREPARED / "rejected.csv")
    assert not (PREPARED / "repaired.csv").exists()
    for key, expected in {
        "images": len(reference.getImgIds()),
        "persons": len(persons),
        "persons_with_keypoints": sum(any(one["keypoints"][2::3]) for one in persons),
        "crowds": sum(one["iscrowd"] for one in every),
    }.items():
        assert sum(one[key] for one in statistics) == expected
    assert sum(one["persons_per_image"].get("0", 0) for one in statistics) == len(reference.getImgIds()) - len(
        {one["image_id"] for one in persons}
    )
    records = [record for split in ("train", "validation") for record in load(split)["annotations"]]
    assert sorted(records, key=lambda one: one["id"]) == sorted(every, key=lambda one: one["id"])
