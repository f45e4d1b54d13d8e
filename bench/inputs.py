"""People for the pose encoders, and fields for the decoder."""

import numpy as np
from numpy.typing import NDArray

from figura.formats.skeletons import COCO as SKELETON
from models.pose.annotations import Annotations
from models.pose.encoders import Caf, Cif

STRIDE = 8
NOISE = 0.01


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
