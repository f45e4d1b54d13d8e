"""Which joints the encoders of keypoints use, how large each person is, what is to be ignored.

`joints` float64 (persons, K, 3) (x, y, v) are everywhere those of persons that are no crowd regions.
"""

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from data.formats.skeletons import Connections, Skeleton
from models.pose.train.annotations import Annotations
from models.pose.train.rasters import grid, ignore

Array = NDArray[np.float64]

LEAST_JOINTS = 3  # below, a person's size is unknown
LEAST_POSE_AREA = 0.1  # of the joints seen, in the pose's units: below, they are (nearly) on a line
MOST_CORRECTION = 5.0
LEAST_SCALE = 0.1  # cells
LEAST_COLLISION = 16.0  # pixels
COLLISION_SHARE = 0.2  # of the longest side of two boxes
EIGHTH_TURN = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)


def without_hidden_duplicates(joints: Array, radius: float) -> Array:
    """Drop hidden joints (v = 1) that coincide with somebody's visible joint (v > 1) of the same type.

    They coincide where both coordinates differ by at most `radius` pixels. Returns a copy with v = 0 there.
    """
    hidden, visible = joints[:, :, 2] == 1, joints[:, :, 2] > 1
    kept = joints.copy()
    if hidden.any():
        apart = np.abs(joints[:, None, :, :2] - joints[None, :, :, :2]).max(axis=3)  # (hidden one, visible one, K)
        kept[hidden & ((apart <= radius) & visible[None]).any(axis=1), 2] = 0
    return kept


def without_invisible(joints: Array) -> Array:
    """Drop all joints that are not visible (v < 2)."""
    kept = joints.copy()
    kept[kept[:, :, 2] < 2, 2] = 0
    return kept


def without_collisions(joints: Array, boxes: Array) -> Array:
    """Drop joints of the same type where two persons have them at nearly the same place, both of them.

    Near is within 16 pixels, or a fifth of the longest side of the two boxes (persons, 4) where that is more, in both
    coordinates. Pairs of persons take their turn in order: what an earlier pair dropped collides with nobody else.
    """
    kept = joints.copy()
    for first in range(len(kept)):
        for second in range(first + 1, len(kept)):
            one, other = kept[first], kept[second]
            radius = max(LEAST_COLLISION, COLLISION_SHARE * float(boxes[[first, second], 2:].max()))
            near = np.abs(one[:, :2] - other[:, :2]).max(axis=1) <= radius
            both = near & (one[:, 2] > 0) & (other[:, 2] > 0)
            one[both, 2] = other[both, 2] = 0
    return kept


def instance_scales(joints: Array, standing_pose: Array) -> Array:
    """The scale of each person, float64 (persons,), in the joints' unit; NaN where it is unknown.

    It is the square root of the area of the box around the labelled joints, corrected for those that are missing: by
    how much the box of a standing person, upright or leaning by 45 degrees (the smaller correction counts), shrinks
    when only these joints are seen. Unknown are scales from fewer than three joints, from joints that are on a line
    in the standing person, and below 0.1; `standing_pose` is (K, 2).
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
    """Areas (persons,) of the boxes around the chosen (persons, K) of points (K, 2) or (persons, K, 2)."""
    lowest = np.where(chosen[:, :, None], points, np.inf).min(axis=1)
    highest = np.where(chosen[:, :, None], points, -np.inf).max(axis=1)
    return np.asarray(np.maximum(highest - lowest, 0).prod(axis=1))


def spans(joints: Array, connections: Connections, short: Connections, radius: float) -> NDArray[np.bool_]:
    """Connections (persons, fields) that lead over shorter ones of `short` at both ends.

    Shorter than the connection's length over `radius`; only where both joints are labelled do `short` ones count.
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
    """What the two fields of joints share: the joints to draw, the persons' scales, the regions to ignore.

    All annotations count as persons: leave others out (`Annotations.where`).

    Attributes:
        skeleton: K joints.
        stride: pixels a cell.
        bmin: least spread of the regression, pixels.
        suppress_hidden: leave out a hidden joint (v = 1) that is at most so many pixels, in x and in y, from a visible
            joint of the same type; None leaves none out. The published networks had 32 at 385 pixels; on small images
            that takes legitimate joints away, about a sixteenth of the side does not.
        suppress_invisible: leave out all joints that are not visible, whatever `suppress_hidden` says.
        suppress_collision: leave out both of two joints of the same type that are near each other
            (`without_collisions`).
    """

    skeleton: Skeleton
    stride: int
    _: KW_ONLY
    bmin: float = 0.1
    suppress_hidden: float | None = 32.0
    suppress_invisible: bool = False
    suppress_collision: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        at_least(self.stride, "stride", 1)
        at_least(self.bmin, "bmin", 0)
        if self.suppress_hidden is not None:
            at_least(self.suppress_hidden, "suppress_hidden", 0)

    def persons(self, annotations: Annotations) -> tuple[Array, Array]:
        """Joints float64 (persons, K, 3) of all that are no crowd regions and their scales (persons, K), in cells.

        A joint's scale is its person's times its sigma. Raises ValueError for a number of joints other than K.
        """
        expected, found = len(self.skeleton.keypoints), annotations.keypoints.shape[1]
        if found != expected:
            raise ValueError(f"annotations with {found} keypoints: the skeleton's {expected} are needed")
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
        """Cells (rows, columns) of crowd regions and of persons of whom no joint is labelled, `margin` cells wider."""
        ignored = np.zeros(grid(size, self.stride), dtype=bool)
        unlabelled = ~(annotations.keypoints[:, :, 2] > 0).any(axis=1)
        for box in annotations.boxes[annotations.crowd | unlabelled].astype(np.float64):
            ignore(ignored, box / self.stride, margin)
        return ignored
