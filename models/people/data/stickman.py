"""The stickman of VUNet: a pose as a picture of coloured strokes (as edflow's VUNet port draws it)."""

import cv2
import numpy as np
from numpy.typing import NDArray

RIGHT, HEAD, LEFT = (255, 0, 0), (0, 255, 0), (0, 0, 255)
"""RGB of the person's right side, of head and torso, and of the person's left side."""

TORSO = (1, 2, 8, 11, 5)
LINES = {
    RIGHT: ((2, 3), (3, 4), (2, 8), (8, 9), (9, 10)),
    HEAD: ((16, 14), (14, 0), (0, 15), (15, 17), (0, 1)),
    LEFT: ((5, 6), (6, 7), (5, 11), (11, 12), (12, 13)),
}
DOTS = {RIGHT: (2, 3, 4, 8, 9, 10), HEAD: (0, 1, 14, 15, 16, 17), LEFT: (5, 6, 7, 11, 12, 13)}

_FROM_COCO = (0, 5, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)  # joint 1, the neck, is computed
_NECK = 1
_SHOULDERS = [5, 6]

# stroke sizes for a canvas of 256 pixels
_REFERENCE_SIZE = 256
_LINE_WIDTH = 4
_DOT_RADIUS = 3

_FRACTION_BITS = 4
_FARTHEST = 2**20  # pixels; OpenCV computes in integers, so farther joints are not drawn


def coco_to_openpose18(keypoints: NDArray[np.floating]) -> NDArray[np.float64]:
    """Convert COCO's 17 joints `(17, 3)` (x, y, v) to OpenPose's 18 `(18, 3)`.

    The neck is the mean of the shoulders, with the lower visibility of the two; without both it is missing (zeros).
    """
    joints = np.asarray(keypoints, dtype=np.float64)[list(_FROM_COCO)]
    shoulders = np.asarray(keypoints, dtype=np.float64)[_SHOULDERS]
    joints[_NECK] = [*shoulders[:, :2].mean(axis=0), shoulders[:, 2].min()] if present(shoulders).all() else 0.0
    return joints


def present(keypoints: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell which joints `(K, 3)` exist, `(K,)`: flag above zero (1 hidden, 2 visible) and finite coordinates."""
    return (keypoints[:, 2] > 0) & np.isfinite(keypoints[:, :2]).all(axis=1)


def draw_stickman(keypoints: NDArray[np.floating], size: int) -> NDArray[np.uint8]:
    """Draw OpenPose's 18 joints `(18, 3)` (x, y, v; pixels of the canvas, 0 = centre of the first) on black.

    Returns RGB uint8 `(size, size, 3)`. Every pixel is black or one pure colour, as strokes are opaque and not
    smoothed. The order is torso, lines, dots; within these right, head, left. A line needs both its joints, the torso
    three corners. Width and radius scale with `size`, down to one pixel. Joints may lie off the canvas.
    """
    points = np.asarray(keypoints[:, :2], dtype=np.float64)
    drawable = present(keypoints) & (np.abs(np.nan_to_num(points)) < _FARTHEST).all(axis=1)
    width = max(1.0, _LINE_WIDTH * size / _REFERENCE_SIZE)
    radius = max(1, round(_DOT_RADIUS * size / _REFERENCE_SIZE))
    canvas = np.zeros((size, size, 3), dtype=np.uint8)
    corners = [joint for joint in TORSO if drawable[joint]]
    if len(corners) > 2:
        cv2.fillPoly(canvas, [_fixed(points[corners])], HEAD, cv2.LINE_8, _FRACTION_BITS)
    for colour, pairs in LINES.items():
        for start, end in pairs:
            if drawable[start] and drawable[end]:
                _line(canvas, points[start], points[end], width, colour)
    for colour, joints in DOTS.items():
        for x, y in np.rint(points[[joint for joint in joints if drawable[joint]]]).astype(int).tolist():
            cv2.circle(canvas, (x, y), radius, colour, cv2.FILLED)
    return canvas


def _fixed(points: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.rint(points * (1 << _FRACTION_BITS)).astype(np.int32)


def _line(
    canvas: NDArray[np.uint8],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    width: float,
    colour: tuple[int, ...],
) -> None:
    """Draw a line as a filled rectangle, because OpenCV's lines are one pixel wider than asked for."""
    along = end - start
    # A filled polygon covers its border pixels too, which makes it one pixel wider than its corners say.
    aside = np.array([-along[1], along[0]]) * (width - 1) / 2 / max(np.hypot(*along), 1e-9)
    corners = np.stack([start + aside, end + aside, end - aside, start - aside])
    cv2.fillConvexPoly(canvas, _fixed(corners), colour, cv2.LINE_8, _FRACTION_BITS)
