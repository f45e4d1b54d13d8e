import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from PIL.ExifTags import Base
from prepared_files import CATALOGUE, content, rows, write_entry

from figura.base.exit_status import run
from figura.base.manifest import read_manifest
from figura.preparation.datasets import read_dataset
from models.images.pairs import ImagePairs
from stages.prepare import main

ROOT = Path(__file__).parents[2]
FACADES = ROOT.parent / "shared/data/facades_real"
pytestmark = pytest.mark.usefixtures("project")

PREPARED = Path("data/prepared/pairs")
PAIRED = {"train": "train", "validation": "val"}


def write_params(**changes):
    entry = {"kind": "paired", "source": "raw", "seed": 7, "max_rejected": 0.0, "paired": PAIRED, **changes}
    write_entry("pairs", entry)


def pixels(number, width=16):
    return np.random.default_rng(number).integers(0, 256, (8, width, 3), dtype=np.uint8)


def write(path, image):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image[..., ::-1])


def write_raw():
    """Train: ten A|B images; validation: five pairs in two folders."""
    for number in range(10):
        write(f"raw/train/{number:02}.png", pixels(number, 32))
    for number in range(5):
        write(f"raw/val/a/{number}.png", pixels(100 + number))
        write(f"raw/val/b/{number}.bmp", pixels(200 + number))


def test_prepared_folder(capsys):
    write_raw()
    Path("raw/train/notes.txt").touch()
    Path("raw/val/b/more").mkdir()
    assert run(main, ["pairs"]) == 0
    printed = capsys.readouterr().out
    prepared, raw = content(PREPARED), content(Path("raw"))
    assert "left out: 1 files of .txt, 1 folders in those of pairs" in printed
    expected = {name.replace("val/", "validation/"): data for name, data in raw.items() if not name.endswith(".txt")}
    beside = {"manifest.json", "plots/pairs.png", "rejected.csv", "statistics.json"}
    assert set(prepared) == set(expected) | beside
    assert {name: data for name, data in prepared.items() if name in expected} == expected
    assert rows(PREPARED / "rejected.csv") == []
    assert (PREPARED / "rejected.csv").read_text() == "split,file,reason,detail\n"
    named = json.loads((PREPARED / "manifest.json").read_text())
    assert named["files"] == 10 + 2 * 5 + 2
    assert named["sha256"] in printed
    assert "train: 10 pairs, 0 rejected\nvalidation: 5 pairs, 0 rejected\n" in printed
    for split, count in {"train": 10, "validation": 5}.items():
        dataset = ImagePairs(root=str(PREPARED), split=split, direction="a_to_b", load_size=(8, 16), crop_size=(8, 16))
        assert len(dataset) == count
    sheet = cv2.imread(str(PREPARED / "plots/pairs.png"))
    assert len(np.unique(sheet.reshape(-1, 3), axis=0)) > 1000  # noise was drawn
    assert run(main, ["pairs"]) == 0
    assert content(PREPARED) == prepared


def test_accents_that_macos_writes_apart():
    write_raw()
    write("raw/val/a/ga\u0308rten.png", pixels(7))
    write("raw/val/b/g\xe4rten.png", pixels(8))
    assert run(main, ["pairs"]) == 0
    dataset = ImagePairs(
        root=str(PREPARED), split="validation", direction="a_to_b", load_size=(8, 16), crop_size=(8, 16)
    )
    assert len(dataset) == 6


def test_statistics():
    write_raw()
    write("raw/val/a/9.png", pixels(0, 8))
    write("raw/val/b/9.png", pixels(1, 8))
    assert run(main, ["pairs"]) == 0
    statistics = json.loads((PREPARED / "statistics.json").read_text())
    assert [one["pairs"] for one in statistics.values()] == [10, 6]
    assert [one["sizes"] for one in statistics.values()] == [{"16x8": 10}, {"16x8": 5, "8x8": 1}]
    train = np.stack([pixels(number, 32) for number in range(10)]).astype(np.float64)
    sides = {"train": {"a": train[:, :, :16].reshape(-1, 3), "b": train[:, :, 16:].reshape(-1, 3)}}
    sides["validation"] = {
        key: np.concatenate([*(pixels(n + shift).reshape(-1, 3) for n in range(5)), pixels(last, 8).reshape(-1, 3)])
        for key, shift, last in (("a", 100, 0), ("b", 200, 1))
    }
    for split, both in sides.items():
        for side, values in both.items():
            channels = statistics[split][side]
            np.testing.assert_allclose(channels["mean"], values.mean(0), atol=6e-4)
            np.testing.assert_allclose(channels["std"], values.std(0), atol=6e-4)


def cut():
    path = Path("raw/train/03.png")
    path.write_bytes(path.read_bytes()[:-60])


def link_outside():
    write("secret.png", pixels(0, 32))
    Path("raw/train/03.png").unlink()
    Path("raw/train/03.png").symlink_to(Path("secret.png").absolute())


def second_file():
    write("raw/train/03.jpg", pixels(3, 32))


