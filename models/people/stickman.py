"""The stickman of VUNet: a pose as a picture of coloured strokes.

COCO's 17 joints are drawn like in edflow's VUNet port: converted to OpenPose's 18, in three colours. For any other
skeleton, each connection is a line in a distinct colour, with evenly spaced hues: in a quarter of the colour circle
around red for the right side, around green for the middle, around blue for the left; in the full circle if the skeleton
has no sides. Joints are dots in the colour of their first connection, preferably on their side; a joint without
connections has a distinct colour.
"""

import colorsys
from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.formats.coco import KEYPOINTS
from figura.formats.skeletons import Skeleton, side_of

Colour = tuple[int, int, int]

RIGHT, HEAD, LEFT = (255, 0, 0), (0, 255, 0), (0, 0, 255)
"""RGB of the person's right side, of head and torso, and of the person's left side."""

TORSO = (1, 2, 8, 11, 5)
LINES = {
    RIGHT: ((2, 3), (3, 4), (2, 8), (8, 9), (9, 10)),
    HEAD: ((16, 14), (14, 0), (0, 15), (15, 17), (0, 1)),
    LEFT: ((5, 6), (6, 7), (5, 11), (11, 12), (12, 13)),
}
DOTS = {RIGHT: (2, 3, 4, 8, 9, 10), HEAD: (0, 1, 14, 15, 16, 17), LEFT: (5, 6, 7, 11, 12, 13)}

_FROM_COCO = (0, 5, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)  # joint 1, the neck, is derived
_NECK = 1
_SHOULDERS = [5, 6]

# stroke sizes for a canvas of 256 pixels
_REFERENCE_SIZE = 256
_LINE_WIDTH = 4
_DOT_RADIUS = 3

_HUES = {"right": 0.0, "middle": 120.0, "left": 240.0}
"""The hue in the middle of each side's colours, degrees."""

_FRACTION_BITS = 4
_FARTHEST = 2**20  # pixels; OpenCV computes in integers, so more distant joints are not drawn


def coco_to_openpose18(keypoints: NDArray[np.floating]) -> NDArray[np.float64]:
    """Convert COCO's 17 joints `(17, 3)` (x, y, v) to OpenPose's 18 `(18, 3)`.

    The neck is the mean of the shoulders, with the lower visibility of the two; it is missing (zeros) unless both
    exist.
    """
    joints = np.asarray(keypoints, dtype=np.float64)[list(_FROM_COCO)]
    shoulders = np.asarray(keypoints, dtype=np.float64)[_SHOULDERS]
    joints[_NECK] = [*shoulders[:, :2].mean(axis=0), shoulders[:, 2].min()] if present(shoulders).all() else 0.0
    return joints


