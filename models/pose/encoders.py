"""Encoders: annotations of an image -> targets of the composite fields.

A target is float32 (fields, components, rows, columns). Cell (row j, column i) is at pixel (i * stride, j * stride);
vectors, scales, sizes and bmin are in cells. The confidence is 1 in foreground cells and 0 in the background. Losses
ignore cells that are NaN: the confidence is NaN in ignored regions, other components are NaN in the background, and
scales also where the person's scale is unknown. Source: Kreiss, Bertoni and Alahi, "OpenPifPaf: Composite Fields for
Semantic Keypoint Detection and Spatio-Temporal Association", T-ITS 2021, section III, as version 0.13 implements it in
openpifpaf/encoder.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from figura.data.formats.skeletons import Connections, ConnectionSet
from models.pose.annotations import Annotations
from models.pose.joints import KeypointEncoder, at_least, spans
from models.pose.target_rendering import background_outside, blank, draw_bands, draw_patches, grid, ignore

Array = NDArray[np.float64]
Target = NDArray[np.float32]
Area = Sequence[float] | NDArray[np.floating]

BOX_BMIN = 0.05  # bmin of a box, as a fraction of its shorter side


@dataclass(frozen=True, eq=False)
class Cif(KeypointEncoder):
    """Composite intensity field: where the joints are.

    One field per joint of the skeleton. Components: confidence; x and y of the vector to the joint; bmin; the joint's
    scale. A joint covers `side_length` x `side_length` cells, fewer next to another joint of its type.
    """

    components: ClassVar[int] = 5

    _: KW_ONLY
    side_length: int = 4

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        at_least(self.side_length, "side_length", 1)

    @property
    def fields(self) -> int:
        """The number of joints."""
        return len(self.skeleton.keypoints)

    def encode(self, annotations: Annotations, size: tuple[int, int], valid_area: Area) -> Target:
        """Return the target (K, 5, rows, columns) of an image of `size` (height, width).

        Cells outside `valid_area` (x, y, width, height; pixels) are background. A cell belongs to the nearest joint of
        its type. Raises ValueError for a number of joints other than K.
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

    components: ClassVar[int] = 9

    _: KW_ONLY
    connections: ConnectionSet = "standard"
    min_size: int = 3
    aspect_ratio: float = 0.0
    fixed_size: bool = False
    dense_to_sparse_radius: float = 2.0

    def __post_init__(self) -> None:
        """Check the numbers, and that the skeleton has these connections."""
        super().__post_init__()
        at_least(self.min_size, "min_size", 1)
        at_least(self.aspect_ratio, "aspect_ratio", 0)
        if not self.dense_to_sparse_radius > 0:
            raise ValueError(f"dense_to_sparse_radius {self.dense_to_sparse_radius}: more than 0 is needed")
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

    components: ClassVar[int] = 7

    categories: int
    stride: int
    _: KW_ONLY
    side_length: int = 5
    bmin: float = 1.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in {"categories": 1, "stride": 1, "side_length": 1, "bmin": 0}.items():
            at_least(getattr(self, name), name, least)

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
