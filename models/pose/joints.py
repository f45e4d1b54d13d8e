"""Shared parts of the keypoint encoders: the joints to draw, the scale of each person, the cells to ignore.

Source: openpifpaf/encoder/annrescaler.py. `joints` float64 (persons, K, 3) (x, y, v) never include crowd regions.
"""

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from figura.data.formats.skeletons import Connections, Skeleton
from models.pose.annotations import Annotations
from models.pose.target_rendering import grid, ignore

Array = NDArray[np.float64]

LEAST_JOINTS = 3  # with fewer, a person's scale is unknown
LEAST_POSE_AREA = 0.1  # of the labelled joints in the pose's units; below, they are (nearly) collinear
MOST_CORRECTION = 5.0
LEAST_SCALE = 0.1  # cells
LEAST_COLLISION = 16.0  # pixels
COLLISION_SHARE = 0.2  # fraction of the longest side of two boxes
EIGHTH_TURN = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)


def without_hidden_duplicates(joints: Array, radius: float) -> Array:
    """Drop hidden joints (v = 1) that coincide with a visible joint (v > 1) of the same type.

    Two joints coincide if both coordinates differ by at most `radius` pixels. Returns a copy with v = 0 for them.
    """
    hidden, visible = joints[:, :, 2] == 1, joints[:, :, 2] > 1
    joints = joints.copy()
    if hidden.any():
        apart = np.abs(joints[:, None, :, :2] - joints[None, :, :, :2]).max(axis=3)  # (hidden, visible, K)
        joints[hidden & ((apart <= radius) & visible[None]).any(axis=1), 2] = 0
    return joints


def without_invisible(joints: Array) -> Array:
    """Drop all joints that are not visible (v < 2)."""
    joints = joints.copy()
    joints[joints[:, :, 2] < 2, 2] = 0
    return joints


def without_collisions(joints: Array, boxes: Array) -> Array:
    """Drop both joints if two persons have the same joint at nearly the same position.

    That is within 16 pixels in both coordinates, or within a fifth of the longest side of the two boxes (persons, 4) if
    that is more. Pairs of persons are processed in order; a joint dropped for one pair does not collide again.
    """
    joints = joints.copy()
    for first in range(len(joints)):
        for second in range(first + 1, len(joints)):
            one, other = joints[first], joints[second]
            radius = max(LEAST_COLLISION, COLLISION_SHARE * float(boxes[[first, second], 2:].max()))
            near = np.abs(one[:, :2] - other[:, :2]).max(axis=1) <= radius
            both = near & (one[:, 2] > 0) & (other[:, 2] > 0)
            one[both, 2] = other[both, 2] = 0
    return joints


def instance_scales(joints: Array, standing_pose: Array) -> Array:
    """Return the scale of each person, float64 (persons,), in the joints' unit; NaN if unknown.

    The scale is the square root of the area of the box around the labelled joints, corrected for missing joints. The
    correction is the ratio between the box of a complete standing person and the box of the same labelled joints in it,
    for a person upright or leaning by 45 degrees, whichever is smaller. The scale is unknown for fewer than three
    joints, for joints that are collinear in the standing person, and below 0.1. `standing_pose` is (K, 2).
    """
    labelled = joints[:, :, 2] > 0
    corrections = np.full((2, len(joints)), np.inf)
    for correction, pose in zip(corrections, (standing_pose, standing_pose @ EIGHTH_TURN.T), strict=True):
        seen = _areas(pose, labelled)
        np.divide(_areas(pose, np.ones_like(labelled[:1])), seen, out=correction, where=seen > LEAST_POSE_AREA)
    factor = np.sqrt(corrections.min(axis=0))
    scales = np.sqrt(_areas(joints[:, :, :2], labelled)) * np.minimum(factor, MOST_CORRECTION)
    known = (labelled.sum(axis=1) >= LEAST_JOINTS) & np.isfinite(factor) & (scales >= LEAST_SCALE)
    return np.where(known, scales, np.nan)


def _areas(points: Array, chosen: NDArray[np.bool_]) -> Array:
    """Areas (persons,) of the boxes around the `chosen` (persons, K) points, (K, 2) or (persons, K, 2)."""
    lowest = np.where(chosen[:, :, None], points, np.inf).min(axis=1)
    highest = np.where(chosen[:, :, None], points, -np.inf).max(axis=1)
    return np.asarray(np.maximum(highest - lowest, 0).prod(axis=1))


