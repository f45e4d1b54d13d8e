"""Scenes transformed by albumentations: the entry `augmentation.further` of `Scenes`."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from figura.formats.skeletons import Skeleton

from ..images.further_transforms import Entries, transformed_with_points
from .affine import Placement, as_box, as_corners, corner_points, enclosing
from .annotations import Annotations


def moved_scene(
    picture: NDArray[np.uint8], placed: Annotations, placement: Placement, entries: Entries, skeleton: Skeleton,
    random: np.random.Generator,
) -> tuple[NDArray[np.uint8], Annotations, Placement]:  # fmt: skip
    """Transform a picture and its annotations by albumentations, and drop those that are then outside.

    Boxes and the valid area become the upright boxes around their corners. Left and right joints are swapped if the
    transform mirrors, which three points at the middle tell. The result's `to_original` is that of before.
    """
    height, width = picture.shape[:2]
    compass = np.array([width / 2, height / 2]) + np.array([(0.0, 0.0), (width / 4, 0.0), (0.0, height / 4)])
    corners = as_corners(np.concatenate([placed.boxes, placement.valid_area[None]]))
    parts = [placed.keypoints[..., :2].reshape(-1, 2).astype(np.float64), corner_points(corners).reshape(-1, 2)]
    picture, moved = transformed_with_points(picture, np.concatenate([*parts, compass]), entries, random)
    joints, rectangles, (origin, right, down) = np.split(moved, np.cumsum([len(part) for part in parts]))
    keypoints = placed.keypoints.copy()
    keypoints[..., :2] = joints.reshape((*keypoints.shape[:2], 2))
    if np.linalg.det([right - origin, down - origin]) < 0 and keypoints.shape[1]:
        keypoints = keypoints[:, skeleton.flip]
    corners = enclosing(rectangles.reshape(-1, 4, 2))
    placement = replace(placement, corners=np.clip(corners[-1], 0.0, [width - 1, height - 1] * 2))
    shown = placement.shown(as_box(corners[:-1]))
    placed = replace(placed, keypoints=keypoints, boxes=shown)
    return picture, placed.where(shown[:, 2:].prod(axis=1) > 0), placement
