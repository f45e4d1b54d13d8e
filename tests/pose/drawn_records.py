"""Annotations and results of drawn images, with crowds, people without joints and objects of other categories."""

from typing import Any

import numpy as np

from figura.data.formats.skeletons import COCO as SKELETON

Record = dict[str, Any]
WIDTH, HEIGHT = 640, 480
CATEGORIES = 5  # the first is people


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
