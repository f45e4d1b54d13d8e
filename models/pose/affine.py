"""Affine augmentation: its settings, and one map from an image to the network's input, of pixels, joints and boxes.

Coordinates are in pixels, x before y. 0 is the centre of the first pixel: an image `w` pixels wide spans 0 to w - 1,
and resizing to w' multiplies x by (w' - 1) / (w - 1).
Source: openpifpaf/transforms.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ..images.augmentation_settings import Chance, Limits, Section

Matrix = NDArray[np.float64]
Colour = tuple[int, int, int]

MEAN_COLOUR: Colour = (124, 116, 104)  # ImageNet's mean, RGB: the padding without `padding`

Factor = Annotated[float, Field(gt=0.0, le=100.0)]
Length = Annotated[int, Field(ge=2, le=65_536)]
Degrees = Annotated[float, Field(ge=-180.0, le=180.0)]
Level = Annotated[int, Field(ge=0, le=255)]


class Rescale(Section):
    """Random resizing; one of `relative` and `absolute` is needed.

    `relative` limits a factor on the image's size ((0.4, 2.0) in OpenPifPaf, extended (0.25, 2.0)); `absolute` limits
    the longer side in pixels. Both are uniform in the logarithm. `stretch` limits another factor, only on the width.
    """

    relative: Limits[Factor] | None = None
    absolute: Limits[Length] | None = None
    stretch: Limits[Factor] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.relative is None) == (self.absolute is None):
            raise ValueError("one of `relative` (a factor) and `absolute` (the longer side in pixels) is needed")
        return self


class Rotation(Chance):
    """Random rotation by an angle, uniform between its limits, counter-clockwise."""

    degrees: Limits[Degrees]


class Crop(Section):
    """The position of the square crop in a larger image: it shows the boxes and `margin` pixels around them.

    `uniform` draws uniformly among these positions. `reference` draws from the lowest tenth of them, as in the training
    of the published OpenPifPaf models.
    """

    place: Literal["uniform", "reference"] = "uniform"
    margin: float = Field(default=50.0, ge=0.0)


class Geometry(Section):
    """Affine augmentation, in the order of the entries. A missing entry is off; without `rescale` the image is fitted.

    `orientation_invariant` is the probability of 0, 1, 2 or 3 quarter turns, `rotation` that of another angle; at most
    one of them is applied. Images smaller than the square are centred on a grey between the limits of `padding`, or on
    `MEAN_COLOUR`. `ignore_small` and `ignore_cut` convert boxes to ignored regions: those with a width or height of at
    most this many pixels, and those with at most this fraction of their area left.
    """

    horizontal_flip: Chance | None = None
    rescale: Rescale | None = None
    orientation_invariant: Chance | None = None
    rotation: Rotation | None = None
    crop: Crop = Crop()
    padding: Limits[Level] | None = None
    ignore_small: float | None = Field(default=None, ge=0.0)
    ignore_cut: float | None = Field(default=None, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(one.chance for one in (self.orientation_invariant, self.rotation) if one) > 1.0:
            raise ValueError(
                "the chances of `orientation_invariant` and `rotation` exclude each other: at most 1 in all"
            )
        return self


@dataclass(frozen=True)
class Placement:
    """The placement of an image on a canvas.

    Attributes:
        matrix: float64 (3, 3), maps pixels of the image to pixels of the canvas.
        span: the canvas's last x and y: width - 1 and height - 1.
        corners: float64 (4,), the part of the canvas that shows the image: left, top, right, bottom.
        mirrored: whether left and right are swapped.
    """

    matrix: Matrix
    span: tuple[float, float]
    corners: NDArray[np.float64]
    mirrored: bool = False

    @property
    def valid_area(self) -> NDArray[np.float32]:
        """The part of the canvas that shows the image, float32 (4,): x, y, width, height."""
        return as_box(self.corners[None])[0].astype(np.float32)

    @property
    def to_original(self) -> NDArray[np.float32]:
        """The map of pixels (x, y, 1) of the canvas to those of the image, float32 (2, 3)."""
        return np.linalg.inv(self.matrix)[:2].astype(np.float32)

    def moved(self, step: Matrix, span: tuple[float, float]) -> Self:
        """Return the placement after one more map `step` (3, 3), to a canvas of another span."""
        limits = np.array([*span, *span])
        corners = np.clip(_mapped(step, self.corners[None])[0], 0.0, limits)
        return replace(self, matrix=step @ self.matrix, span=span, corners=corners)

    def keypoints(self, keypoints: NDArray[np.floating], flip: tuple[int, ...]) -> NDArray[np.float32]:
        """Map keypoints (n, K, 3) (x, y, v) to the canvas; if mirrored, `flip` swaps left and right joints."""
        placed = np.array(keypoints, dtype=np.float64)
        placed[..., :2] = placed[..., :2] @ self.matrix[:2, :2].T + self.matrix[:2, 2]
        return (placed[:, flip] if self.mirrored else placed).astype(np.float32)

    def boxes(self, boxes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map boxes (n, 4) (x, y, width, height) to the upright boxes around their corners; does not clip them."""
        return as_box(_mapped(self.matrix, as_corners(boxes))).astype(np.float32)

    def shown(self, boxes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Clip boxes (n, 4) of the canvas to the valid area; boxes outside get a width or height of 0."""
        low, high = np.tile(self.corners[:2], 2), np.tile(self.corners[2:], 2)
        return as_box(np.clip(as_corners(boxes), low, high)).astype(np.float32)

    def picture(self, image: NDArray[np.uint8], colour: Colour) -> NDArray[np.uint8]:
        """Render the canvas, uint8 (height, width, 3), with `colour` around the image.

        Samples the image once, bilinearly. An image reduced to half its size or less is first averaged over blocks of
        pixels, no larger than the factor, so that every pixel contributes.
        """
        height, width = image.shape[:2]
        matrix = self.matrix
        # the norms are the lengths on the canvas of one image pixel along x and y
        blocks = [max(1, int(1.0 / step + 1e-6)) for step in np.linalg.norm(matrix[:2, :2], axis=0)]
        if max(blocks) > 1:
            size = (-(-width // blocks[0]), -(-height // blocks[1]))
            image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
            x, y = width / size[0], height / size[1]
            matrix = matrix @ _scaled(x, y, (x - 1) / 2, (y - 1) / 2)
        size = (int(self.span[0]) + 1, int(self.span[1]) + 1)
        # Replicate edge pixels, then paint everything outside the outline: blending with `colour` would smear the edge.
        picture = cv2.warpAffine(image, matrix[:2], size, borderMode=cv2.BORDER_REPLICATE)
        outline = np.array([(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]) @ self.matrix[:2, :2].T
        inside = np.zeros(size[::-1], dtype=np.uint8)
        cv2.fillConvexPoly(inside, np.rint((outline + self.matrix[:2, 2]) * 16).astype(np.int32), 1, shift=4)
        canvas = np.full((*size[::-1], 3), colour, dtype=np.uint8)
        return np.asarray(cv2.copyTo(picture, inside, canvas), dtype=np.uint8)


def identity_placement(width: int, height: int) -> Placement:
    """Return the placement of an image on a canvas of the same size."""
    span = (float(width - 1), float(height - 1))
    return Placement(np.eye(3), span, np.array([0.0, 0.0, *span]))


def fitted(width: int, height: int, side: int) -> Placement:
    """Fit the image into the middle of a square: its longer side becomes `side` pixels."""
    return _padded(
        _resized(identity_placement(width, height), *_fitting(width, height, side)), (side - 1.0, side - 1.0)
    )


def fit_to_multiple(width: int, height: int, longer: int, multiple: int) -> Placement:
    """Resize the longer side to `longer` pixels, then centre on the smallest canvas of sides n `multiple` + 1."""
    placement = _resized(identity_placement(width, height), *_fitting(width, height, longer))
    last_x, last_y = (float(np.ceil(span / multiple) * multiple) for span in placement.span)
    return _padded(placement, (last_x, last_y))


def random_placement(
    width: int, height: int, side: int, interest: NDArray[np.floating], settings: Geometry, random: np.random.Generator
) -> Placement:
    """Draw a random placement of an image on a square of `side` pixels.

    Crops prefer the boxes `interest` (n, 4) of the image. Rotation enlarges the canvas, so that only the crop cuts the
    image. Source: the training transforms of openpifpaf/plugins/coco/cocokp.py and cocodet.py.
    """
    placement = identity_placement(width, height)
    if settings.horizontal_flip and random.random() < settings.horizontal_flip.chance:
        mirror = np.array([[-1.0, 0.0, width - 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        placement = replace(placement.moved(mirror, placement.span), mirrored=True)
    placement = _resized(placement, *_size(width, height, side, settings.rescale, random))
    placement = _turned(placement, _angle(settings, random))
    cropped = _cropped(placement, side, placement.boxes(interest), settings.crop, random)
    return _padded(cropped, (side - 1.0, side - 1.0))


def random_padding_colour(settings: Geometry, random: np.random.Generator) -> Colour:
    """Draw the padding colour: a grey between the limits of `padding`, both included, or `MEAN_COLOUR`."""
    if settings.padding is None:
        return MEAN_COLOUR
    level = int(random.integers(*settings.padding, endpoint=True))
    return level, level, level


def _fitting(width: int, height: int, longer: int, stretch: float = 1.0) -> tuple[int, int]:
    return int(width * longer / max(width, height) * stretch), int(height * longer / max(width, height))


def _size(width: int, height: int, side: int, rescale: Rescale | None, random: np.random.Generator) -> tuple[int, int]:
    if rescale is None:
        return _fitting(width, height, side)

    def between(limits: tuple[float, float]) -> float:
        return float(np.exp2(random.uniform(*np.log2(limits))))

    stretch = 1.0 if rescale.stretch is None else float(random.uniform(*rescale.stretch))
    if rescale.absolute is not None:
        return _fitting(width, height, round(between(rescale.absolute)), stretch)
    assert rescale.relative is not None
    factor = between(rescale.relative)
    return int(width * factor * stretch), int(height * factor)


def _resized(placement: Placement, width: int, height: int) -> Placement:
    span = (max(width, 2) - 1.0, max(height, 2) - 1.0)  # at least two pixels, so that the map is invertible
    factors = [new / max(old, 1.0) for new, old in zip(span, placement.span, strict=True)]
    return placement.moved(_scaled(*factors), span)


def _angle(settings: Geometry, random: np.random.Generator) -> float:
    quarter, rotation = settings.orientation_invariant, settings.rotation
    if quarter is None and rotation is None:
        return 0.0
    chance = random.random()
    if quarter is not None and chance < quarter.chance:
        return 90.0 * int(random.integers(4))
    if rotation is not None and chance - (quarter.chance if quarter else 0.0) < rotation.chance:
        return float(random.uniform(*rotation.degrees))
    return 0.0


def _turned(placement: Placement, degrees: float) -> Placement:
    """Rotate counter-clockwise on screen about the middle, and enlarge the canvas to fit."""
    if not degrees:
        return placement
    quarters = {90.0: (0.0, 1.0), 180.0: (-1.0, 0.0), 270.0: (0.0, -1.0)}  # exact, so that pixels map to pixels
    cos, sin = quarters.get(degrees) or (float(np.cos(np.radians(degrees))), float(np.sin(np.radians(degrees))))
    width, height = placement.span
    span = (abs(cos) * width + abs(sin) * height, abs(sin) * width + abs(cos) * height)
    turn = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])
    return placement.moved(_shifted(span[0] / 2, span[1] / 2) @ turn @ _shifted(-width / 2, -height / 2), span)


def _cropped(
    placement: Placement, side: int, interest: NDArray[np.floating], crop: Crop, random: np.random.Generator
) -> Placement:
    """Crop what is longer than `side` pixels, around the area of interest (openpifpaf/transforms/crop.py)."""
    edge = side - 1.0
    offsets, span = [0.0, 0.0], list(placement.span)
    for axis, length in enumerate(placement.span):
        if length <= edge:
            continue
        share = float(np.clip(random.uniform(-0.1, 1.1 if crop.place == "uniform" else 0.1), 0.0, 1.0))
        low, high = _offsets(placement, axis, edge, interest, crop.margin)
        # integer offsets do not blur a canvas that was only resized; at its far end there may be none
        offsets[axis] = min(float(np.floor(low + (high - low) * share)), length - edge)
        span[axis] = edge
    return placement.moved(_shifted(-offsets[0], -offsets[1]), (span[0], span[1]))


def _offsets(
    placement: Placement, axis: int, edge: float, interest: NDArray[np.floating], margin: float
) -> tuple[float, float]:
    """Return the lowest and the highest offset of a crop of this span along an axis."""
    start, end = placement.corners[axis], placement.corners[axis + 2]
    first, last = start, end
    if len(interest):
        first = np.clip(interest[:, axis].min() - margin, start, end)
        last = np.clip((interest[:, axis] + interest[:, axis + 2]).max() + margin, start, end)
    if last - first > edge:
        return first, last - edge
    floor, ceiling = (start, end) if end - start > edge else (0.0, placement.span[axis])
    return max(last - edge, floor), min(first, ceiling - edge)


def _padded(placement: Placement, span: tuple[float, float]) -> Placement:
    """Centre the canvas on a larger one, at integer offsets."""
    offsets = (float(np.floor((new - old) / 2)) for new, old in zip(span, placement.span, strict=True))
    return placement.moved(_shifted(*offsets), span)


def _scaled(x: float, y: float, dx: float = 0.0, dy: float = 0.0) -> Matrix:
    return np.array([[x, 0.0, dx], [0.0, y, dy], [0.0, 0.0, 1.0]])


def _shifted(x: float, y: float) -> Matrix:
    return _scaled(1.0, 1.0, x, y)


def as_corners(boxes: NDArray[np.floating]) -> Matrix:
    """Convert boxes (n, 4) (x, y, width, height) to left, top, right and bottom, float64."""
    boxes = np.asarray(boxes, dtype=np.float64)
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


def as_box(corners: Matrix) -> Matrix:
    """Convert left, top, right and bottom (n, 4) to x, y, width and height."""
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)


def corner_points(corners: Matrix) -> Matrix:
    """Return the four corners (n, 4, 2) of rectangles (n, 4) (left, top, right, bottom)."""
    return corners[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]


def enclosing(points: Matrix) -> Matrix:
    """Return the upright rectangles (n, 4) (left, top, right, bottom) around points (n, m, 2)."""
    return np.concatenate([points.min(axis=1), points.max(axis=1)], axis=1)


def _mapped(matrix: Matrix, corners: Matrix) -> Matrix:
    return enclosing(corner_points(corners) @ matrix[:2, :2].T + matrix[:2, 2])
