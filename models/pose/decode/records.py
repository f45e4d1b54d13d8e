"""Decoded people and objects as records in COCO's result format, in pixels of the image file, best first."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.pose.decode.cifcaf import Poses
from models.pose.decode.cifdet import Boxes

Floats = NDArray[np.floating]
Record = dict[str, Any]


def people_records(
    poses: Poses,
    to_original: Floats,
    image_id: int,
    category: int = 1,
    maximum: int = 20,
    least_score: float = 0.0,
) -> list[Record]:
    """Return the best `maximum` poses with a score of at least `least_score` as records.

    A record has `image_id`, `category_id`, `keypoints` (x, y, confidence of each joint, zeros for missing joints),
    `bbox` (around the joints and their scales) and `score`; pixels have two decimals. `to_original` (2, 3) maps pixels
    (x, y, 1) of the network's input to the file's.
    """
    records = []
    for joints, score in zip(poses.keypoints[:maximum], poses.scores, strict=False):
        if score < least_score:
            continue
        present = joints[:, 2] > 0
        places = joints[:, :2] @ to_original[:, :2].T + to_original[:, 2]
        scales = joints[present, 3:4] * np.linalg.norm(to_original[:, 0])
        low, high = (places[present] - scales).min(axis=0), (places[present] + scales).max(axis=0)
        # at least 0.01: a detected joint must not round to a missing one
        triples = np.column_stack([places.round(2), joints[:, 2].clip(0.01, 1).round(4)]) * present[:, None]
        records.append({
            "image_id": image_id,
            "category_id": category,
            "keypoints": [round(float(one), 4) for one in triples.ravel()],
            "bbox": [round(float(one), 2) for one in (*low, *(high - low))],
            "score": round(float(score), 6),
        })  # fmt: skip
    return records


def object_records(
    boxes: Boxes,
    to_original: Floats,
    image_id: int,
    ids: Sequence[int] = (),
    maximum: int = 100,
    least_score: float = 0.0,
) -> list[Record]:
    """Return the best `maximum` boxes with a score of at least `least_score` as records.

    A record has `image_id`, `category_id`, `bbox` and `score`; pixels have two decimals. `ids` are the category ids of
    the fields; without them, ids count the fields from 1. `to_original` is that of `people_records`.
    """
    corners = np.stack([boxes.boxes[:, :2], boxes.boxes[:, :2] + boxes.boxes[:, 2:]], axis=1)
    placed = corners @ to_original[:, :2].T + to_original[:, 2]
    low, high = placed.min(axis=1), placed.max(axis=1)
    return [
        {
            "image_id": image_id,
            "category_id": ids[category] if ids else int(category) + 1,
            "bbox": [round(float(one), 2) for one in (*first, *(last - first))],
            "score": round(float(score), 6),
        }
        for first, last, score, category in zip(low[:maximum], high, boxes.scores, boxes.categories, strict=False)
        if score >= least_score
    ]
