"""How long a training waits for annotations of the size of COCO's: 118,287 images, 262,465 people, no pictures.

Each row is a process of its own that opens the annotations of one dataset, of images for poses or of people for pairs.
`confirmed` is a file that `prepare` wrote and its manifest confirms; `by hand` is the same file without a manifest,
whose records are all checked; `one line` the same without line breaks, as COCO publishes its files. Seconds are those
of the processor, without imports; memory is what the process grew by.

`python -m bench.coco_scale [--images 118287]`
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.table import show
from data.formats.coco import KEYPOINTS, PERSON, SKELETON, to_json, write_coco
from data.formats.skeletons import COCO
from models.base.manifest import MANIFEST
from models.people.data.persons import Persons
from models.pose.train.scene_table import SceneTable

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


def most_resident() -> float:
    """Return the largest resident size of this process so far, MiB; `getrusage` would count its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure(kind: str, folder: Path) -> None:
    """Open the annotations in this process; print seconds and MiB."""
    before, start = most_resident(), time.process_time()
    if kind == "images":
        SceneTable(folder, "train", COCO, PERSON, None)
    else:
        Persons(folder, "train", min_keypoints=8, min_height=60)
    print(time.process_time() - start, most_resident() - before)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.coco_scale")
    parser.add_argument("--images", type=int, default=118_287)
    parser.add_argument("--cell", nargs=2, metavar=("KIND", "FOLDER"), help="measure one, print the numbers")
    args = parser.parse_args()
    if args.cell:
        measure(args.cell[0], Path(args.cell[1]))
        return
    rows: list[list[object]] = [["annotations", "file", "MB", "seconds", "MiB"]]
    with tempfile.TemporaryDirectory() as temporary:
        for kind in KINDS:
            folder = Path(temporary) / kind.replace(" ", "-")
            make(folder, args.images, kind)
            for of in ("images", "people"):
                command = [sys.executable, "-m", "bench.coco_scale", "--cell", of, str(folder)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                size = (folder / "train.json").stat().st_size / 1e6
                rows.append([of, kind, size, *map(float, done.stdout.split())])
    show(rows)


if __name__ == "__main__":
    main()
