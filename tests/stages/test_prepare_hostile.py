"""Raw data of any kind of damage: what cannot be used is listed with its reason, and the rest is prepared."""

import json
import os
from pathlib import Path

import pytest
import toy
from pipeline.tiny_settings import own
from prepared_files import content as bytes_of
from prepared_files import rows, write_entry, write_picture

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import to_yaml
from figura.formats.coco import KEYPOINTS, read_head, read_records
from figura.formats.prepared import Manifest
from models.images.pairs import ImagePairs
from models.people.persons import Persons
from models.pose.scene_table import SceneTable
from models.super_resolution.patches import Patches
from stages import prepare, train

PREPARED = Path("data/prepared/mine")
HUGE = 10**400
RUNS = "masks dropped: run lengths do not fill the image"
JOINTS = [one for place in range(17) for one in (3 + place, 4 + place, 2)]


def write_params(kind="coco", max_rejected=0.9, **section):
    if kind == "coco":
        section = {"images": "images", "annotations": "annotations.json", "shares": {"validation": 0.3}} | section
    write_entry("mine", {"kind": kind, "source": "raw", "seed": 7, "max_rejected": max_rejected, kind: section})


@pytest.fixture(autouse=True)
def _project(project):
    """Make a project in an empty folder."""


def image(number, **changes):
    return {"id": number, "file_name": f"{number}.png", "width": 48, "height": 32} | changes


def annotation(number, **changes):
    record = {"id": number, "image_id": number, "category_id": 1, "bbox": [1, 1, 20, 20], "area": 400}
    return record | {"keypoints": JOINTS, "num_keypoints": 17, "iscrowd": 0} | changes


def write_coco(images=(), annotations=(), count=12):
    """Write twelve good images with a person each, and further records."""
    for number in range(1, count + 1):
        write_picture(f"raw/images/{number}.png", number)
    good = range(1, count + 1)
    content = {
        "images": [*map(image, good), *images],
        "annotations": [*map(annotation, good), *annotations],
        "categories": [{"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}],
    }
    Path("raw/annotations.json").write_text(json.dumps(content))


def repaired(kind):
    return [(row["record"], row["after"]) for row in rows(PREPARED / "repaired.csv") if row["kind"] == kind]


def prepared():
    assert run(prepare.main, ["mine"]) == 0
    return [(row["id"], row["reason"]) for row in rows(PREPARED / "rejected.csv")]


# --- one picture, one record ---


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("./2.png", None),
        ("a//../2.png", None),
        ("link.png", lambda path: path.symlink_to("2.png")),
        ("around.png", lambda path: path.symlink_to("../images/2.png")),
        ("2.png", None),
    ],
)
@pytest.mark.parametrize("annotated", [False, True])
def test_a_picture_counts_once(name, link, annotated, capsys):
    write_coco([image(20, file_name=name)], [annotation(20)] if annotated else [])
    if link:
        link(Path("raw/images") / name)
    assert prepared() == []
    told = "warning: 1 image files listed under two ids, both with annotations, which are joined: "
    assert (told in capsys.readouterr().out) is annotated
    if not annotated:
        assert repaired("images listed twice") == [("image 20", "image 2")]
    people = [one["image_id"] for split in ("train", "validation") for one in records(split, "annotations")]
    assert people.count(2) == 1 + annotated
    stored = [one["file_name"] for split in ("train", "validation") for one in records(split, "images")]
    assert sum(Path(one).name == "2.png" for one in stored) == 1


def test_equal_files_count_each_even_if_a_cache_has_linked_them():
    write_coco([image(20, file_name="hard.png")], [annotation(20)])
    Path("raw/images/hard.png").hardlink_to("raw/images/2.png")
    assert prepared() == []


def test_raw_data_on_another_disk(capsys):
    """A folder in the source that is a link to somewhere else is refused; the source itself may be one."""
    write_coco()
    Path("raw/images").rename("disk")
    Path("raw/images").symlink_to("../disk")
    assert run(prepare.main, ["mine"]) == 1
    assert "images leaves the source raw (a link to " in capsys.readouterr().err
    Path("raw/images").unlink()
    Path("disk").rename("raw/images")
    Path("raw").rename("far")
    Path("raw").symlink_to("far")
    assert prepared() == []


