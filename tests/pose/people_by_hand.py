"""People at known places, scenes of them, dumps, and what pycocotools says of results."""

import contextlib
import copy
import io
import math
from pathlib import Path

import numpy as np
import torch
from dumps_by_hand import sealed
from pycocotools import coco
from pycocotools.cocoeval import COCOeval

from figura.dump import Dump, RecordsFile, Table, write_value
from figura.formats.skeletons import COCO
from models.pose.annotations import Annotations

SIGMA = 0.1
SIGMAS = (SIGMA, SIGMA)
SKELETON = {
    "keypoints": ["head", "foot"],
    "sigmas": [SIGMA, SIGMA],
    "connections": [["head", "foot"]],
    "standing_pose": [[0.0, 1.0], [0.0, 0.0]],
}
HEIGHT, AREA = 100.0, 5000.0  # of the box of everybody here


def person(image, x, *, flags=(2, 2), number=1, **changes):
    """Somebody standing at x: head at the top, foot at the bottom of a box of 50 x 100 pixels from y = 20."""
    keypoints = [x, 20.0, flags[0], x, 120.0, flags[1]]
    box = [x - 25.0, 20.0, 50.0, HEIGHT]
    labelled = sum(flag > 0 for flag in flags)
    record = {"id": number, "image_id": image, "category_id": 1, "iscrowd": 0, "bbox": box, "area": AREA}
    return record | {"keypoints": keypoints, "num_keypoints": labelled} | changes


def pose(image, x, score, *, off=0.0, confidences=(0.9, 0.9), **changes):
    """What is found of that person, each joint `off` pixels to the right."""
    keypoints = [x + off, 20.0, confidences[0], x + off, 120.0, confidences[1]]
    box = [x - 25.0, 20.0, 50.0, HEIGHT]
    return {"image_id": image, "category_id": 1, "keypoints": keypoints, "bbox": box, "score": score} | changes


def oks(off):
    """Of a pose whose joints are all `off` pixels away: exp(-d^2 / (2 area (2 sigma)^2))."""
    return math.exp(-(off**2) / (2 * AREA * (2 * SIGMA) ** 2))


def dump(folder: Path, image_ids, truth, results, *, name="people", size=(200, 200), images=None, **columns) -> Dump:
    """Write a dump of mode `poses`; `images`, float tensors (3, height, width) or None, become `overlay`."""
    table = Table(folder / "examples.csv")
    for index, image in enumerate(image_ids):
        row = {"mode": "poses", "index": index, "image_id": image, "width": size[0], "height": size[1]}
        row |= {column: values[index] for column, values in columns.items()}
        if images is not None and images[index] is not None:
            row["file.overlay"] = f"poses/{index}.overlay.image.png"
            write_value(folder / row["file.overlay"], torch.as_tensor(images[index]))
        table.add(row)
    table.close()
    for path, records in (("inputs/truth.json", truth), (f"poses/{name}.json", results)):
        file = RecordsFile(folder / path)
        file.add(records)
        file.close()
    return Dump(sealed(folder))


SIZE = (193, 193)  # of the picture in which one stands, in pixels


def standing(unit=16.0, centre=96.0, top=16.0, joints=range(17)):
    """The standing pose of COCO's joints (17, 3), `unit` pixels per unit; only `joints` are labelled."""
    keypoints = np.zeros((17, 3), dtype=np.float32)
    for joint in joints:
        x, y = COCO.standing_pose[joint]
        keypoints[joint] = centre + unit * x, top + unit * (9.7 - y), 2
    return keypoints


def scene_of(keypoints, categories=None):
    """People (N, K, 3) in boxes around their labelled joints, with ids from 0."""
    keypoints = np.float32(keypoints)
    labelled = keypoints[:, :, 2:] > 0
    low = np.where(labelled, keypoints[:, :, :2], np.inf).min(axis=1)
    high = np.where(labelled, keypoints[:, :, :2], -np.inf).max(axis=1)
    return Annotations(
        keypoints=keypoints,
        boxes=np.concatenate([low, high - low], axis=1).astype(np.float32),
        crowd=np.zeros(len(keypoints), dtype=bool),
        categories=np.zeros(len(keypoints), dtype=np.int64) if categories is None else np.array(categories),
        ids=np.arange(len(keypoints)),
    )


def by_pycocotools(truth, results, kind="keypoints", sigmas=None):
    """Return pycocotools' evaluation of results, accumulated; `stats` are its 10 or 12 figures."""
    with contextlib.redirect_stdout(io.StringIO()):
        index = coco.COCO()
        index.dataset = copy.deepcopy(truth)
        index.createIndex()
        evaluator = COCOeval(index, index.loadRes(copy.deepcopy(results)), kind)
        if sigmas is not None:
            evaluator.params.kpt_oks_sigmas = np.array(sigmas)
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return evaluator
