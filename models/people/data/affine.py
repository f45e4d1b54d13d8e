"""One affine map from an image with people to the picture a network sees, drawn at random or fitted; it moves everything alike.

Pixels, keypoints and boxes are in pixels, x before y; 0 is the centre of the first pixel, so that an image `w` pixels
wide spans 0 to w - 1, and resizing to w' multiplies x by (w' - 1) / (w - 1).
"""

from dataclasses import dataclass, replace
from typing import Self

import cv2
import numpy as np
from numpy.typing import NDArray

from models.people.data.affine_settings import Crop, Geometry, Rescale

Matrix = NDArray[np.float64]
Colour = tuple[int, int, int]

MEAN_COLOUR: Colour = (124, 116, 104)
"""ImageNet's mean, red, green, blue: what pads a picture unless a grey is drawn."""


@dataclass(frozen=True)
class Placement:
    """Where an image lies on a canvas.

    Attributes:
        matrix: float64 (3, 3), from the image's pixels to the canvas's.
        span: the canvas's last x and y, its width and height less 1.
        corners: float64 (4,), what of the canvas shows the image: left, top, right, bottom.
        mirrored: whether left and right are exchanged.
    """

    matrix: Matrix
    span: tuple[float, float]
    corners: NDArray[np.float64]
    mirrored: bool = False

    @property
    def valid_area(self) -> NDArray[np.float32]:
        """float32 (4,): x, y, width and height of what shows the image, in pixels of the canvas."""
        return _as_box(self.corners[None])[0].astype(np.float32)

    def moved(self, step: Matrix, span: tuple[float, float]) -> Self:
        """The placement after one more map (3, 3) to a canvas of another span."""
        limits = np.array([*span, *span])
        corners = np.clip(_enclosing(step, self.corners[None])[0], 0.0, limits)
        return replace(self, matrix=step @ self.matrix, span=span, corners=corners)

    def keypoints(self, keypoints: NDArray[np.floating], flip: tuple[int, ...]) -> NDArray[np.float32]:
        """Keypoints (n, K, 3) (x, y, v) on the canvas; where it is mirrored each takes the place of its counterpart."""
        placed = np.array(keypoints, dtype=np.float64)
        placed[..., :2] = placed[..., :2] @ self.matrix[:2, :2].T + self.matrix[:2, 2]
        return (placed[:, flip] if self.mirrored else placed).astype(np.float32)

    def boxes(self, boxes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Boxes (n, 4) (x, y, width, height) on the canvas: what encloses their corners, also where it leaves it."""
        return _as_box(_enclosing(self.matrix, _as_corners(boxes))).astype(np.float32)

    def shown(self, boxes: NDArray[np.floating]) -> NDArray[np.float32]:
        """The part in the valid area of boxes (n, 4) of the canvas; width or height 0 where there is none."""
        low, high = np.tile(self.corners[:2], 2), np.tile(self.corners[2:], 2)
        return _as_box(np.clip(_as_corners(boxes), low, high)).astype(np.float32)

    def picture(self, image: NDArray[np.uint8], colour: Colour) -> NDArray[np.uint8]:
        """The canvas as a picture of whole pixels, uint8 (height, width, 3), around the image in `colour`.

        Read once, bilinearly. An image that shrinks to a half or less is first averaged over whole-numbered blocks (by
        area), as many as leave it no smaller than needed, so that no pixel goes unread.
        """
        height, width = image.shape[:2]
        matrix = self.matrix
        # A step of one pixel in the image, along x and y, is so long on the canvas.
        blocks = [max(1, int(1.0 / step + 1e-6)) for step in np.linalg.norm(matrix[:2, :2], axis=0)]
        if max(blocks) > 1:
            size = (-(-width // blocks[0]), -(-height // blocks[1]))
            image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
            x, y = width / size[0], height / size[1]
            matrix = matrix @ _scaled(x, y, (x - 1) / 2, (y - 1) / 2)
        size = (int(self.span[0]) + 1, int(self.span[1]) + 1)
        # Edge pixels go on outwards, then all beyond the outline is painted: blending both would smear the edge.
        picture = cv2.warpAffine(image, matrix[:2], size, borderMode=cv2.BORDER_REPLICATE)
        outline = np.array([(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]) @ self.matrix[:2, :2].T
        inside = np.zeros(size[::-1], dtype=np.uint8)
        cv2.fillConvexPoly(inside, np.rint((outline + self.matrix[:2, 2]) * 16).astype(np.int32), 1, shift=4)
        canvas = np.full((*size[::-1], 3), colour, dtype=np.uint8)
        return np.asarray(cv2.copyTo(picture, inside, canvas), dtype=np.uint8)


def whole(width: int, height: int) -> Placement:
    """An image that is its own canvas."""
    span = (float(width - 1), float(height - 1))
    return Placement(np.eye(3), span, np.array([0.0, 0.0, *span]))


def fitted(width: int, height: int, side: int) -> Placement:
    """The image with its longer side as long as the square's, `side` pixels, in its middle."""
    return _padded(_resized(whole(width, height), *_fitting(width, height, side)), (side - 1.0, side - 1.0))


def snug(width: int, height: int, longer: int, multiple: int) -> Placement:
    """The image with its longer side `longer` pixels, in the middle of the smallest canvas of sides n `multiple` + 1."""
    placement = _resized(whole(width, height), *_fitting(width, height, longer))
    last_x, last_y = (float(np.ceil(span / multiple) * multiple) for span in placement.span)
    return _padded(placement, (last_x, last_y))


def drawn(
    width: int,
    height: int,
    side: int,
    interest: NDArray[np.floating],
    settings: Geometry,
    random: np.random.Generator,
) -> Placement:
    """A random placement of an image on a square of `side` pixels (specification 6.3 to 6.5).

    `interest` (n, 4) are boxes of the image that a crop should show. A rotated image is not cut before the crop.
    """
    placement = whole(width, height)
    if settings.horizontal_flip and random.random() < settings.horizontal_flip.chance:
        mirror = np.array([[-1.0, 0.0, width - 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        placement = replace(placement.moved(mirror, placement.span), mirrored=True)
    placement = _resized(placement, *_size(width, height, side, settings.rescale, random))
    placement = _turned(placement, _angle(settings, random))
    cropped = _cropped(placement, side, placement.boxes(interest), settings.crop, random)
    return _padded(cropped, (side - 1.0, side - 1.0))


def drawn_colour(settings: Geometry, random: np.random.Generator) -> Colour:
    """What pads a picture: a grey between the limits of `padding`, both included, or `MEAN_COLOUR`."""
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
    span = (max(width, 2) - 1.0, max(height, 2) - 1.0)  # at least two pixels, so that the map can be inverted
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
    """Rotated counter-clockwise as seen, about the middle of a canvas that grows with it."""
    if not degrees:
        return placement
    quarters = {90.0: (0.0, 1.0), 180.0: (-1.0, 0.0), 270.0: (0.0, -1.0)}  # exact, so that pixels meet pixels
    cos, sin = quarters.get(degrees) or (float(np.cos(np.radians(degrees))), float(np.sin(np.radians(degrees))))
    width, height = placement.span
    span = (abs(cos) * width + abs(sin) * height, abs(sin) * width + abs(cos) * height)
    turn = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])
    return placement.moved(_shifted(span[0] / 2, span[1] / 2) @ turn @ _shifted(-width / 2, -height / 2), span)


def _cropped(
    placement: Placement, side: int, interest: NDArray[np.floating], crop: Crop, random: np.random.Generator
) -> Placement:
    """The canvas cut to `side` pixels where it is longer, around the area of interest (specification 6.4)."""
    edge = side - 1.0
    offsets, span = [0.0, 0.0], list(placement.span)
    for axis, length in enumerate(placement.span):
        if length <= edge:
            continue
        share = float(np.clip(random.uniform(-0.1, 1.1 if crop.place == "uniform" else 0.1), 0.0, 1.0))
        low, high = _offsets(placement, axis, edge, interest, crop.margin)
        # Whole pixels leave a canvas that was only resized unblurred; at its far end there may be none.
        offsets[axis] = min(float(np.floor(low + (high - low) * share)), length - edge)
        span[axis] = edge
    return placement.moved(_shifted(-offsets[0], -offsets[1]), (span[0], span[1]))


def _offsets(
    placement: Placement, axis: int, edge: float, interest: NDArray[np.floating], margin: float
) -> tuple[float, float]:
    """The lowest and the highest offset of a crop with this span along an axis."""
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
    """The canvas in the middle of one that is no shorter, at whole pixels."""
    offsets = (float(np.floor((new - old) / 2)) for new, old in zip(span, placement.span, strict=True))
    return placement.moved(_shifted(*offsets), span)


def _scaled(x: float, y: float, dx: float = 0.0, dy: float = 0.0) -> Matrix:
    return np.array([[x, 0.0, dx], [0.0, y, dy], [0.0, 0.0, 1.0]])


def _shifted(x: float, y: float) -> Matrix:
    return _scaled(1.0, 1.0, x, y)


def _as_corners(boxes: NDArray[np.floating]) -> NDArray[np.float64]:
    boxes = np.asarray(boxes, dtype=np.float64)
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


def _as_box(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)


def _enclosing(matrix: Matrix, corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """The upright rectangles (n, 4) (left, top, right, bottom) around mapped ones."""
    four = corners[:, [[0, 1], [2, 1], [2, 3], [0, 3]]] @ matrix[:2, :2].T + matrix[:2, 2]
    return np.concatenate([four.min(axis=1), four.max(axis=1)], axis=1)