def records(split, section):
    return list(read_records(PREPARED / f"{split}.json", section))


def test_a_picture_without_a_pair_counts_once():
    for side in "AB":
        for number in range(4):
            write_picture(f"raw/train{side}/{number}.png", number)
    Path("raw/trainA/4.png").symlink_to("1.png")
    Path("raw/trainA/5.png").symlink_to("../trainB/1.png")  # of the other side
    write_params("unpaired", train="train", shares={"validation": 0.4})
    assert run(prepare.main, ["mine"]) == 0
    listed = [(row["file"], row["reason"], row["detail"]) for row in rows(PREPARED / "rejected.csv")]
    assert listed == [("a/4.png", "image file used twice", "a/4.png is the file of a/1.png")]


def test_a_pair_counts_once():
    for number in range(6):
        write_picture(f"raw/train/{number}.png", number)
    Path("raw/train/7.png").symlink_to("1.png")
    Path("raw/train/8.png").symlink_to("../train/2.png")
    write_params("paired", train="train", shares={"validation": 0.3})
    assert run(prepare.main, ["mine"]) == 0
    listed = [(row["file"], row["reason"], row["detail"]) for row in rows(PREPARED / "rejected.csv")]
    assert listed == [(f"{n}.png", "image file used twice", f"{n} is the file of {n - 6}") for n in (7, 8)]


# --- what is no regular file ---


def test_files_that_are_none_are_listed_and_not_waited_for():
    write_coco([image(number) for number in range(20, 24)])
    os.mkfifo("raw/images/20.png")
    Path("raw/images/21.png").symlink_to("21.png")
    Path("raw/images/22.png").symlink_to("/dev/zero")
    with Path("raw/images/23.png").open("wb") as file:
        file.truncate((1 << 30) + 1)
    missing = "image file missing"
    reasons = [missing, missing, "path leaves the data root", "image file broken"]
    assert prepared() == [(str(20 + index), reason) for index, reason in enumerate(reasons)]


def test_special_files_among_pairs_and_pictures():
    for number in range(5):
        write_picture(f"raw/train/{number}.png", number)
    os.mkfifo("raw/train/p.png")
    Path("raw/train/q.png").symlink_to("q.png")
    write_params("paired", train="train", shares={"validation": 0.3})
    assert run(prepare.main, ["mine"]) == 0
    listed = {row["file"]: row["detail"] for row in rows(PREPARED / "rejected.csv")}
    assert listed["p.png"] == "no regular file"
    assert "symbolic links" in listed["q.png"]
    assert len(listed) == 2
    write_params("images", train="train", shares={"validation": 0.3})
    assert run(prepare.main, ["mine"]) == 0
    assert {row["reason"] for row in rows(PREPARED / "rejected.csv")} == {"image file missing"}