def present(keypoints: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which joints `(K, 3)` exist, `(K,)`: flag above zero (1 hidden, 2 visible) and finite coordinates."""
    return (keypoints[:, 2] > 0) & np.isfinite(keypoints[:, :2]).all(axis=1)


def pose_picture(keypoints: NDArray[np.floating], skeleton: Skeleton, size: int) -> NDArray[np.uint8]:
    """Draw the joints `(K, 3)` (x, y, v; pixels of the canvas) of a skeleton on black: RGB uint8 `(size, size, 3)`."""
    if skeleton.keypoints == KEYPOINTS:
        return draw_stickman(coco_to_openpose18(keypoints), size)
    return draw_skeleton(keypoints, skeleton, size)


def draw_stickman(keypoints: NDArray[np.floating], size: int) -> NDArray[np.uint8]:
    """Draw OpenPose's 18 joints `(18, 3)` (x, y, v; pixels of the canvas, 0 = centre of the first) on black.

    Returns RGB uint8 `(size, size, 3)`. Every pixel is black or one pure colour, as strokes are opaque and not
    smoothed. The order is torso, lines, dots; within these right, head, left. A line needs both joints, the torso three
    corners. Width and radius scale with `size`, down to one pixel. Joints may be off the canvas.
    """
    lines = [(*pair, colour) for colour, pairs in LINES.items() for pair in pairs]
    dots = [(joint, colour) for colour, joints in DOTS.items() for joint in joints]
    return _drawn(keypoints, size, lines, dots, TORSO)


def draw_skeleton(keypoints: NDArray[np.floating], skeleton: Skeleton, size: int) -> NDArray[np.uint8]:
    """Draw joints `(K, 3)` like `draw_stickman`, with the connections and colours of a skeleton: lines, then dots."""
    lines, dots = skeleton_colours(skeleton)
    coloured = [(*pair, colour) for pair, colour in zip(skeleton.connections, lines, strict=True)]
    return _drawn(keypoints, size, coloured, list(enumerate(dots)))


def _drawn(
    keypoints: NDArray[np.floating],
    size: int,
    lines: Sequence[tuple[int, int, Colour]],
    dots: Sequence[tuple[int, Colour]],
    torso: Sequence[int] = (),
) -> NDArray[np.uint8]:
    points = np.asarray(keypoints[:, :2], dtype=np.float64)
    drawable = present(keypoints) & (np.abs(np.nan_to_num(points)) < _FARTHEST).all(axis=1)
    canvas = np.zeros((size, size, 3), dtype=np.uint8)
    corners = [joint for joint in torso if drawable[joint]]
    if len(corners) > 2:
        cv2.fillPoly(canvas, [_fixed(points[corners])], HEAD, cv2.LINE_8, _FRACTION_BITS)
    for start, end, colour in lines:
        if drawable[start] and drawable[end]:
            _line(canvas, points[start], points[end], colour)
    for joint, colour in dots:
        if drawable[joint]:
            _dot(canvas, points[joint], colour)
    return canvas


@lru_cache(maxsize=16)
def skeleton_colours(skeleton: Skeleton) -> tuple[list[Colour], list[Colour]]:
    """Return RGB of a skeleton's connections and of its joints."""
    connected = {joint for pair in skeleton.connections for joint in pair}
    alone = [joint for joint in range(len(skeleton.keypoints)) if joint not in connected]
    strokes = [*skeleton.connections, *((joint,) for joint in alone)]
    sides = joint_sides(skeleton)
    of_stroke = [_side_of_stroke({sides[joint] for joint in joints}) for joints in strokes]
    span = 360.0 / (4 if set(sides) & {"left", "right"} else 1)
    colours: list[Colour] = []
    for place, side in enumerate(of_stroke):
        share = (of_stroke[:place].count(side) + 0.5) / of_stroke.count(side)
        colours.append(_pure(_HUES[side] + span * (share - 0.5)))
    dots = []
    for joint, side in enumerate(sides):
        places = [place for place, joints in enumerate(strokes) if joint in joints]
        dots.append(colours[next((place for place in places if of_stroke[place] == side), places[0])])
    return colours[: len(skeleton.connections)], dots


def _side_of_stroke(sides: set[str]) -> str:
    """Return the side of a connection of joints with these sides; the middle if both or none."""
    lateral = sides - {"middle"}
    return lateral.pop() if len(lateral) == 1 else "middle"


def joint_sides(skeleton: Skeleton) -> list[str]:
    """Return `left`, `right` or `middle` for each joint: joints that mirroring swaps have sides.

    The side is taken from one of the two names; otherwise, the first of the two is left.
    """
    sides = ["middle"] * len(skeleton.keypoints)
    for joint, other in enumerate(skeleton.flip):
        if joint < other:
            words = [side_of(skeleton.keypoints[place]) for place in (joint, other)]
            right_first = words[0] == "right" or (words[0] is None and words[1] == "left")
            sides[joint], sides[other] = ("right", "left") if right_first else ("left", "right")
    return sides


def _pure(hue: float) -> Colour:
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue / 360 % 1, 1.0, 1.0))
    return red, green, blue


def _dot(canvas: NDArray[np.uint8], centre: NDArray[np.float64], colour: Colour) -> None:
    radius = max(1, round(_DOT_RADIUS * len(canvas) / _REFERENCE_SIZE))
    x, y = np.rint(centre).astype(int).tolist()
    cv2.circle(canvas, (x, y), radius, colour, cv2.FILLED)


def _fixed(points: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.rint(points * (1 << _FRACTION_BITS)).astype(np.int32)


def _line(canvas: NDArray[np.uint8], start: NDArray[np.float64], end: NDArray[np.float64], colour: Colour) -> None:
    """Draw a line as a filled rectangle, because OpenCV's lines are one pixel too wide."""
    width = max(1.0, _LINE_WIDTH * len(canvas) / _REFERENCE_SIZE)
    (x0, y0), (x1, y1) = start.tolist(), end.tolist()  # single numbers are slow in NumPy
    length = max(float(np.hypot(x1 - x0, y1 - y0)), 1e-9)
    # A filled polygon covers its border pixels too, which makes it one pixel wider than its corners.
    x, y = (y0 - y1) * (width - 1) / 2 / length, (x1 - x0) * (width - 1) / 2 / length
    corners = np.array([(x0 + x, y0 + y), (x1 + x, y1 + y), (x1 - x, y1 - y), (x0 - x, y0 - y)])
    cv2.fillConvexPoly(canvas, _fixed(corners), colour, cv2.LINE_8, _FRACTION_BITS)
