"""How long a training waits for annotations of the size of COCO's: 118,287 images, 262,465 people, no pictures.

Each row is a process of its own that opens the annotations of one dataset, of images for poses or of people for pairs.
`confirmed` is a file that `prepare` wrote and its manifest confirms; `by hand` is the same file without a manifest,
whose records are all checked; `one line` the same without line breaks, as COCO publishes its files. Seconds are those
of the processor, without imports; memory is what the process grew by.

`python -m bench.coco_scale [--images 118287]`

With `--prepare`, it is `stages.prepare` that reads the annotations, and plain pictures of 640 x 480 pixels with them,
on one processor and on all: `python -m bench.coco_scale --prepare --images 20000`
"""

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.table import most_resident, show
from figura.base.manifest import MANIFEST
from figura.base.pictures import encode_jpeg
from figura.data.formats.coco import KEYPOINTS, PERSON, SKELETON, to_json, write_coco
from figura.data.formats.skeletons import COCO
from figura.data.preparation.datasets import Dataset
from figura.data.preparation.prepare import prepare
from figura.data.preparation.settings import Coco
from models.people.persons import Persons
from models.pose.scene_table import SceneTable

PEOPLE = 262_465 / 118_287  # an image
CATEGORY = {"id": 1, "name": PERSON, "keypoints": list(KEYPOINTS), "skeleton": [list(pair) for pair in SKELETON]}
KINDS = ("confirmed", "by hand", "one line")


def images(count: int) -> Iterator[bytes]:
    """Yield the records of images of 640 x 480 pixels."""
    for number in range(1, count + 1):
        record = {"file_name": f"train/{number:012d}.jpg", "height": 480, "id": number, "width": 640}
        yield to_json(record).encode()


def annotations(count: int) -> Iterator[bytes]:
    """Yield the records of people, each with a polygon of twenty corners."""
    random = np.random.default_rng(0)
    for number in range(1, round(count * PEOPLE) + 1):
        x, y, width, height = (round(float(v), 2) for v in random.uniform((0, 0, 20, 60), (400, 200, 200, 250)))
        joints = random.uniform((x, y), (x + width, y + height), (17, 2)).round()
        flags = random.integers(0, 3, 17)
        keypoints = [int(v) for joint, flag in zip(joints, flags, strict=True) for v in (*joint * (flag > 0), flag)]
        corners = random.uniform((x, y), (x + width, y + height), (20, 2)).round(2).ravel().tolist()
        record = {
            "area": round(width * height / 2, 2), "bbox": [x, y, width, height], "category_id": 1, "id": number,
            "image_id": int(random.integers(1, count + 1)), "iscrowd": 0, "keypoints": keypoints,
            "num_keypoints": int((flags > 0).sum()), "segmentation": [corners],
        }  # fmt: skip
        yield to_json(record).encode()


def make(folder: Path, count: int, kind: str) -> None:
    """Write the dataset's annotations, and for a confirmed one its manifest, which lists the pictures too."""
    folder.mkdir()
    path = folder / "train.json"
    write_coco(path, {"categories": [CATEGORY]}, images(count), annotations(count))
    if kind == "one line":
        path.write_text(path.read_text().replace("\n", ""))
    if kind == "confirmed":
        hashes = {f"images/train/{number:012d}.jpg": "0" * 64 for number in range(1, count + 1)}
        hashes["train.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
        (folder / MANIFEST).write_text(json.dumps({"files": len(hashes), "hashes": hashes, "sha256": "0" * 64}))


def make_raw(folder: Path, count: int) -> None:
    """Write a raw dataset in COCO's layout: the annotations, and pictures that are all the same."""
    (folder / "images" / "train").mkdir(parents=True)
    write_coco(folder / "annotations.json", {"categories": [CATEGORY]}, images(count), annotations(count))
    picture = encode_jpeg(np.full((480, 640, 3), 128, dtype=np.uint8))
    for number in range(1, count + 1):
        (folder / "images" / "train" / f"{number:012d}.jpg").write_bytes(picture)


def measure_prepare(root: Path) -> None:
    """Prepare `root / "raw"` in this process; print seconds of the clock and of the processor, and MiB."""
    files = {"annotations": "annotations.json", "images": "images", "shares": {"validation": 0.05}}
    entry = Dataset(kind="coco", source="raw", seed=0, max_rejected=0.0, coco=Coco.model_validate(files))
    before, start, processor = most_resident(), time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(sys.stderr):
        prepare(entry, "people", root)
    print(time.perf_counter() - start, time.process_time() - processor, most_resident() - before)


def measure(kind: str, folder: Path) -> None:
    """Open the annotations in this process; print seconds and MiB."""
    before, start = most_resident(), time.process_time()
    if kind == "images":
        SceneTable(folder, "train", COCO, PERSON, None)
    else:
        Persons(folder, "train", min_keypoints=8, min_height=60)
    print(time.process_time() - start, most_resident() - before)


def opening(count: int, temporary: Path) -> list[list[object]]:
    """Return the rows of opening the annotations."""
    rows: list[list[object]] = [["annotations", "file", "MB", "seconds", "MiB"]]
    for kind in KINDS:
        folder = temporary / kind.replace(" ", "-")
        make(folder, count, kind)
        size = (folder / "train.json").stat().st_size / 1e6
        rows += [[of, kind, size, *cell(of, folder)] for of in ("images", "people")]
    return rows


def preparing(count: int, temporary: Path) -> list[list[object]]:
    """Return the rows of `stages.prepare` on one processor and on all."""
    rows: list[list[object]] = [["processors", "images", "seconds", "of the processors", "MiB"]]
    make_raw(temporary / "raw", count)
    every = sorted(os.sched_getaffinity(0))
    for processors in (every[:1], every):
        os.sched_setaffinity(0, processors)
        rows.append([len(processors), count, *cell("prepare", temporary)])
    return rows


def cell(kind: str, folder: Path) -> list[float]:
    """Return what a process of its own measures."""
    command = [sys.executable, "-m", "bench.coco_scale", "--cell", kind, str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [float(number) for number in done.stdout.split()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.coco_scale")
    parser.add_argument("--images", type=int, default=118_287)
    parser.add_argument("--prepare", action="store_true", help="measure `stages.prepare`")
    parser.add_argument("--cell", nargs=2, metavar=("KIND", "FOLDER"), help="measure one, print the numbers")
    args = parser.parse_args()
    if args.cell:
        kind, folder = args.cell
        measure_prepare(Path(folder)) if kind == "prepare" else measure(kind, Path(folder))
        return
    with tempfile.TemporaryDirectory() as temporary:
        show((preparing if args.prepare else opening)(args.images, Path(temporary)))


if __name__ == "__main__":
    main()
