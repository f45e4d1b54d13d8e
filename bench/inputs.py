"""Drawn numbers that benchmarks and tests give to the pose encoders, the decoder and COCO's figures."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from figura.base.checksums import write_sums
from figura.data.formats.skeletons import COCO as SKELETON
from figura.dump import RecordsFile, Table, write_value
from models.pose.annotations import Annotations
from models.pose.encoders import Caf, Cif

Record = dict[str, Any]
STRIDE = 8
NOISE = 0.01
WIDTH, HEIGHT = 640, 480
CATEGORIES = 5  # the first is people


def scene(people: int, side: int) -> Annotations:
    """Return standing people, a fifth to half as high as the image, all over it."""
    random = np.random.default_rng(0)
    unit = side * random.uniform(0.2, 0.5, (people, 1, 1)) / np.ptp(SKELETON.standing_pose[:, 1])
    joints = (SKELETON.standing_pose - SKELETON.standing_pose.mean(axis=0)) * (1, -1) * unit
    joints += random.uniform(0.15, 0.85, (people, 1, 2)) * side
    corners = joints.min(axis=1)
    return Annotations(
        keypoints=np.concatenate([joints, np.full((*joints.shape[:2], 1), 2.0)], axis=2).astype(np.float32),
        boxes=np.concatenate([corners, joints.max(axis=1) - corners], axis=1).astype(np.float32),
        crowd=np.zeros(people, dtype=bool),
        categories=np.zeros(people, dtype=np.int64),
        ids=np.arange(people),
    )


def fields(people: int, side: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the joint and connection fields of several people, as a network would predict them."""
    drawn, area = scene(people, side), (0.0, 0.0, side - 1.0, side - 1.0)
    cif, caf = (kind(SKELETON, STRIDE, suppress_hidden=None).encode(drawn, (side, side), area) for kind in (Cif, Caf))
    return decoded(cif, 1, 1), decoded(caf, 2, 2)


def decoded(target: NDArray[np.float32], vectors: int, scales: int) -> NDArray[np.float32]:
    """Return a decoder's input fields from a target (F, 1 + 2 `vectors` + `vectors` + `scales`, rows, columns)."""
    generator = np.random.default_rng(1)
    rows, columns = np.indices(target.shape[2:])
    fields = np.zeros((len(target), 2 + 2 * vectors + scales, *target.shape[2:]), dtype=np.float32)
    fields[:, 1] = np.where(target[:, 0] > 0, 0.9, 0.05)
    fields[:, 2 : 2 + 2 * vectors] = np.nan_to_num(target[:, 1 : 1 + 2 * vectors])
    fields[:, 2 : 2 + 2 * vectors : 2] += columns
    fields[:, 3 : 2 + 2 * vectors : 2] += rows
    fields[:, 2 + 2 * vectors :] = np.nan_to_num(target[:, 1 + 3 * vectors :], nan=1.0)
    fields += generator.normal(0, NOISE, fields.shape)
    return fields