@pytest.mark.parametrize("listing", ["annotations", "poses", "partition", "pairs"])
def test_lists_that_are_fifos_end_in_one_line(listing, capsys):
    write_coco()
    os.mkfifo("raw/fifo")
    if listing == "annotations":
        write_params(annotations="fifo")
    else:
        write_picture("raw/Img/img/WOMEN/a/id_00000002/02_1_front.jpg", 1)
        Path("raw/list.txt").write_text("1\nheader\nimg/WOMEN/a/id_00000002/02_1_front.jpg id_00000002 train\n")
        section = {"partition": "list.txt", "shares": {"validation": 0.5}}
        section |= {"pairs": {"pairs": {"train": "fifo"}}}.get(listing, {listing: "fifo"})
        write_params("deepfashion", **section)
    assert run(prepare.main, ["mine"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "fifo" in err.splitlines()[-1]


def test_a_sparse_annotation_file_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "sparse.json"
    path.write_text('{"images": [{"id": 1, ')
    with path.open("ab") as file:
        file.truncate(1 << 36)  # 64 GiB
    with pytest.raises(UserError, match=r"sparse\.json: not valid JSON at character \d+: found no whole value: Exp"):
        read_head(path)
    (tmp_path / "deep.json").write_text('{"images": ' + "[" * 200000)
    with pytest.raises(UserError, match="too deeply nested"):
        read_head(tmp_path / "deep.json")


# --- numbers ---


def test_an_integer_of_five_thousand_digits_costs_its_record(tmp_path):
    write_coco([], [annotation(50) | {"image_id": 3, "area": 12345678}])
    text = Path("raw/annotations.json").read_text()
    Path("raw/annotations.json").write_text(text.replace("12345678", "9" * 5000))
    assert prepared() == []
    assert repaired("areas in another unit, or wrong") == [("annotation 50", "400")]


def test_names_that_are_no_text():
    write_coco(
        [image(20, file_name="caf\udce9.png"), image(21, file_name="a\0b.png"), image(22, file_name="\ud800.png")]
    )
    write_picture("raw/images/ok.png", 30)
    Path("raw/images/ok.png").rename("raw/images/caf\udce9.png")
    assert prepared() == [(number, "file name that no file can have") for number in ("21", "22")]
    found = [one["file_name"] for split in ("train", "validation") for one in records(split, "images")]
    assert any(name.endswith("caf\udce9.png") for name in found)
    split = next(split for split in ("train", "validation") if any(one["id"] == 20 for one in records(split, "images")))
    table = SceneTable(PREPARED, split, None, "person", {1: 0})
    assert table.image(list(table.image_ids).index(20)).shape == (32, 48, 3)


def test_pairs_with_names_that_are_no_text():
    for number, name in enumerate([b"caf\xe9", b"new\nline", b"\x1b[31m", b"x" * 200, b"$a_b^{$", b"5", b"6"]):
        write_picture("raw/train/new.png", number)
        os.rename(b"raw/train/new.png", b"raw/train/" + name + b".png")
    write_params("paired", train="train", shares={"validation": 0.3})
    assert run(prepare.main, ["mine"]) == 0
    assert rows(PREPARED / "rejected.csv") == []
    assert (PREPARED / "plots/pairs.png").is_file()


# --- what reads prepared data ---


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


def read_all():
    persons = Persons(PREPARED, "train", min_keypoints=1, min_height=1)
    return [persons.image(row) for row in range(len(persons))]


def test_a_flipped_bit_in_prepared_people_is_found():
    write_coco()
    assert prepared() == []
    read_all()
    table = SceneTable(PREPARED, "train", None, "person", {1: 0})
    archive = PREPARED / "images/train.zip"
    for path in (archive, PREPARED / "train.json", PREPARED / "facts.json"):
        before = path.read_bytes()
        flip(path, before.index(b"IEND" if path == archive else b"1"))  # JSON stays JSON, with another number
        found = "damaged: its checksum differs"
        if path != archive:
            found = "its SHA-256 is another than in .*manifest.json: one of them changed"
        with pytest.raises(UserError, match=rf"{path.name}: {found}; run `dvc repro --force prepare@mine`"):
            read_all()
        if path == archive:  # which was opened before
            with pytest.raises(UserError, match=r"train.zip: train/.*\.png is damaged: its checksum differs; run"):
                [table.image(row) for row in range(len(table.image_ids))]
        path.write_bytes(before)
    read_all()


def test_pictures_that_prepare_did_not_write_are_found():
    for number in range(6):
        write_picture(f"raw/train/{number}.png", number)
    write_params("paired", train="train", shares={"validation": 0.3})
    assert run(prepare.main, ["mine"]) == 0
    settings = {"root": str(PREPARED), "split": "train", "direction": "a_to_b", "crop_size": 16}
    write_picture(PREPARED / "train/9.png", 9)
    with pytest.raises(UserError, match=r"9\.png: image file unreadable \(.*manifest\.json does not list it; run"):
        list(ImagePairs(**settings))
    (PREPARED / "manifest.json").unlink()
    with pytest.raises(UserError, match=MISSING):
        ImagePairs(**settings)


MISSING = r"^data/prepared/mine/manifest\.json: no such file; run `dvc repro --force prepare@mine`$"


def test_people_whose_manifest_is_missing_are_not_read():
    write_coco()
    assert prepared() == []
    (PREPARED / "manifest.json").unlink()
    for read in (
        read_all,
        lambda: SceneTable(PREPARED, "train", None, "person", {1: 0}),
        lambda: Patches(root=str(PREPARED), split="train", scale=2, size=16),
    ):
        with pytest.raises(UserError, match=MISSING):
            read()


def test_manifests_without_files_and_damaged_ones(tmp_path):
    (tmp_path / "a").write_text("a")
    Manifest(tmp_path).check(tmp_path / "a")
    (tmp_path / "manifest.json").write_text('{"sha256": "0"}')
    assert Manifest(tmp_path).read_bytes(tmp_path / "a") == b"a"
    for hashes in ('{"a": 1}', '{"a": "00"}', '{"a": "x"}', "[]", "5"):
        (tmp_path / "manifest.json").write_text(f'{{"sha256": "0", "hashes": {hashes}}}')
        with pytest.raises(UserError, match=r"manifest\.json: no "):
            Manifest(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bbox": [0, 0, HUGE, 9]}, "annotation 3: boxes that are missing or empty, taken from the joints"),
        ({"keypoints": ["a"] * 51}, "annotation 3: joints that are no numbers, unlabelled"),
        ({"segmentation": {"size": [32, 48], "counts": "~~~~"}}, f"annotation 3: {RUNS}"),
        ({"image_id": None}, "annotation 3: annotation without image"),
        ({"person_id": HUGE}, "annotation 3: person_id that is no whole number"),
    ],
)
def test_prepared_files_by_hand_are_checked_record_by_record(tmp_path, changes, message):
    content = {"images": [image(1), image(2), image(3)], "categories": [{"id": 1, "name": "person"}]}
    content["annotations"] = [annotation(1), annotation(2), annotation(3) | changes]
    (tmp_path / "train.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"train.json: {message}"):
        Persons(tmp_path, "train", min_keypoints=1, min_height=1)


# --- trainings on prepared data that is not right ---


def spoil(split, listed=False, **values):
    """Change the first person with joints, or everybody, as another program may; unless `listed`, no hash is known."""
    path = PREPARED / f"{split}.json"
    document = json.loads(path.read_text())
    for one in document["annotations"] if values.get("iscrowd") else document["annotations"][:1]:
        one |= values
    path.write_text(json.dumps(document))
    manifest = PREPARED / "manifest.json"
    if not listed:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"hashes": {}}))


