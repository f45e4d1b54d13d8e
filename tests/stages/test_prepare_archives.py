"""Prepared pictures in archives: each dataset reads the same from them, from folders as before, and in any process."""

import json
import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from prepared_files import content, write_entry, write_picture

from figura.base import archive_writer
from figura.base.errors import UserError
from figura.formats.coco import KEYPOINTS
from models.images.pairs import ImagePairs
from models.images.unpaired import UnpairedImages
from models.people.pairs import PersonPairs
from models.pose.scenes import Scenes
from models.super_resolution.paired_patches import PairedPatches
from models.super_resolution.patches import Patches
from stages.prepare import main

ROOT = Path("data/prepared/mine")
COUNT = 9
HEADS = {"cif": {"stride": 8}}
READERS = {
    "coco": {
        PersonPairs: {"image_size": 16, "appearance": "own", "min_keypoints": 1, "min_height": 1, "background": None},
        Scenes: {"side": 33, "heads": HEADS},
        Patches: {"scale": 2, "size": 8},
    },
    "images": {PairedPatches: {"scale": 1, "size": 8, "small": "train"}},
    "paired": {ImagePairs: {"direction": "a_to_b", "crop_size": 16}},
    "halves": {ImagePairs: {"direction": "a_to_b", "crop_size": 16}},
    "unpaired": {UnpairedImages: {"crop_size": 16}},
}
CASES = [(kind, reader) for kind, readers in READERS.items() for reader in readers]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def prepare(kind):
    for number in range(COUNT):
        for side in "AB" if kind in ("paired", "unpaired") else ("",):
            write_picture(f"raw/train{side}/{number}.png", number + len(side) * 100 * (side == "B"))
    section = {"train": "train", "shares": {"validation": 0.3}}
    if kind == "coco":
        joints = [value for joint in range(17) for value in (8 + joint, 8 + joint, 2)]
        document = {
            "images": [{"id": n, "file_name": f"{n}.png", "width": 48, "height": 32} for n in range(COUNT)],
            "annotations": [
                {"id": n, "image_id": n, "category_id": 1, "bbox": [4, 4, 24, 24], "area": 576, "keypoints": joints}
                for n in range(COUNT)
            ],
            "categories": [{"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}],
        }
        Path("raw/all.json").write_text(json.dumps(document))
        section = {"images": "train", "annotations": "all.json", "shares": {"validation": 0.3}}
    kind = "paired" if kind == "halves" else kind
    write_entry("mine", {"kind": kind, "source": "raw", "seed": 3, "max_rejected": 0.0, kind: section})
    main(["mine"])


def opened(kind, reader):
    return reader(root=str(ROOT), split="train", **READERS[kind][reader])


def bytes_of(dataset, index):
    example = dataset.example(index, np.random.default_rng(index))
    return {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in example.items()}


def as_before():
    """Lay the pictures out as earlier versions did: files, whose hashes the manifest lists."""
    files = content(ROOT)
    for path in ROOT.rglob("*.zip"):
        path.unlink()
    for name, one in files.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_bytes(one)
    manifest = json.loads(files.pop("manifest.json"))
    hashes = {name: sha256(one).hexdigest() for name, one in files.items() if not name.startswith("plots/")}
    (ROOT / "manifest.json").write_text(json.dumps(manifest | {"hashes": hashes}))
    return hashes


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "reader"), CASES)
def test_archives_folders_and_processes_give_equal_examples(kind, reader, monkeypatch):
    monkeypatch.setattr(archive_writer, "MOST", 10_000)  # two pictures of noise
    prepare(kind)
    parts = [path.name for path in ROOT.rglob("train*.zip")]
    assert {"train.zip", "train.2.zip"} < {*parts}
    assert not [path for path in ROOT.rglob("*.png") if path.parent.name != "plots"]
    dataset = opened(kind, reader)
    expected = [bytes_of(dataset, index) for index in range(len(dataset))]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn" if kind == "paired" else "fork")) as pool:
        assert pool.submit(bytes_of, dataset, 0).result() == expected[0]
    manifest = ROOT / "manifest.json"
    listed = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(listed | {"hashes": {}}))  # as whoever edits files by hand leaves it
    assert bytes_of(opened(kind, reader), 0) == expected[0]
    manifest.write_text(json.dumps(listed))
    total = sha256()
    hashes = as_before()
    for name in sorted(hashes, key=lambda one: Path(one).parts):
        total.update(f"{name}\0{hashes[name]}\n".encode())
    assert total.hexdigest() == json.loads((ROOT / "manifest.json").read_text())["sha256"]
    before = opened(kind, reader)
    assert [before.row(index) for index in range(len(before))] == [dataset.row(index) for index in range(len(dataset))]
    assert [bytes_of(before, index) for index in range(len(before))] == expected


@pytest.mark.parametrize("harm", [os.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
@pytest.mark.parametrize(("kind", "reader"), CASES)
def test_a_damaged_archive_is_told_before_the_first_example(kind, reader, harm, monkeypatch):
    monkeypatch.setattr(archive_writer, "MOST", 10_000)
    prepare(kind)
    path = next(ROOT.rglob("train.2.zip"))
    harm(path)
    expected = re.escape(f"{path}: ") + "(damaged: its checksum differs|no such file); run `dvc repro --force prepare@"
    with pytest.raises(UserError, match=expected):
        opened(kind, reader)