def spans(joints: Array, connections: Connections, short: Connections, radius: float) -> NDArray[np.bool_]:
    """Find the connections (persons, fields) with a shorter connection of `short` at both of their ends.

    Shorter means: shorter than the connection's length / `radius`. Only labelled joints form a connection of `short`.
    """
    shortest = np.full(joints.shape[:2], np.inf)
    for one, other in short:
        both = (joints[:, one, 2] > 0) & (joints[:, other, 2] > 0)
        length = np.where(both, _lengths(joints[:, one] - joints[:, other]), np.inf)
        for end in (one, other):
            np.minimum(shortest[:, end], length, out=shortest[:, end])
    first, second = np.array(connections).T
    limit = _lengths(joints[:, first] - joints[:, second]) / radius
    return np.asarray((shortest[:, first] < limit) & (shortest[:, second] < limit))


def _lengths(vectors: Array) -> Array:
    """Lengths (...) of vectors (..., 3) in x and y."""
    return np.asarray(np.hypot(vectors[..., 0], vectors[..., 1]))


def at_least(value: float, name: str, least: float) -> None:
    """Raise ValueError for a number below `least`."""
    if not value >= least:
        raise ValueError(f"{name} {value}: at least {least:g} is needed")


@dataclass(frozen=True, eq=False)
class KeypointEncoder:
    """Base class of the two keypoint encoders: the joints to draw, the persons' scales, the cells to ignore.

    All annotations are treated as persons: filter others before (`Annotations.where`).

    Attributes:
        skeleton: K joints.
        stride: pixels per cell.
        bmin: minimum error of the regression, pixels.
        suppress_hidden: drop a hidden joint (v = 1) within this many pixels, in x and in y, of a visible joint of the
            same type; None drops none. The published networks used 32 at 385 pixels. On small images, this also drops
            valid joints; about a sixteenth of the side does not.
        suppress_invisible: drop all joints that are not visible, regardless of `suppress_hidden`.
        suppress_collision: drop both of two joints of the same type that are near each other (`without_collisions`).
    """

    skeleton: Skeleton
    stride: int
    _: KW_ONLY
    bmin: float = 0.1
    suppress_hidden: float | None = 32.0
    suppress_invisible: bool = False
    suppress_collision: bool = False

    def __post_init__(self) -> None:
        at_least(self.stride, "stride", 1)
        at_least(self.bmin, "bmin", 0)
        if self.suppress_hidden is not None:
            at_least(self.suppress_hidden, "suppress_hidden", 0)

    def persons(self, annotations: Annotations) -> tuple[Array, Array]:
        """Return joints float64 (persons, K, 3) and their scales (persons, K) in cells; crowd regions are excluded.

        A joint's scale is its person's scale times the joint's sigma. Raises ValueError for a number of joints other
        than K.
        """
        expected, count = len(self.skeleton.keypoints), annotations.keypoints.shape[1]
        if count != expected:
            raise ValueError(f"annotations with {count} keypoints: the skeleton's {expected} are needed")
        chosen = ~annotations.crowd
        joints = annotations.keypoints[chosen].astype(np.float64)
        if self.suppress_invisible:
            joints = without_invisible(joints)
        elif self.suppress_hidden is not None:
            joints = without_hidden_duplicates(joints, self.suppress_hidden)
        if self.suppress_collision:
            joints = without_collisions(joints, annotations.boxes[chosen].astype(np.float64))
        joints[:, :, :2] /= self.stride
        return joints, instance_scales(joints, self.skeleton.standing_pose)[:, None] * self.skeleton.sigmas

    def ignored(self, annotations: Annotations, size: tuple[int, int], margin: float) -> NDArray[np.bool_]:
        """Mark cells (rows, columns) of crowd regions and of persons without labelled joints, plus `margin` cells."""
        ignored = np.zeros(grid(size, self.stride), dtype=bool)
        unlabelled = ~(annotations.keypoints[:, :, 2] > 0).any(axis=1)
        for box in annotations.boxes[annotations.crowd | unlabelled].astype(np.float64):
            ignore(ignored, box / self.stride, margin)
        return ignored