@pytest.mark.parametrize(
    ("recipe", "changes", "harm", "expected"),
    [
        ("vunet", {}, lambda: (PREPARED / "train.json").unlink(), ["train.json", "dvc repro prepare@mine"]),
        (
            "vunet", {"train.init_from": {"run": "runs/nowhere"}, "data.common.min_height": 1}, lambda: None,
            ["runs/nowhere/model/generator.safetensors: no such file"],
        ),
        (
            "pose", {}, lambda: spoil("train", listed=True, iscrowd=1),
            ["train.json: its SHA-256 is another than in", "prepare@mine"],
        ),
        (
            "pose", {}, lambda: spoil("validation", id=424242, bbox=[1, 1, 0, 20]),
            ["validation.json: annotation 424242", "has no area"],
        ),
        (
            "pose", {}, lambda: spoil("train", iscrowd=1),
            ["train.json: none of ", "images has", "min_keypoint_annotations"],
        ),
    ],
)  # fmt: skip
def test_a_training_ends_in_one_error_and_loses_nothing(recipe, changes, harm, expected, capsys):
    write_coco()
    assert prepared() == []
    root = {"data.common.root": str(PREPARED)}
    content = toy.shipped({"vunet": "params.yaml", "pose": "recipes/pose.yaml"}[recipe])
    Path("recipe.yaml").write_text(to_yaml(toy.changed(root | own(recipe, "settings") | changes, content)))
    for earlier in ("model/weights", "history/losses.csv"):
        Path(f"runs/mine/{earlier}").parent.mkdir(parents=True)
        Path(f"runs/mine/{earlier}").write_text("of an earlier run")
    harm()
    before = bytes_of(Path())
    capsys.readouterr()
    assert run(train.main, ["recipe.yaml", "runs/mine"]) == 1
    said = capsys.readouterr().err
    assert said.count("error:") == 1
    for words in expected:
        assert words in said
    assert before.items() <= bytes_of(Path()).items()
