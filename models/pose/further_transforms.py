"""Transforms of albumentations that move a scene: its picture, joints, boxes and valid area."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from figura.data.formats.skeletons import Skeleton
from models.images.further_transforms import Entries, transformed_with_points
from models.pose.affine import Placement
from models.pose.annotations import Annotations

Points = NDArray[np.float64]


def moved_scene(
    picture: NDArray[np.uint8], placed: Annotations, placement: Placement, entries: Entries, skeleton: Skeleton,
    random: np.random.Generator,
) -> tuple[NDArray[np.uint8], Annotations, Placement]:  # fmt: skip
    """Transform a picture and its annotations, and drop those that are then outside.

    Boxes and the valid area become the upright boxes around their corners. Left and right joints are swapped if the
    transform mirrors, which three points at the middle tell. The result's `to_original` is that of before.
    """
    height, width = picture.shape[:2]
    middle = np.array([width / 2, height / 2])
    compass = middle + np.array([(0.0, 0.0), (width / 4, 0.0), (0.0, height / 4)])
    parts = [placed.keypoints[..., :2], _corners(placed.boxes), _corners(placement.valid_area[None]), compass]
    flat = [part.reshape(-1, 2).astype(np.float64) for part in parts]
    picture, moved = transformed_with_points(picture, np.concatenate(flat), entries, random)
    joints, boxes, area, (origin, right, down) = np.split(moved, np.cumsum([len(part) for part in flat])[:-1])
    keypoints = placed.keypoints.copy()
    keypoints[..., :2] = joints.reshape((*keypoints.shape[:2], 2))
    if np.linalg.det([right - origin, down - origin]) < 0 and keypoints.shape[1]:
        keypoints = keypoints[:, skeleton.flip]
    low, high = area.min(axis=0), area.max(axis=0)
    corners = np.clip([*low, *high], 0.0, [width - 1, height - 1] * 2)
    placement = replace(placement, corners=corners)
    shown = placement.shown(_around(boxes.reshape(-1, 4, 2)))
    placed = replace(placed, keypoints=keypoints, boxes=shown)
    return picture, placed.where(shown[:, 2:].prod(axis=1) > 0), placement


def _corners(boxes: NDArray[np.floating]) -> Points:
    """(n, 4), x, y, width, height -> the corners, (n, 4, 2)."""
    x, y, width, height = np.asarray(boxes, dtype=np.float64).T
    across, down = np.stack([x, x + width, x + width, x], axis=1), np.stack([y, y, y + height, y + height], axis=1)
    return np.stack([across, down], axis=2)


def _around(corners: Points) -> NDArray[np.float64]:
    """Return the upright boxes (n, 4) around corners (n, 4, 2)."""
    low, high = corners.min(axis=1), corners.max(axis=1)
    return np.concatenate([low, high - low], axis=1)
