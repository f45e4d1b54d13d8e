"""Encoders: annotations of an image -> targets of the composite fields.

A target is float32 (fields, components, rows, columns). Cell (row j, column i) is at pixel (i * stride, j * stride);
vectors, scales, sizes and bmin are in cells. The confidence is 1 in foreground cells and 0 in the background. Losses
ignore cells that are NaN: the confidence is NaN in ignored regions, other components are NaN in the background, and
scales also where the person's scale is unknown. Source: Kreiss, Bertoni and Alahi, "OpenPifPaf: Composite Fields for
Semantic Keypoint Detection and Spatio-Temporal Association", T-ITS 2021, section III, as version 0.13 implements it in
openpifpaf/encoder. `joints` float64 (persons, K, 3) (x, y, v) never include crowd regions.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from figura.formats.skeletons import Connections, ConnectionSet, Skeleton

from .annotations import Annotations
from .argument_types import Count, Kind, NonNegative, Positive
from .target_rendering import background_outside, blank, draw_bands, draw_patches, grid, ignore

Array = NDArray[np.float64]
Target = NDArray[np.float32]
Area = Sequence[float] | NDArray[np.floating]

BOX_BMIN = 0.05  # bmin of a box, as a fraction of its shorter side
LEAST_JOINTS = 3  # with fewer, a person's scale is unknown
LEAST_POSE_AREA = 0.1  # of the labelled joints in the pose's units; below, they are (nearly) collinear
MOST_CORRECTION = 5.0
LEAST_SCALE = 0.1  # cells
LEAST_COLLISION = 16.0  # pixels
COLLISION_SHARE = 0.2  # fraction of the longest side of two boxes
EIGHTH_TURN = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)


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
    stride: Count
    _: KW_ONLY
    bmin: NonNegative = 0.1
    suppress_hidden: NonNegative | None = 32.0
    suppress_invisible: bool = False
    suppress_collision: bool = False

    def persons(self, annotations: Annotations) -> tuple[Array, Array]:
        """Return joints float64 (persons, K, 3) and their scales (persons, K) in cells; crowd regions are excluded.

        A joint's scale is its person's scale times the joint's sigma.
        """
        chosen = ~annotations.crowd
        joints = annotations.keypoints[chosen].astype(np.float64)
        if self.suppress_invisible:
            joints[joints[:, :, 2] < 2, 2] = 0
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


@dataclass(frozen=True, eq=False)
class Cif(KeypointEncoder):
    """Composite intensity field: where the joints are.

    One field per joint of the skeleton. Components: confidence; x and y of the vector to the joint; bmin; the joint's
    scale. A joint covers `side_length` x `side_length` cells, fewer next to another joint of its type.
    """

    kind: ClassVar[Kind] = "cif"
    components: ClassVar[int] = 5

    _: KW_ONLY
    side_length: Count = 4

    @property
    def fields(self) -> int:
        """The number of joints."""
        return len(self.skeleton.keypoints)

    def encode(self, annotations: Annotations, size: tuple[int, int], valid_area: Area) -> Target:
        """Return the target (K, 5, rows, columns) of an image of `size` (height, width).

        Cells outside `valid_area` (x, y, width, height; pixels) are background. A cell belongs to the nearest joint of
        its type.
        """
        joints, scales = self.persons(annotations)
        target, distances = blank(
            self.fields, self.components, self.ignored(annotations, size, (self.side_length - 1) / 2)
        )
        person, joint = _places(joints[:, :, 2] > 0)
        constants = np.full((len(joint), 2), self.bmin / self.stride)
        constants[:, 1] = scales[person, joint]
        centres = joints[person, joint, :2]
        draw_patches(target, distances, joint, centres, constants, self.side_length, math.inf)
        background_outside(target, valid_area, self.stride)
        return target


@dataclass(frozen=True, eq=False)
class Caf(KeypointEncoder):
    """Composite association field: which joints belong together.

    There is one field per connection. Components: confidence; x and y of the vectors to the first and to the second
    joint; bmin, twice; the scales of the two joints. At most the middle half of a limb is foreground. The encoder skips
    limbs with both ends outside the image. It skips a dense connection also if one end is outside, or if a standard
    connection of the person shorter than the length / `dense_to_sparse_radius` starts at each of its ends.

    Attributes:
        connections: which connections of the skeleton to encode.
        min_size: minimum width of the foreground, cells.
        aspect_ratio: width as a fraction of the limb's length, where that is more than `min_size`.
        fixed_size: foreground only around the limb's centre.
        dense_to_sparse_radius: see above.
    """

    kind: ClassVar[Kind] = "caf"
    components: ClassVar[int] = 9

    _: KW_ONLY
    connections: ConnectionSet = "standard"
    min_size: Count = 3
    aspect_ratio: NonNegative = 0.0
    fixed_size: bool = False
    dense_to_sparse_radius: Positive = 2.0

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError(f"connections {self.connections}: the skeleton has none, others are needed")

    @property
    def pairs(self) -> Connections:
        """The connected joints, one pair per field."""
        return self.skeleton.connection_set(self.connections)

    @property
    def fields(self) -> int:
        """The number of connections."""
        return len(self.pairs)

    def encode(self, annotations: Annotations, size: tuple[int, int], valid_area: Area) -> Target:
        """Return the target (fields, 9, rows, columns), as `Cif.encode`. A cell belongs to the nearest line."""
        joints, scales = self.persons(annotations)
        target, distances = blank(
            self.fields, self.components, self.ignored(annotations, size, (self.min_size - 1) / 2)
        )
        first, second = np.array(self.pairs).T
        rows, columns = target.shape[2:]
        nearest = np.clip(joints[:, :, :2], 0, (columns - 1, rows - 1))
        inside: NDArray[np.bool_] = (nearest == joints[:, :, :2]).all(axis=2)
        labelled = joints[:, :, 2] > 0
        drawn = labelled[:, first] & labelled[:, second]
        if self.connections == "dense":
            drawn &= (
                inside[:, first]
                & inside[:, second]
                & ~spans(joints, self.pairs, self.skeleton.connections, self.dense_to_sparse_radius)
            )
        else:
            drawn &= inside[:, first] | inside[:, second]
        person, field = _places(drawn)
        one, other = first[field], second[field]
        constants = np.full((len(field), 4), self.bmin / self.stride)
        constants[:, 2], constants[:, 3] = scales[person, one], scales[person, other]
        starts, ends = joints[person, one, :2], joints[person, other, :2]
        sizes = self.min_size, float(self.aspect_ratio), self.fixed_size
        draw_bands(target, distances, field, starts, ends, constants, *sizes)
        background_outside(target, valid_area, self.stride)
        return target


@dataclass(frozen=True, eq=False)
class CifDet:
    """Composite detection field: centres and sizes of boxes.

    There is one field per category. Components: confidence; x and y of the vector to the centre; width and height of
    the box; bmin of the vector and of the size. A box covers `side_length` x `side_length` cells around its centre.
    Those farther away than (`side_length` - 1) / 2 have vectors but an ignored (NaN) confidence. A crowd region is
    ignored in the field of its category.

    Attributes:
        categories: number of categories.
        stride: pixels per cell.
        side_length: side of a centre's patch, cells.
        bmin: least error of the regression, pixels; a twentieth of the box's shorter side where that is more.
    """

    kind: ClassVar[Kind] = "cifdet"
    components: ClassVar[int] = 7

    categories: Count
    stride: Count
    _: KW_ONLY
    side_length: Count = 5
    bmin: NonNegative = 1.0

    @property
    def fields(self) -> int:
        """The number of categories."""
        return self.categories

    def encode(self, annotations: Annotations, size: tuple[int, int], valid_area: Area) -> Target:
        """Return the target (categories, 7, rows, columns), as `Cif.encode`. A cell belongs to the nearest centre.

        Raises:
            ValueError: a category without a field and for a box without area; names the annotation's id.
        """
        boxes = annotations.boxes.astype(np.float64) / self.stride
        reach = (self.side_length - 1) / 2
        self._check(annotations)
        ignored = np.zeros((self.categories, *grid(size, self.stride)), dtype=bool)
        for place in np.flatnonzero(annotations.crowd):
            ignore(ignored[annotations.categories[place]], boxes[place], reach)
        target, distances = blank(self.categories, self.components, ignored)
        fields, boxes = annotations.categories[~annotations.crowd], boxes[~annotations.crowd]
        bmin = np.maximum(BOX_BMIN * boxes[:, 2:].min(axis=1, keepdims=True), self.bmin / self.stride)
        constants = np.concatenate([boxes[:, 2:], bmin, bmin], axis=1)
        draw_patches(target, distances, fields, boxes[:, :2] + boxes[:, 2:] / 2, constants, self.side_length, reach)
        background_outside(target, valid_area, self.stride)
        return target

    def _check(self, annotations: Annotations) -> None:
        unknown = (annotations.categories < 0) | (annotations.categories >= self.categories)
        flat = ~(annotations.boxes[:, 2:] > 0).all(axis=1) & ~annotations.crowd
        for place in np.flatnonzero(unknown | flat)[:1]:
            where, last = f"annotation {annotations.ids[place]}", self.categories - 1
            if unknown[place]:
                raise ValueError(f"{where}: category {annotations.categories[place]}: 0 to {last} are the fields")
            width, height = annotations.boxes[place, 2:].tolist()
            raise ValueError(f"{where}: a box of {width:g} x {height:g} pixels: it needs an area")


def _places(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the true entries, in row order; contiguous, so that numba compiles for one kind of array."""
    return np.divmod(np.flatnonzero(chosen), chosen.shape[1])


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