BROKEN = {
    "cut": (cut, ("train", "03.png", "image file unreadable")),
    "text": (lambda: Path("raw/train/03.png").write_text("text"), ("train", "03.png", "image file unreadable")),
    "odd width": (lambda: write("raw/train/03.png", pixels(3, 31)), ("train", "03.png", "odd width")),
    "link": (link_outside, ("train", "03.png", "path leaves the data root")),
    "one name": (second_file, ("train", "03.jpg", "two files with one name")),
    "no partner": (lambda: Path("raw/val/b/3.bmp").unlink(), ("validation", "a/3.png", "missing partner")),
    "sizes": (lambda: write("raw/val/b/3.bmp", pixels(3, 15)), ("validation", "a/3.png", "A and B differ in size")),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_pairs_are_left_out_and_listed(kind):
    write_raw()
    write_params(max_rejected=0.07)  # one in fifteen
    damage, expected = BROKEN[kind]
    damage()
    assert run(main, ["pairs"]) == 0
    listed = rows(PREPARED / "rejected.csv")
    assert [(row["split"], row["file"], row["reason"]) for row in listed] == [expected]
    assert listed[0]["detail"]
    split, _, reason = expected
    statistics = json.loads((PREPARED / "statistics.json").read_text())
    assert {name: one["rejected"] for name, one in statistics.items() if one["rejected"]} == {split: {reason: 1}}
    assert [one["pairs"] for one in statistics.values()] == ([9, 5] if split == "train" else [10, 4])
    assert len(content(PREPARED / "train")) == statistics["train"]["pairs"]
    assert not [name for name in content(PREPARED / split) if Path(name).stem.endswith("3")]
    dataset = ImagePairs(root=str(PREPARED), split=split, direction="a_to_b", load_size=8, crop_size=8)
    assert [dataset[index]["index"] for index in range(len(dataset))] == list(range(statistics[split]["pairs"]))


@pytest.mark.parametrize("void", [0, 255])
def test_label_maps_of_class_numbers_are_told(void, capsys):
    write_raw()
    for number in range(5):
        picture = pixels(number) % 6
        picture[:2] = void
        write(f"raw/val/b/{number}.bmp", picture)
    assert run(main, ["pairs"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "nearly black" in line]
    assert [line.split(",")[0] for line in lines] == ["warning: validation: all pictures of b are nearly black"]


def test_masks_of_black_and_white_are_no_class_numbers(capsys):
    write_raw()
    for number in range(5):
        write(f"raw/val/b/{number}.bmp", pixels(number) // 128 * 255)
    assert run(main, ["pairs"]) == 0
    assert "nearly black" not in capsys.readouterr().out


def test_pairs_of_the_same_picture_are_told(capsys):
    write_raw()
    for number in range(3):
        write(f"raw/val/b/{number}.bmp", pixels(100 + number))
    assert run(main, ["pairs"]) == 0
    assert "warning: 3 pairs of which both pictures are the same: is one" in capsys.readouterr().out


def test_a_photo_turned_by_exif_beside_a_label_map_is_told(capsys):
    write_raw()
    exif = Image.Exif()
    exif[Base.Orientation] = 3
    Path("raw/val/a/0.png").unlink()
    Image.fromarray(pixels(0)).save("raw/val/a/0.jpg", exif=exif)
    assert run(main, ["pairs"]) == 0
    assert "of which one picture was turned by its EXIF orientation" in capsys.readouterr().out
    Image.fromarray(pixels(1)).save("raw/val/b/0.jpg", exif=exif)
    Path("raw/val/b/0.bmp").unlink()
    assert run(main, ["pairs"]) == 0
    assert "of which one picture" not in capsys.readouterr().out


def test_equal_pairs_in_two_splits(capsys):
    write_raw()
    for number in range(5):  # three pairs are equal, the other two in B alone
        write(f"raw/train/a/{number}.png", pixels((100 if number < 3 else 300) + number))
        write(f"raw/train/b/{number}.bmp", pixels(200 + number))
    write_params()
    assert run(main, ["pairs"]) == 0, capsys.readouterr().err
    assert "warning: 3 of 5 pictures of validation have the bytes of one in train" in capsys.readouterr().out


def test_drawn_pairs():
    write_params(kind="catalogue", source="figura/synthetic", catalogue=CATALOGUE)
    assert run(main, ["pairs"]) == 0
    statistics = json.loads((PREPARED / "statistics.json").read_text())
    sizes = [(one["pairs"], one["sizes"]) for one in statistics.values()]
    assert sizes == [(5, {"32x32": 5}), (2, {"32x32": 2}), (2, {"32x32": 2})]
    assert rows(PREPARED / "rejected.csv") == []
    assert read_manifest(PREPARED)["drawn"] is True
    assert len(content(PREPARED / "train")) == 5
    dataset = ImagePairs(root=str(PREPARED), split="validation", direction="a_to_b", load_size=32, crop_size=32)
    assert [dataset[index]["name"] for index in range(2)] == ["000001", "000002"]


def test_pairs_to_judge_trained_models_on_need_no_split_to_train_on():
    write_raw()
    write_params(paired={"test": "val"})
    assert run(main, ["pairs"]) == 0
    assert json.loads((PREPARED / "statistics.json").read_text()).keys() == {"test"}


def test_sections_of_another_kind_are_allowed():
    write_params(catalogue=CATALOGUE)
    assert read_dataset("pairs").kind == "paired"


def test_preparing_needs_no_torch():
    code = "import sys, stages.prepare, figura.preparation.pairs; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.skipif(not FACADES.is_dir(), reason=f"no sample data at {FACADES}")
def test_real_facades():
    write_params(source=str(FACADES))
    assert run(main, ["pairs"]) == 0
    statistics = json.loads((PREPARED / "statistics.json").read_text())
    sizes = [(one["pairs"], one["sizes"]) for one in statistics.values()]
    assert sizes == [(400, {"256x256": 400}), (100, {"256x256": 100})]
    for split, folder in {"train": "train", "validation": "val"}.items():
        assert content(PREPARED / split) == content(FACADES / folder)
