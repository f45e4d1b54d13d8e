"""`figura init --data`: what is said of folders of data, and that the projects written for them check and prepare."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from dvc.utils.hydra import apply_overrides
from people_of_noise import prepared
from pictures_by_hand import noise, write
from pipeline.project import ENVIRONMENT
from real_people import REAL

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml
from figura.commands import check, init
from figura.commands.raw_folder import look
from stages import prepare

COUNT = 24


def flat(height: int, width: int, seed: int) -> np.ndarray:
    """A picture of three colours."""
    picture = np.full((height, width, 3), (0, 0, 170), dtype=np.uint8)
    picture[seed % height :, : width // 2] = (0, 200, 0)
    return picture


def pictures(folder: Path, count: int = COUNT, height: int = 40, width: int = 60, first: int = 0) -> None:
    for number in range(first, first + count):
        write(folder / f"{number}.png", noise(height, width, seed=number))


def side_by_side(folder: Path, count: int = COUNT) -> None:
    for number in range(count):
        write(folder / f"{number}.png", np.hstack([noise(128, 128, seed=number), flat(128, 128, number)]))


def two_folders(folder: Path) -> None:
    pictures(folder / "train/a", height=64, width=64)
    pictures(folder / "train/b", height=64, width=64)
    pictures(folder / "test/a", 3, 64, 64)
    pictures(folder / "test/b", 3, 64, 64)


def sets(folder: Path) -> None:
    pictures(folder / "trainA", COUNT + 1, 70, 90)
    pictures(folder / "trainB", COUNT, 70, 90, first=500)


def sets_of_names(folder: Path) -> None:
    pictures(folder / "horses")
    pictures(folder / "zebras")


def splits_of_names(folder: Path) -> None:
    for name in ("train/photos", "train/masks", "val/photos", "val/masks"):
        pictures(folder / name, height=64, width=64)


def splits_in_longer_names(folder: Path) -> None:
    pictures(folder / "DIV2K_train_HR")
    pictures(folder / "DIV2K_train_LR_bicubic/X2", height=20, width=30, first=100)
    pictures(folder / "Valid", 3, first=200)


def smaller_pictures_beside(folder: Path) -> None:
    for number in range(COUNT):
        picture = cv2.resize(noise(5, 6, seed=number), (60, 40))
        write(folder / f"gt/{number}.png", picture)
        write(folder / f"lq/X2/{number}x2.png", cv2.resize(picture, (30, 20), interpolation=cv2.INTER_AREA))
        write(folder / f"lq/X4/{number}x4.png", cv2.resize(picture, (15, 10), interpolation=cv2.INTER_AREA))


def other_pictures_of_the_same_names(folder: Path) -> None:
    pictures(folder / "seq1")
    pictures(folder / "seq2", height=20, width=30)


def a_mate_is_missing(folder: Path) -> None:
    two_folders(folder)
    (folder / "train/b/7.png").unlink()


def sets_of_other_sizes(folder: Path) -> None:
    pictures(folder / "A", height=64, width=64)
    pictures(folder / "B", height=32, width=32)


def pairs_of_other_names(folder: Path) -> None:
    for number in range(10, 10 + COUNT):
        write(folder / f"A/0{number}_label.png", flat(64, 64, number))
        write(folder / f"B/0{number}_photo.png", noise(64, 64, seed=number))


def coco(folder: Path) -> None:
    prepared(folder, [None] * COUNT)
    for name in ("validation.json", "test.json", "manifest.json"):
        (folder / name).unlink()
    (folder / "train.json").rename(folder / "persons.json")


def boxes(folder: Path) -> None:
    coco(folder)
    content = json.loads((folder / "persons.json").read_text())
    for one in content["annotations"]:
        del one["keypoints"]
    (folder / "persons.json").write_text(json.dumps(content))


def latest(folder: Path) -> None:
    coco(folder)
    (folder / "persons.json").rename(folder / "latest_intervals.json")


def roboflow(folder: Path) -> None:
    for split in ("training", "valid", "Test"):
        coco(folder / split)
        (folder / split / "persons.json").rename(folder / split / "_annotations.coco.json")
        for picture in (folder / split / "images").iterdir():
            picture.rename(folder / split / picture.name)
        (folder / split / "images").rmdir()


def with_images(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    coco(folder)
    content = json.loads((folder / "persons.json").read_text())
    for one in content["images"]:
        change(one)
    (folder / "persons.json").write_text(json.dumps(content))


def windows(folder: Path) -> None:
    with_images(folder, lambda one: one.update(file_name=f"images\\{one['file_name']}"))


def lvis(folder: Path) -> None:
    with_images(folder, lambda one: one.update(coco_url=f"http://images.cocodataset.org/{one.pop('file_name')}"))


def renamed(folder: Path) -> None:
    coco(folder)
    for number, picture in enumerate(sorted((folder / "images").iterdir())):
        place = folder / f"images/{number % 3}/{picture.stem}.PNG"
        place.parent.mkdir(exist_ok=True)
        picture.rename(place)


def yolo(folder: Path) -> None:
    (folder / "data.yaml").write_text("names: [cup]\ntrain: images/train\nval: images/val\n")
    for split, count in (("train", COUNT), ("val", 4)):
        pictures(folder / "images" / split, count)
        for number in range(count):
            label = folder / f"labels/{split}/{number}.txt"
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text("0 0.5 0.5 0.4 0.4\n")


def nested(folder: Path) -> None:
    side_by_side(folder / "unzipped/pairs/train")
    side_by_side(folder / "unzipped/pairs/val", 2)
    for beside in ("__MACOSX/pairs/._0.png", "unzipped/README.txt", "unzipped/pairs.zip"):
        (folder / beside).parent.mkdir(parents=True, exist_ok=True)
        (folder / beside).touch()


def mixture(folder: Path) -> None:
    yolo(folder)
    coco(folder)


def halves(folder: Path) -> None:
    side_by_side(folder, 12)
    pictures(folder, 12, first=100)


def halves_of_odd_width(folder: Path) -> None:
    side_by_side(folder, 12)
    pictures(folder, 12, height=321, width=481, first=100)


def video(folder: Path) -> None:
    writer = cv2.VideoWriter(str(folder / "my clip.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 25, (32, 32))
    writer.write(noise(32, 32))
    writer.release()


FOUND = {
    side_by_side: ("pix2pix", "paired", {"train": ".", "shares": {"validation": 0.2, "test": 0.2}},
        r"24 A\|B pictures, pairs side by side, 128 x 128 pixels each", {"crop_size": 128, "direction": "b_to_a"}),
    two_folders: ("pix2pix", "paired", {"train": "train", "test": "test", "shares": {"validation": 0.2}},
        r"27 pairs, files of the same names \(train 24, test 3\), 64 x 64", {"crop_size": 64, "direction": "a_to_b"}),
    sets: ("unpaired", "unpaired", {"train": "train", "shares": {"validation": 0.2, "test": 0.2}},
        "two sets of pictures without pairs, A and B: 25 and 24 for train, 90 x 70", {"crop_size": 64}),
    sets_of_names: ("super_resolution", "images", {"train": ".", "shares": {"validation": 0.2, "test": 0.2}},
        r"48 pictures without annotations, 60 x 40 pixels\nthey lie in horses and zebras: .*, name the folders A and B",
        {"size": 32}),
    splits_of_names: ("super_resolution", "images",
        {"train": "train", "validation": "val", "shares": {"test": 0.2}},
        r"96 pictures without annotations .*\nthey lie in masks and photos: if .*, name the folders A and B", {}),
    splits_in_longer_names: ("super_resolution", "images",
        {"train": "DIV2K_train_HR", "validation": "Valid", "shares": {"test": 0.2}},
        r"27 pictures .* 60 x 40 pixels\nleft out: 24 pictures outside of DIV2K_train_HR, Valid", {"size": 32}),
    smaller_pictures_beside: ("super_resolution", "images",
        {"train": "gt", "shares": {"validation": 0.2, "test": 0.2}},
        r"24 pictures .* 60 x 40 pixels\nlq/X2, lq/X4: the same pictures, smaller, .*: left out\nleft out: 48 pictures",
        {"size": 32}),
    other_pictures_of_the_same_names: ("super_resolution", "images",
        {"train": ".", "shares": {"validation": 0.2, "test": 0.2}},
        r"48 pictures without annotations, .*\nthey lie in seq1 and seq2", {}),
    a_mate_is_missing: ("pix2pix", "paired", {"train": "train", "test": "test", "shares": {"validation": 0.2}},
        r"26 pairs, (.*\n)+no pair: a/7\.png: missing partner, no image '7' in b", {"crop_size": 64}),
    sets_of_other_sizes: ("unpaired", "unpaired", {"train": ".", "shares": {"validation": 0.2, "test": 0.2}},
        r"without pairs, .*\nno pair: A/0\.png and others: A and B differ in size, 64 x 64 and 32 x 32", {}),
    pairs_of_other_names: ("unpaired", "unpaired", {"train": ".", "shares": {"validation": 0.2, "test": 0.2}},
        r"without pairs, .*\npairs are files of the same name: if 010_label\.png and 010_photo\.png are one", {}),
    coco: ("pose", "coco", {
        "images": "images", "annotations": "persons.json", "shares": {"validation": 0.2, "test": 0.2}
    }, r"COCO's JSON: 24 annotations \(24 with joints\) in 24 pictures, 60 x 80", {"side": 161}),
    latest: ("pose", "coco", {
        "images": "images", "annotations": "latest_intervals.json", "shares": {"validation": 0.2, "test": 0.2}
    }, r"24 annotations \(24 with joints\) in 24 pictures", {}),
    roboflow: ("pose", "coco", {
        "images": {"train": "training", "validation": "valid", "test": "Test"},
        "annotations": {
            "train": "training/_annotations.coco.json",
            "validation": "valid/_annotations.coco.json",
            "test": "Test/_annotations.coco.json",
        },
    }, r"in 72 pictures \(train 24, validation 24, test 24\), 60 x 80", {}),
    windows: ("pose", "coco", {
        "images": ".", "annotations": "persons.json", "shares": {"validation": 0.2, "test": 0.2}
    }, r"24 annotations \(24 with joints\) in 24 pictures, 60 x 80", {}),
    lvis: ("pose", "coco", {
        "images": "images", "annotations": "persons.json", "shares": {"validation": 0.2, "test": 0.2}
    }, r"24 annotations \(24 with joints\) in 24 pictures, 60 x 80", {}),
    renamed: ("pose", "coco", {
        "images": ".", "annotations": "persons.json", "shares": {"validation": 0.2, "test": 0.2}
    }, r"24 annotations \(24 with joints\) in 24 pictures, 60 x 80 pixels\nrecipe", {}),
    boxes: ("detection", "coco", {
        "images": "images", "annotations": "persons.json", "shares": {"validation": 0.2, "test": 0.2}
    }, r"COCO's JSON: 24 annotations, boxes without joints in 24 pictures", {"side": 161}),
    yolo: ("detection", "coco", {"annotations": "data.yaml", "shares": {"test": 0.2}},
        r"YOLO's data.yaml: 28 annotations, .* in 28 pictures \(train 24, validation 4\), 60 x 40", {"side": 161}),
    nested: ("pix2pix", "paired", {"train": "train", "validation": "val", "shares": {"test": 0.2}},
        r"26 A\|B pictures, pairs side by side \(train 24, validation 2\)", {"crop_size": 128, "direction": "b_to_a"}),
}  # fmt: skip
"""What writes the data -> the recipe, the kind, its section, what is said, and settings of the recipe's data."""
OF_REAL = {
    "coco_keypoints_real": ("pose", "coco", {
        "images": "images", "annotations": "annotations.json", "shares": {"validation": 0.2, "test": 0.2}
    }, r"365 annotations \(210 with joints\) in 97 pictures", {"side": 161}),
    "facades_real": ("pix2pix", "paired", {"train": "train", "validation": "val", "shares": {"test": 0.1}},
        r"500 A\|B pictures, .* \(train 400, validation 100\), 256 x 256 .*\nB has",
        {"crop_size": 256, "direction": "b_to_a"}),
    "leeds_sports_real": ("pose", "coco", {
        "images": "images",
        "annotations": {"train": "train.json", "validation": "validation.json", "test": "test.json"},
    }, r"4000 pictures \(train 3000, validation 500, test 500\)", {"side": 161}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


def starts(data: Path, expected: tuple, capsys: pytest.CaptureFixture[str]) -> str:
    """Begin the project `new` on data, compare it with what is expected; return the name of its dataset."""
    recipe, kind, section, said, settings = expected
    assert run(init.main, ["--data", str(data), "new"]) == 0
    told = capsys.readouterr().out
    assert re.search(said, told)
    assert told.splitlines()[-1].startswith("next: dvc repro")
    before = Path("new/data/params.yaml").read_text()
    ((name, entry),) = read_yaml(Path("new/data/params.yaml"))["datasets"].items()
    apply_overrides("new/data/params.yaml", [f"datasets.{name}.seed=7"])
    if len(entry["source"]) < 60:  # `dvc exp run -S` leaves the form as it is, but for a path longer than its lines
        assert Path("new/data/params.yaml").read_text() == before
    assert entry == {
        "kind": kind, "source": entry["source"], "seed": 7, "max_rejected": 0.05, kind: section
    }  # fmt: skip
    recipes = next(one["recipes"] for one in read_yaml(Path("new/dvc.yaml"))["vars"] if "recipes" in one)
    assert [*recipes] == [recipe]
    assert recipes[recipe]["data"] == name
    common = read_yaml(Path("new", recipes[recipe]["params"]))["data"]["common"]
    assert {key: common[key] for key in settings} == settings
    if kind == "coco":  # pictures of any size, not 192 px as figura's own
        assert "rescale: {absolute: [" in Path("new", recipes[recipe]["params"]).read_text()
    return name


def test_pictures_that_are_not_there_are_counted(tmp_path, capsys):
    coco(tmp_path / "mine")
    gone = sorted(tmp_path.glob("mine/images/[02]*.png"))  # the first picture of the file, too
    for picture in gone:
        picture.unlink()
    starts(tmp_path / "mine", FOUND[coco], capsys)
    assert run(init.main, ["--data", str(tmp_path / "mine"), "again"]) == 0
    assert f"{len(gone)} of these pictures are not there, such as {gone[0]}" in capsys.readouterr().out


@pytest.mark.parametrize("fill", FOUND, ids=lambda fill: fill.__name__)
def test_a_project_on_own_data(fill, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine").mkdir()
    fill(tmp_path / "mine")
    name = starts(tmp_path / "mine", FOUND[fill], capsys)
    monkeypatch.chdir(tmp_path / "new")
    assert run(prepare.main, [name]) == 0, capsys.readouterr().err
    assert run(check.main, []) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a.heic": "", "b.HEIC": "", "c.mov": ""}, "left out: 2 files of .heic, 1 files of .mov"),
        ({"a/1.xml": "<annotation>"}, "not read: 1.xml: XML; Pascal VOC's boxes of one picture; convert all of them"),
        ({"a/b/1.json": '{"size": {}, "objects": []}'}, "not read: 1.json: Supervisely's own format"),
        ({"a/b/1.json": '{"images": [], "annotations": []}'}, "not read: 1.json: COCO JSON; move it beside the folder"),
        ({f"labels/{number}.txt": "0 1 1 1 1" for number in range(COUNT)}, "not read: 0.txt: a text file; if it is a"),
        ({"README.txt": "my photos"}, "left out: 1 files of .txt"),
    ],
)  # fmt: skip
def test_what_lies_beside_plain_pictures_is_told(files, told, tmp_path, capsys):
    pictures(tmp_path / "mine")
    for name, text in files.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)
    assert run(init.main, ["--data", "mine", "new"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert told in [line[: len(told)] for line in lines]
    assert ("not read" in told) == any(line.startswith("not read: ") for line in lines)


def test_tables_of_other_tools_beside_plain_pictures_are_told(tmp_path: Path) -> None:
    pictures(tmp_path)
    (tmp_path / "labels.slp").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert any("labels.slp: it is HDF5" in line for line in look(tmp_path).seen)


@pytest.mark.parametrize("ends", [("", "_mask"), ("_HR", "_LR"), ("A", "B")])
def test_pictures_that_come_in_twos_are_told(ends: tuple[str, str], tmp_path: Path) -> None:
    for number in range(COUNT):
        for end in ends:
            write(tmp_path / f"{number}{end}.png", noise(20, 30, seed=number))
    first, second = (f"0{end}.png" for end in ends)
    assert look(tmp_path).seen[1].startswith(f"they come in twos, as {first} and {second}: ")


def test_annotations_of_validation_alone_are_those_of_train(tmp_path: Path) -> None:
    coco(tmp_path)
    (tmp_path / "persons.json").rename(tmp_path / "instances_val2017.json")
    found = look(tmp_path)
    assert found.section == {
        "images": "images", "annotations": "instances_val2017.json", "shares": {"validation": 0.2, "test": 0.2}
    }  # fmt: skip


def test_archives_that_were_not_unpacked_are_told(tmp_path: Path) -> None:
    pictures(tmp_path / "val2017")
    (tmp_path / "val2017.zip").touch()
    assert look(tmp_path).seen == ("24 pictures without annotations, 60 x 40 pixels",)
    (tmp_path / "annotations_trainval2017.zip").touch()
    assert look(tmp_path).seen[1:] == ("not unpacked: annotations_trainval2017.zip",)


def test_masks_alone_are_annotations(tmp_path: Path) -> None:
    coco(tmp_path)
    content = json.loads((tmp_path / "persons.json").read_text())
    content["annotations"] = [
        {key: one[key] for key in ("id", "image_id", "category_id")} | {"segmentation": [[1, 1, 9, 1, 9, 9]]}
        for one in content["annotations"]
    ]
    (tmp_path / "persons.json").write_text(json.dumps(content))
    assert look(tmp_path).recipe == "detection"


@pytest.mark.parametrize("folder", OF_REAL)
def test_a_project_on_real_data(folder, capsys):
    if not (data := REAL.with_name(folder)).is_dir():
        pytest.skip(f"no sample of real data at {data}")
    assert starts(data, OF_REAL[folder], capsys) == {"pose": "people", "pix2pix": "pairs"}[OF_REAL[folder][0]]


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (lambda folder: None, r"no pictures \(.*\) and no annotations; bring data there"),
        (lambda folder: (folder / "a.HEIC").write_bytes(b"1"), r"no pictures .*; left out: 1 files of .heic: convert"),
        (lambda folder: (folder / "a.zip").touch(), r"no pictures .*; left out: 1 files of .zip: .*, unpack archives"),
        (lambda folder: pictures(folder, 1), "found 1, and training needs at least 20 pictures, or pairs"),
        (video, r"my clip\.mp4 is a video, .*: `ffmpeg -i 'mine/my clip\.mp4' -r 1 'my clip_%05d\.jpg'` writes one a"),
        (mixture, "YOLO's data.yaml: .*; and COCO's JSON: .*: name a folder that has one of them"),
        (lambda folder: [yolo(folder), *(one.write_text("9 1 1 1 1") for one in folder.rglob("*.txt"))],
            r"no label can be used; the first, labels/train/0\.txt: 1: class is not one of data\.yaml: 9"),
        (lambda folder: [yolo(folder), (folder / "data.yaml").write_text("names: [cup]\nval: images/train\n")],
            r"YOLO's data\.yaml has no split train, but validation; give one this name"),
        *((fill, r"12 of 24 pictures look like A\|B pairs side by side, the others like single ones; name a folder")
            for fill in (halves, halves_of_odd_width)),
        (lambda folder: (folder / "results.json").write_text('[{"image_id": 1, "bbox": [0, 0, 1, 1], "score": 1}]'),
            r"COCO results, results\.json: write its entry as data/raw/README\.md says"),
    ],
)  # fmt: skip
def test_what_trains_nothing_gets_one_line(fill, message, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    fill(tmp_path / "mine")
    assert run(init.main, ["--data", "mine", "new"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(f"error: --data mine: {message}", line)
    assert not (tmp_path / "new").exists()


def test_a_recipe_for_other_data(tmp_path, capsys):
    sets(tmp_path / "mine")
    assert run(init.main, ["--data", "mine", "--recipe", "pix2pix", "new"]) == 1
    assert "--recipe pix2pix: it learns from data of kind paired; " in capsys.readouterr().err
    pairs_of_other_names(tmp_path / "pairs")
    assert run(init.main, ["--data", "pairs", "--recipe", "pix2pix", "new"]) == 1
    assert "if 010_label.png and 010_photo.png are one, rename them, such as 010_photo.png; " in capsys.readouterr().err


def test_a_deep_network_and_its_weights(tmp_path, capsys):
    side_by_side(tmp_path / "mine")
    assert run(init.main, ["--data", "mine", "--recipe", "facades", "new"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "data.common.crop_size: 256" in said  # not 128, of the pictures: its network takes multiples of 256
    comment = "the comment at the top of recipes/photos/facades.yaml"
    assert f"next: bring weights/facades/metrics/lite0.safetensors, as {comment} says" in said


def test_data_inside_of_the_project_have_a_relative_path(tmp_path, capsys):
    pictures(tmp_path / "new/data/raw/my photos")
    assert run(init.main, ["--data", "new/data/raw/my photos", "new"]) == 0
    told = capsys.readouterr().out
    assert "    source: data/raw/my photos\n" in told
    assert "\nnext: dvc add 'data/raw/my photos' (" in told


@pytest.mark.parametrize("root", [".", "new"])
def test_a_project_inside_of_its_data_is_refused(root, tmp_path, monkeypatch, capsys):
    pictures(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    assert run(init.main, ["--data", ".", root]) == 1
    assert f"error: {root}: lies in its own data, ., which DVC refuses" in capsys.readouterr().err
    assert {path.suffix for path in Path().iterdir()} == {".png"}
