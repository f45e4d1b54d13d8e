"""Two folders of pictures without pairs: layouts, splits, faults in one line; drawn day and night."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from prepared_files import CATALOGUE, content, rows, write_entry, write_picture

from figura.base.exit_status import run
from models.images.unpaired import UnpairedImages
from stages.prepare import main

pytestmark = pytest.mark.usefixtures("project")

PREPARED = Path("data/prepared/sets")
DRAWN = CATALOGUE | {"pairs": {"train": 3, "validation": 2, "test": 2}}


def write_params(**changes):
    entry = {"kind": "unpaired", "source": "raw", "seed": 7, "max_rejected": 0.0}
    write_entry("sets", {**entry, "unpaired": {"train": "train", "validation": "val"}, **changes})


LAYOUTS = {
    "CycleGAN's": ("trainA", "trainB", "valA", "valB"),
    "split first": ("train/A", "train/B", "val/A", "val/B"),
    "side first": ("A/train", "B/train", "A/val", "B/val"),
    "lower case": ("train/a", "train/b", "val/a", "val/b"),
}


@pytest.mark.parametrize("folders", LAYOUTS.values(), ids=LAYOUTS)
def test_prepared_folder(folders, capsys):
    for number, (folder, count) in enumerate(zip(folders, (4, 3, 2, 1), strict=True)):
        for one in range(count):
            write_picture(f"raw/{folder}/{one}.png", 10 * number + one, (8 + number, 8))
    Path(f"raw/{folders[0]}/notes.txt").touch()
    Path(f"raw/{folders[1]}/more").symlink_to(Path(f"raw/{folders[3]}").resolve())
    assert run(main, ["sets"]) == 0
    printed = capsys.readouterr().out
    places = ("train/a", "train/b", "validation/a", "validation/b")
    raw, prepared = content(Path("raw")), content(PREPARED)
    for there, here in zip(folders, places, strict=True):
        for name in (name for name in raw if name.startswith(f"{there}/") and name.endswith(".png")):
            assert prepared[name.replace(there, here)] == raw[name]
    beside = {"manifest.json", "plots/unpaired.png", "rejected.csv", "statistics.json"}
    assert len(prepared) == 10 + len(beside) == len(beside | set(prepared))
    assert "train: 4 pictures of A, 3 of B, 0 rejected\nvalidation: 2 pictures of A, 1 of B, 0 rejected\n" in printed
    assert "left out: 1 files of .txt, 1 links to folders\n" in printed
    statistics = json.loads((PREPARED / "statistics.json").read_text())
    assert statistics["train"]["b"] == {"pictures": 3, "sizes": {"8x9": 3}}
    assert len(UnpairedImages(root=str(PREPARED), split="train", crop_size=8)) == 4
    assert run(main, ["sets"]) == 0
    assert content(PREPARED) == prepared


def test_two_folders_and_shares():
    """Each side is split by the names of its files; a file's split does not depend on the others."""
    write_params(unpaired={"train": ".", "shares": {"validation": 0.3, "test": 0.3}})
    for number in range(60):
        write_picture(f"raw/A/{number}.png", number, (8, 8))
        write_picture(f"raw/B/deep/{number}.png", 100 + number, (8, 8))
    assert run(main, ["sets"]) == 0
    found = {split: {s: sorted(content(PREPARED / split / s)) for s in "ab"} for split in ("train", "test")}
    assert sum(len(sides["a"]) for sides in found.values()) < 60  # validation has its share
    assert 10 < len(found["test"]["a"]) < 30
    assert all("deep" in Path(one).parts for one in found["test"]["b"])
    before = {*found["test"]["a"]}
    Path("raw/A/0.png").unlink()
    assert run(main, ["sets"]) == 0
    assert {*content(PREPARED / "test/a")} == before - {"0.png"}


def write_raw():
    for number in range(3):
        for side in "AB":
            write_picture(f"raw/train{side}/{number}.png", number, (8, 8))
            write_picture(f"raw/val{side}/{number}.png", 10 + number, (8, 8))


def link_outside():
    write_picture("secret.png", 1)
    Path("raw/trainB/1.png").unlink()
    Path("raw/trainB/1.png").symlink_to(Path("secret.png").absolute())


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda: Path("raw/trainB/1.png").write_text("text"), "image file unreadable"),
        (link_outside, "path leaves the data root"),
    ],
)
def test_a_picture_that_cannot_be_used(harm, reason, capsys):
    write_raw()
    harm()
    assert run(main, ["sets"]) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert f"1 of 12 records cannot be used (8.3%, allowed 0.0%): 1 {reason}" in line
    write_params(max_rejected=0.1)
    assert run(main, ["sets"]) == 0
    (row,) = rows(PREPARED / "rejected.csv")
    assert (row["split"], row["file"], row["reason"]) == ("train", "b/1.png", reason)
    assert "train/b/1.png" not in content(PREPARED)


def test_pictures_of_both_sides_are_told(capsys):
    write_raw()
    write_picture("raw/trainB/0.png", 7, (8, 8))
    assert run(main, ["sets"]) == 0
    assert "warning: train: 2 pictures are in A and in B: each belongs to one of them" in capsys.readouterr().out


def test_wrong_use_in_one_line(capsys):
    write_picture("raw/train/1.png", 1)
    assert run(main, ["sets"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    folder = Path("raw/train").absolute()
    assert line == (
        f"error: data/params.yaml: datasets.sets.unpaired.train: found no two folders at {folder}; "
        "there may be trainA and trainB, or A and B in it (or a and b)"
    )
    write_raw()
    Path("raw/train/1.png").unlink()
    Path("raw/train").rmdir()
    for path in Path("raw/valB").iterdir():
        path.unlink()
    assert run(main, ["sets"]) == 1
    assert "the split 'validation' has no image" in capsys.readouterr().err


def test_drawn_day_and_night():
    """Scenes of A and B differ; the truth of a day picture has its shapes and other colours; runs give equal bytes."""
    write_params(kind="day_night", day_night=DRAWN)
    Path("raw").mkdir()
    assert run(main, ["sets"]) == 0
    names = {
        f"{split}/{side}": sorted(content(PREPARED / split / side))
        for split in ("train", "test")
        for side in ("a", "b", "truth")
    }
    assert names["train/a"] == ["000001.png", "000002.png", "000003.png"]
    assert names["train/b"] == ["000004.png", "000005.png", "000006.png"]
    assert names["test/a"] == names["test/truth"] == ["000001.png", "000002.png"]
    assert not {*names["test/b"]} & {*names["test/a"]}
    files = {side: content(PREPARED / f"test/{side}")["000001.png"] for side in ("a", "truth")}
    read = {side: cv2.imdecode(np.frombuffer(one, np.uint8), 1).astype(float) for side, one in files.items()}
    assert read["a"].mean() > 1.5 * read["truth"].mean()
    edges = {side: np.abs(np.diff(picture.mean(axis=2), axis=1)).ravel() for side, picture in read.items()}
    assert np.corrcoef(edges["a"], edges["truth"])[0, 1] > 0.5
    before = content(PREPARED)
    assert run(main, ["sets"]) == 0
    assert content(PREPARED) == before
