"""Pictures and records from anywhere: whatever one of them holds costs this one alone, and one line says so."""

import json
import os
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import toy_photos
from PIL import Image

import figura
from figura.base.exit_status import run
from figura.base.raw_pictures import DARK
from figura.commands.predict import main
from figura.prediction.inputs import Photo
from figura.prediction.runner import Runner
from models.people.photos import PersonPhotos

PEOPLE = {"image_size": 16, "margin": 0.0, "min_keypoints": 1, "min_height": 1}


def write_picture(path: Path, value: int = 50) -> None:
    _, content = cv2.imencode(".png", np.full((6, 9, 3), value, np.uint8))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.tobytes())


def predict(given: tuple[str, str], *words: object) -> int:
    return run(main, [*given, *map(str, words)])


def bomb() -> bytes:
    """Return a PNG of 30,000 x 30,000 pixels in 109 KB."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 30000, 30000, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(9999)))


def jpeg() -> bytes:
    return cv2.imencode(".jpg", np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))[1].tobytes()


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 31)


UNREADABLE = {
    "a_fifo.png": (os.mkfifo, "no regular file"),
    "b_device.png": (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
    "c_itself.png": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    "d_sparse.png": (sparse, "has 2,147,483,648 bytes; at most 1,073,741,824 are allowed"),
    "e_bomb.png": (lambda path: path.write_bytes(bomb()), "no readable picture"),
    "f_cut.jpg": (lambda path: path.write_bytes(jpeg()[:2000]), "no readable picture"),
    "g_unlucky.png": (lambda path: write_picture(path, 13), "unlucky"),
}


@pytest.mark.parametrize("workers", [0, 3])
def test_what_is_no_picture_is_said_and_the_rest_is_done(workers, tmp_path, capsys):
    given = toy_photos.write_run(tmp_path)
    (tmp_path / "in").mkdir()
    for name, (write, _) in UNREADABLE.items():
        write(tmp_path / "in" / name)
    os.mkfifo(tmp_path / "clip.mp4")
    write_picture(tmp_path / "in/z.png")
    words = ["--workers", workers, "--output", tmp_path / "out"]
    assert predict(given, tmp_path / "in", tmp_path / "clip.mp4", *words) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"z.image.png", "predictions.csv"}
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "error: 8 of the inputs could not be used (see above); the others are done"
    said = [line for line in lines if line.startswith("skipped")]
    assert len(said) == len(UNREADABLE) + 1
    said.sort(key=lambda line: "clip.mp4" in line)  # a thread reads pictures
    for line, (name, (_, reason)) in zip(said, UNREADABLE.items(), strict=False):
        assert line.startswith(f"skipped: {tmp_path}/in/{name}: ")
        assert reason in line
    assert said[-1] == f"skipped: {tmp_path}/clip.mp4: no regular file"


def test_photos_are_read_upright_and_on_white_and_low_ones_are_counted(tmp_path, capsys):
    given = toy_photos.write_run(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    row = np.array([[10, 20, 30]], np.uint8)
    (tmp_path / "in").mkdir()
    Image.fromarray(row).save(tmp_path / "in/turned.png", exif=exif)
    Image.fromarray(np.dstack([row, [[255, 0, 255]]]).astype(np.uint8), "LA").save(tmp_path / "in/clear.png")
    Image.fromarray(row.astype(np.uint16) * 256).save(tmp_path / "in/low.tif")
    assert predict(given, tmp_path / "in", "--output", tmp_path / "out") == 0
    for name, red in {"turned": [[10], [20], [30]], "clear": [[10, 255, 30]], "low": [[10, 20, 30]]}.items():
        assert cv2.imread(str(tmp_path / f"out/{name}.image.png"))[..., 2].tolist() == red
    told = [
        "warning: 1 transparent pictures composed on white (e.g. clear)",
        "warning: 1 pictures of 16 bits cut to the upper byte (e.g. low)",
        f"warning: 1 {DARK} (e.g. low: its maximum is 30 of 255)",
    ]
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")] == told
    predictor = figura.load(given[1], recipe=given[0])
    with pytest.warns(UserWarning, match="pictures") as warned:
        assert predictor.predict(tmp_path / "in")[0].name == "clear"
    assert [f"warning: {one.message}" for one in warned] == told
    with Image.open(tmp_path / "in/clear.png") as opened, pytest.warns(UserWarning, match="1 transparent pictures"):
        predictor.predict(opened)


def test_files_of_a_folder_that_are_no_images_are_counted(tmp_path, capsys):
    given = toy_photos.write_run(tmp_path)
    write_picture(tmp_path / "in/a.png")
    for name in ("b.HEIC", "c.mp4", "deep/d.heic", ".hidden.txt"):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).touch()
    predictor = figura.load(given[1], recipe=given[0])
    with pytest.warns(UserWarning, match=r"^left out: 2 files of \.heic, 1 files of \.mp4$"):
        predictor.predict(str(tmp_path / "in/deep/.."))
    for _ in range(2):  # the second time, with results of the first in it
        assert predict(given, tmp_path / "in", "--output", tmp_path / "in/out") == 0
        assert "warning: left out: 2 files of .heic, 1 files of .mp4\n" in capsys.readouterr().err
    assert predict(given, tmp_path / "in/deep", "--output", tmp_path / "out") == 1
    assert "in it; left out: 1 files of .heic" in capsys.readouterr().err
    assert predict(given, tmp_path / "in/deep/d.heic", "--output", tmp_path / "out") == 1
    assert "d.heic: no readable picture: it is a HEIC picture: convert it to PNG or JPEG" in capsys.readouterr().err


NAMES = [
    b"caf\xe9.png", b"new\nline.png", b"\x1b[31mred.png", b"x" * 240 + b".png", b"x" * 239 + b"y.png",
    "é".encode() * 110 + b".png",
]  # fmt: skip


def test_names_of_any_bytes(tmp_path, capfd):
    given = toy_photos.write_run(tmp_path)
    for name in NAMES:
        write_picture(Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"in", name))))
    assert predict(given, tmp_path / "in", "--output", tmp_path / os.fsdecode(b"o\xe9")) == 0
    out, err = capfd.readouterr()
    assert "\x1b[31m" not in out + err
    results = {os.fsencode(path.name) for path in (tmp_path / os.fsdecode(b"o\xe9")).glob("*.png")}
    assert {b"caf\xe9.image.png", b"new\nline.image.png", b"\x1b[31mred.image.png"} < results
    assert len(results) == len(NAMES)
    names = pd.read_csv(tmp_path / os.fsdecode(b"o\xe9") / "predictions.csv")["name"]
    assert set(names[:4]) >= {r"caf\udce9", r"new\nline", r"\x1b[31mred"}


class Odd(toy_photos.Reds):
    """Fails for a dark photo, in three ways."""

    def examples(self, photo):
        match int(photo.pixels().max()):
            case 1:
                return [photo.faults[0]]
            case 2:
                raise MemoryError
            case 3:
                return [one | {"x": np.zeros((2, 6, 9), np.float32)} for one in super().examples(photo)]
        return super().examples(photo)


def test_a_bug_costs_one_photo_and_says_where_it_is(tmp_path, capsys):
    data = {"type": "test_hostile_photos.Odd"}
    given = toy_photos.write_run(tmp_path, {"predict.data": data})
    for number, value in enumerate([1, 60, 2, 3, 70]):
        write_picture(tmp_path / f"in/{number}.png", value)
    assert predict(given, tmp_path / "in", "--output", tmp_path / "out") == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"1.image.png", "4.image.png", "predictions.csv"}
    err = capsys.readouterr().err
    assert "0.png: IndexError: list index out of range (unexpected, at " in err
    assert "test_hostile_photos.py:" in err
    assert "2.png: more memory is needed than there is" in err
    assert "3.png: RuntimeError: " in err  # a network that takes one channel
    assert "error: 3 of the inputs could not be used" in err
    assert "Traceback" not in err


def test_a_batch_that_fails_is_predicted_photo_by_photo(tmp_path, monkeypatch, capsys):
    given, computed = toy_photos.write_run(tmp_path), Runner._run

    def failing(self, batch, injectors):
        if float(batch["x"].max()) > 0.9:
            raise RuntimeError("too bright")
        return computed(self, batch, injectors)

    monkeypatch.setattr(Runner, "_run", failing)
    for number, value in enumerate([60, 250, 70]):
        write_picture(tmp_path / f"in/{number}.png", value)
    assert predict(given, tmp_path / "in", "--batch-size", 3, "--output", tmp_path / "out") == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"0.image.png", "2.image.png", "predictions.csv"}
    assert f"skipped: {tmp_path}/in/1.png: RuntimeError: too bright" in capsys.readouterr().err


def person(**changes):
    record = {"category_id": 1, "bbox": [1, 1, 20, 20], "keypoints": [5.0, 5.0, 0.9] * 17, "score": 0.5}
    return record | changes


HUGE = 10**400
WRONG = {
    "inf box": (person(bbox=[0, 0, float("inf"), 9]), "box is not four finite numbers"),
    "1e300 box": (person(bbox=[0, 0, 1e300, 9]), "box outside of the image"),
    "huge joint": (person(keypoints=[HUGE] * 51), "keypoint not finite"),
    "few joints": (person(keypoints=[1.0] * 50), "keypoints are not 17 x 3 numbers: 50 numbers"),
    "text score": (person(score="a"), "score is not a finite number: 'a'"),
    "no category": ({"bbox": [1, 1, 2, 2]}, "category_id is not a whole number: None"),
    "text mask": (person(segmentation="a"), "neither polygons nor run lengths"),
    "open runs": (person(segmentation={"size": [48, 64], "counts": "~~~~"}), "run lengths do not fill the image"),
    "large mask": (person(segmentation={"size": [10**6, 10**6], "counts": "a"}), "run lengths of another image size"),
}


@pytest.fixture
def photo(tmp_path):
    _, content = cv2.imencode(".png", np.full((48, 64, 3), 90, np.uint8))
    (tmp_path / "a.png").write_bytes(content.tobytes())
    return Photo(tmp_path / "a.png", "a", 1)


@pytest.mark.parametrize("name", WRONG)
def test_a_bad_person_costs_this_person(photo, name):
    record, reason = WRONG[name]
    photo.path.with_name("a.people.json").write_text(json.dumps([record, person()]))
    assert [one["name"] for one in PersonPhotos(**PEOPLE).examples(photo)] == ["a-1"]
    (line,) = photo.faults
    place = photo.path.with_name("a.people.json")
    assert line.startswith(f"{photo.path}: {place}: record 0 (counted from 0): {reason}")
    assert len(line) < 600


def test_a_crop_that_needs_too_much_memory_is_refused(photo):
    photo.path.with_name("a.people.json").write_text(json.dumps([person(bbox=[0, 0, 64, 48])]))
    assert PersonPhotos(**PEOPLE | {"margin": 9.9}, padding=9.9).examples(photo) == []  # 64 x 20.8 x 20.8
    assert "box too large: its square has 27689 x 27689 pixels" in photo.faults[0]


def test_as_many_people_as_nobody_photographs(photo, monkeypatch):
    monkeypatch.setattr("models.people.photos.MOST", 20)
    photo.path.with_name("a.people.json").write_text(json.dumps([person()] * 25))
    assert len(PersonPhotos(**PEOPLE).examples(photo)) == 20
    assert photo.faults[0].endswith("a.people.json: has 25 people; the first 20 are taken")