def annotations(random: np.random.Generator, image: int, people: int) -> list[Record]:
    """Return the annotations of an image: people, one in 30 a crowd, one in 10 without joints, and two objects."""
    records: list[Record] = []
    pose = SKELETON.standing_pose - SKELETON.standing_pose.min(axis=0)
    for place in range(random.poisson(people)):
        tall = float(np.clip(random.lognormal(4.6, 0.7), 20, 0.95 * HEIGHT))
        shape = (pose / np.ptp(pose[:, 1])) * tall * (1, -1) + (0, tall)
        shape = shape + random.normal(0, 0.03 * tall, shape.shape)
        shape += random.uniform((0, 0), (WIDTH - 0.5 * tall, HEIGHT - tall)) - shape.min(axis=0)
        flags = random.choice([0.0, 1.0, 2.0], p=[0.2, 0.1, 0.7], size=len(shape))
        crowd, bare = random.uniform() < 1 / 30, random.uniform() < 0.1
        flags *= not (crowd or bare)
        corner, extent = shape.min(axis=0), np.ptp(shape, axis=0)
        records.append(
            {
                "id": 1000 * image + place,
                "image_id": image,
                "category_id": 1,
                "iscrowd": int(crowd),
                "bbox": np.round([*corner, *extent], 2).tolist(),
                "area": round(0.6 * float(extent.prod()), 2),
                "num_keypoints": int((flags > 0).sum()),
                "keypoints": np.where(flags[:, None] > 0, np.c_[shape, flags], 0.0).round(2).ravel().tolist(),
            }
        )
    for place in range(random.poisson(2)):
        side = random.uniform(10, 200, 2)
        box = np.round([*random.uniform((0, 0), (WIDTH - 200, HEIGHT - 200)), *side], 2).tolist()
        category = int(random.integers(2, CATEGORIES + 1))
        one = {"id": 1000 * image + 500 + place, "image_id": image, "category_id": category, "iscrowd": 0}
        records.append({**one, "bbox": box, "area": box[2] * box[3]})
    return records


def results(random: np.random.Generator, image: int, truth: list[Record]) -> tuple[list[Record], list[Record]]:
    """Return the people and objects that a detector might find in an image."""
    people, objects = [], []
    for record in truth:
        for second in range(1 + int(random.poisson(0.6))):
            box = np.array(record["bbox"])
            noise = float(random.gamma(2.0, 0.02)) * (1 + second)
            score = float(np.clip(random.normal(0.9 - 4 * noise - 0.3 * second, 0.1), 0.001, 0.999))
            one = {"image_id": image, "category_id": record["category_id"], "score": round(score, 6)}
            if random.uniform() < 0.1:
                continue
            moved = np.round(box + random.normal(0, noise, 4) * box[[2, 3, 2, 3]], 2).clip(0.1).tolist()
            objects.append({**one, "bbox": moved})
            if "keypoints" in record and not record["iscrowd"]:
                joints = np.reshape(record["keypoints"], (-1, 3))
                spread = noise * np.sqrt(record["area"])
                joints = np.c_[joints[:, :2] + random.normal(0, spread, (len(joints), 2)), random.uniform(size=17)]
                people.append({**one, "keypoints": joints.round(4).ravel().tolist(), "bbox": moved})
    for _ in range(random.poisson(2)):
        corner, extent = random.uniform((0, 0), (WIDTH / 2, HEIGHT / 2)), random.uniform(20, 240, 2)
        joints = np.c_[corner + random.uniform(size=(17, 2)) * extent, random.uniform(size=17)]
        box = np.round([*corner, *extent], 2).tolist()
        one = {"image_id": image, "score": round(float(random.uniform(0.001, 0.5)), 6), "bbox": box}
        people.append({**one, "category_id": 1, "keypoints": joints.round(4).ravel().tolist()})
        objects.append({**one, "category_id": int(random.integers(1, CATEGORIES + 1))})
    return people, objects


def write_dump(folder: Path, images: int, people: int, seed: int = 0) -> None:
    """Write a dump of the mode `poses` with the records `truth`, `people` and `objects`."""
    random = np.random.default_rng(seed)
    table = Table(folder / "examples.csv")
    files = {name: RecordsFile(folder / f"{name}.json") for name in ("inputs/truth", "poses/people", "poses/objects")}
    picture = torch.linspace(-1, 1, 192).expand(3, 192, 192)
    for place in range(images):
        name = f"poses/{place:06d}.overlay.image.png"
        write_value(folder / name, picture)
        row = {"mode": "poses", "index": place, "image_id": place + 1, "width": WIDTH, "height": HEIGHT}
        table.add({**row, "file.overlay": name})
        truth = annotations(random, place + 1, people)
        for file, records in zip(files.values(), (truth, *results(random, place + 1, truth)), strict=True):
            file.add(records)
    table.close()
    for file in files.values():
        file.close()
    write_sums(folder)
