"""Raw data of every kind whose files DVC has made links to its cache, as `dvc add` does with `cache.type symlink`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from prepared_files import content, write_entry, write_picture

from figura.base.exit_status import run
from figura.formats.coco import KEYPOINTS
from models.images.pairs import ImagePairs
from stages.prepare import main

pytestmark = pytest.mark.usefixtures("project")
JOINTS = [one for place in range(17) for one in (3 + place, 4 + place, 2)]
PERSON = {"category_id": 1, "bbox": [1, 1, 20, 20], "area": 400, "keypoints": JOINTS, "num_keypoints": 17, "iscrowd": 0}
SHARES = {"shares": {"validation": 0.4}}


def write_params() -> None:
    """Nothing: each kind writes its own."""


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def pictures(*folders: str, names: tuple[str, ...] = ("1", "2", "3", "4", "5", "6"), suffix: str = "png") -> None:
    """Write pictures, of which the last two are equal, so that they have one place in the cache."""
    for folder in folders:
        for number, name in enumerate(names):
            write_picture(f"raw/{folder}/{name}.{suffix}", min(number, len(names) - 2), (32, 48))


def coco(path: str = "raw/annotations.json") -> dict[str, Any]:
    pictures("images")
    images = [{"id": n, "file_name": f"{n}.png", "width": 48, "height": 32} for n in range(1, 7)]
    people = [PERSON | {"id": n, "image_id": n} for n in range(1, 7)]
    categories = [{"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}]
    write(path, json.dumps({"images": images, "annotations": people, "categories": categories}))
    return {"images": "images", "annotations": Path(path).relative_to("raw").parts[0], **SHARES}


def openpose() -> dict[str, Any]:
    pictures("images")
    for n in range(1, 7):
        joints = [one for place in range(18) for one in (3 + place, 4 + place, 0.9)]
        write(f"raw/poses/{n}_keypoints.json", json.dumps({"people": [{"pose_keypoints_2d": joints}]}))
    return {"images": "images", "annotations": "poses", **SHARES}


def yolo() -> dict[str, Any]:
    pictures("images/train", "images/val")
    write("raw/data.yaml", "train: images/train\nval: list.txt\nnames: {0: person}\n")
    write("raw/list.txt", "".join(f"images/val/{n}.png\n" for n in range(1, 7)))
    for n in range(1, 7):
        write(f"raw/labels/train/{n}.txt", "0 0.5 0.5 0.5 0.5\n")
        write(f"raw/labels/val/{n}.txt", "0 0.4 0.5 0.5 0.5\n")
    return {"annotations": "data.yaml"}


def folders(*names: str) -> Callable[[], dict[str, Any]]:
    def made() -> dict[str, Any]:
        pictures(*names)
        return {"train": "train", **SHARES}

    return made


def market1501() -> dict[str, Any]:
    names = tuple(f"{n:04}_c1s1_000451_03" for n in range(1, 7))
    pictures("bounding_box_train", names=names, suffix="jpg")
    pictures("bounding_box_test", names=("0011_c1s1_000451_03", "0012_c1s1_000451_03"), suffix="jpg")
    pictures("query", names=("0013_c1s1_000451_03", "0014_c1s1_000451_03"), suffix="jpg")
    coco = [{"id": n, "file_name": f"{name}.jpg", "width": 48, "height": 32} for n, name in enumerate(names, 1)]
    people = [PERSON | {"id": n, "image_id": n} for n in range(1, 7)]
    categories = [{"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}]
    write("raw/poses.json", json.dumps({"images": coco, "annotations": people, "categories": categories}))
    pair = "from,to\nbounding_box_test/0011_c1s1_000451_03.jpg,query/0013_c1s1_000451_03.jpg\n"
    write("raw/pairs.csv", pair)
    return {"poses": "poses.json", "pairs": {"test": "pairs.csv"}, "shares": {"validation": 0.4}}


def deepfashion() -> dict[str, Any]:
    names = tuple(f"WOMEN/Dresses/id_{n:08}/02_1_front" for n in range(1, 7))
    pictures("Img/img", names=names, suffix="jpg")
    rows = [f"img/{name}.jpg id_{n:08} {'train' if n < 5 else 'query'}" for n, name in enumerate(names, 1)]
    write("raw/Eval/list_eval_partition.txt", "\n".join(["6", "image_name item_id evaluation_status", *rows]) + "\n")
    return {"shares": {"validation": 0.4}}


KINDS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "COCO": ("coco", coco),
    "folder of COCO files": ("coco", lambda: coco("raw/files/one.json")),
    "OpenPose": ("coco", openpose),
    "YOLO": ("coco", yolo),
    "A|B": ("paired", folders("train")),
    "A and B": ("paired", folders("train/A", "train/B")),
    "unpaired": ("unpaired", folders("trainA", "trainB")),
    "images": ("images", folders("train")),
    "Market-1501": ("market1501", market1501),
    "DeepFashion": ("deepfashion", deepfashion),
}


def link_to_cache() -> None:
    """Move the raw files to DVC's cache, by their MD5, and leave links."""
    for path in [Path(parent, name) for parent, _, names in os.walk("raw") for name in names]:
        digest = md5(path.read_bytes()).hexdigest()
        place = Path(".dvc/cache/files/md5", digest[:2], digest[2:]).absolute()
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        path.symlink_to(place)


@pytest.mark.parametrize("name", KINDS)
def test_links_to_the_cache_are_read_as_the_files_were(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind, make = KINDS[name]
    write_entry("mine", {"kind": kind, "source": "raw", "seed": 7, "max_rejected": 0.0, kind: make()})
    assert run(main, ["mine"]) == 0, capsys.readouterr().err
    before = content(Path("data/prepared/mine"))
    assert len(before) > 6
    link_to_cache()
    assert run(main, ["mine"]) == 0, capsys.readouterr().err
    assert content(Path("data/prepared/mine")) == before


def test_prepared_pairs_are_read_through_links() -> None:
    """DVC makes links of prepared data as well; here the real one."""
    pictures("train")
    for words in ("init --no-scm", "config cache.type symlink", "add raw"):
        subprocess.run([sys.executable, "-m", "dvc", "-q", *words.split()], check=True)
    assert ".dvc/cache/files/md5" in os.readlink("raw/train/1.png")
    data = ImagePairs(root="raw", split="train", direction="a_to_b", load_size=8, crop_size=8)
    assert len(data) == 6
