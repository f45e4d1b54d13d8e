"""Paint convex shapes into a picture and into a label map, which has the content of each pixel."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import cv2
import numpy as np

from figura.synthetic.resampling import sample

OVERSAMPLING = 2  # drawn at twice the size and downsampled by area, for clean edges
SUB = 16  # positions are drawn at a precision of 1/16 canvas pixel
SHIFT = 4
CIRCLE = np.stack([f(np.linspace(0.0, 2.0 * np.pi, 20, endpoint=False)) for f in (np.cos, np.sin)], axis=1)


class Part(IntEnum):
    """Parts of a person in the map; limbs of the left side before those of the right."""

    OTHER = 0
    TRUNK = 1
    SKIRT = 2
    NECK = 3
    HEAD = 4
    HAIR = 5
    LEFT_UPPER_ARM = 6
    RIGHT_UPPER_ARM = 7
    LEFT_FOREARM = 8
    RIGHT_FOREARM = 9
    LEFT_THIGH = 10
    RIGHT_THIGH = 11
    LEFT_SHIN = 12
    RIGHT_SHIN = 13


class Cloth(IntEnum):
    """The garment that covers a part of a person."""

    NONE = 0
    TOP = 1
    BOTTOM = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """The placement of a texture in canvas units: along a line from `start` to `end`, `half` to either side."""

    start: np.ndarray
    end: np.ndarray
    half: float


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing to paint: a union of convex outlines (n, 2), textured (uint8 (h, w, 3)) along `frame`."""

    hulls: tuple[np.ndarray, ...]
    depth: float
    texture: np.ndarray
    frame: Frame | None = None
    part: Part = Part.OTHER
    cloth: Cloth = Cloth.NONE
    owned: bool = True  # false for furniture of a figure

    def moved(self, scale: float, offset: np.ndarray) -> "Piece":
        """Return the piece scaled and then shifted."""
        frame = self.frame and Frame(
            self.frame.start * scale + offset, self.frame.end * scale + offset, self.frame.half * scale
        )
        outlines = tuple(outline * scale + offset for outline in self.hulls)
        return Piece(outlines, self.depth, self.texture, frame, self.part, self.cloth, self.owned)


class Canvas:
    """A picture, uint8 (side, side, 3), and the map of the same size: uint16, see `label`; 0 is the background."""

    def __init__(self, picture: np.ndarray) -> None:
        self.picture = picture
        self.labels = np.zeros(picture.shape[:2], dtype=np.uint16)

    def paint(self, pieces: Iterable[Piece], instance: int) -> None:
        """Paint the pieces in order, as parts of `instance` (1 to 255)."""
        for piece in pieces:
            self._paint(piece, label(instance, piece.part, piece.cloth) if piece.owned else 0)

    def _paint(self, piece: Piece, value: int) -> None:
        points = np.concatenate(piece.hulls)
        side = len(self.labels)
        x0, y0 = np.maximum(np.floor(points.min(axis=0)).astype(int) - 1, 0).tolist()
        x1, y1 = np.minimum(np.ceil(points.max(axis=0)).astype(int) + 2, side).tolist()
        if x0 >= x1 or y0 >= y1:
            return
        window = self.picture[y0:y1, x0:x1]
        mask = np.zeros(window.shape[:2], dtype=np.uint8)
        for outline in piece.hulls:
            cv2.fillConvexPoly(mask, np.rint((outline - (x0, y0)) * SUB).astype(np.int32), 1, cv2.LINE_8, SHIFT)
        inside = mask.view(bool)
        if piece.frame is None or piece.texture.shape[:2] == (1, 1):
            window[inside] = piece.texture[0, 0]
        else:
            window[inside] = sample(piece.texture, _lay(piece.texture, piece.frame, (x0, y0)), inside)
        np.copyto(self.labels[y0:y1, x0:x1], np.uint16(value), where=inside)


def _lay(texture: np.ndarray, frame: Frame, corner: tuple[int, int]) -> np.ndarray:
    """Lay a texture along a frame: return the matrix (2, 3) from pixels, relative to `corner`, to its texels."""
    height, width = texture.shape[:2]
    length = max(float(np.hypot(*(frame.end - frame.start))), 1e-6)
    down = (frame.end - frame.start) / length
    # Light comes from the same side, in whichever direction a limb points.
    right = np.array([down[1], -down[0]]) * (1.0 if down[1] >= 0.0 else -1.0)
    # A limb that points to the camera is short: its texture is cut off rather than squeezed.
    rows = np.stack([right * (width / (2.0 * frame.half)), down * (height / max(length, frame.half))])
    middle = np.array([0.5 * width - 0.5, -0.5]) - rows @ (frame.start - np.array(corner))
    return np.concatenate([rows, middle[:, None]], axis=1)


def label(instance: int, part: Part, cloth: Cloth) -> int:
    """Return the label map's number for a part of an instance."""
    return instance << 8 | part << 2 | cloth


def instance_of(labels: np.ndarray) -> np.ndarray:
    """Return the instance that each pixel shows; 0 is the background."""
    return labels >> 8


def part_of(labels: np.ndarray) -> np.ndarray:
    """Return the `Part` that each pixel shows."""
    return labels >> 2 & 63


def cloth_of(labels: np.ndarray) -> np.ndarray:
    """Return the `Cloth` that each pixel shows."""
    return labels & 3


def extent(pieces: Iterable[Piece]) -> np.ndarray:
    """Return the box around pieces: left, top, right, bottom."""
    points = np.concatenate([outline for piece in pieces for outline in piece.hulls])
    return np.concatenate([points.min(axis=0), points.max(axis=0)])


def disc(centre: np.ndarray, radius: float) -> np.ndarray:
    """A circle's outline (20, 2)."""
    return centre + radius * CIRCLE


def capsule(start: np.ndarray, end: np.ndarray, first: float, last: float) -> np.ndarray:
    """The convex outline (n, 2) around two circles."""
    return hull(np.concatenate([disc(start, first), disc(end, last)]))


def hull(points: np.ndarray) -> np.ndarray:
    """The convex outline (n, 2) around points (m, 2)."""
    return cv2.convexHull(points.astype(np.float32))[:, 0].astype(np.float64)
