"""Backgrounds: gradients, and clutter that belongs to no category."""

import cv2
import numpy as np

from figura.synthetic.canvas import CIRCLE
from figura.synthetic.resampling import cubic, enlarge, linear


def draw_background(random: np.random.Generator, *, side: int, horizon: float, clutter: int) -> np.ndarray:
    """Draw a background, uint8 (side, side, 3); the ground starts at row `horizon`."""
    indoors = random.random() < 0.5
    far, near = _tone(random, indoors), _tone(random, indoors)
    picture = _gradients(random, side, round(horizon), far, near)
    for _ in range(random.integers(clutter + 1)):
        _strew(random, picture, horizon)
    rough = random.normal(0.0, 5.0, (24, 24, 1)) + random.normal(0.0, 2.0, (24, 24, 3))
    return cv2.add(picture, enlarge(rough, side, side, cubic), dtype=cv2.CV_8U)


def _tone(random: np.random.Generator, indoors: bool) -> np.ndarray:
    """A muted colour."""
    grey = random.uniform(70.0, 225.0)
    return np.clip(grey + random.normal(0.0, 10.0 if indoors else 20.0, 3), 20.0, 245.0)


def _gradients(random: np.random.Generator, side: int, row: int, far: np.ndarray, near: np.ndarray) -> np.ndarray:
    picture = np.empty((side, side, 3), dtype=np.uint8)
    for top, bottom, tone in ((0, row, far), (row, side, near)):
        corners = tone + random.normal(0.0, 22.0, (2, 2, 1)) + random.normal(0.0, 7.0, (2, 2, 3))
        picture[top:bottom] = enlarge(np.clip(corners, 0.0, 255.0), bottom - top, side, linear)
    return picture


def _strew(random: np.random.Generator, picture: np.ndarray, horizon: float) -> None:
    """Add one thing: a board, a pole, a bush, a line on the ground, a picture on the wall."""
    side = len(picture)
    colour = tuple(float(value) for value in np.clip(random.normal(125.0, 55.0) + random.normal(0.0, 26.0, 3), 0, 255))
    x, size = random.uniform(-0.05, 1.05) * side, random.uniform(0.03, 0.2) * side
    kind = random.integers(5)
    floor = horizon + random.uniform(0.0, 0.25) * side
    if kind == 0:  # board on the ground
        height = size * random.uniform(0.5, 2.5)
        _fill(picture, [(x, floor), (x + size, floor), (x + size, floor - height), (x, floor - height)], colour)
    elif kind == 1:  # pole
        wide, high = 0.08 * size + 1.5, random.uniform(0.2, 0.9) * side
        _fill(
            picture, [(x - wide, floor), (x + wide, floor), (x + wide, floor - high), (x - wide, floor - high)], colour
        )
    elif kind == 2:  # bush
        for dx, dy, radius in random.uniform([-0.5, -0.8, 0.3], [0.5, -0.2, 0.6], (4, 3)):
            _fill(picture, (x, floor) + size * (CIRCLE * radius + (dx, dy)), colour)
    elif kind == 3:  # line on the ground
        end = random.uniform(-0.2, 1.2) * side
        cv2.line(picture, (int(x), side), (int(end), int(horizon)), colour, int(1 + 0.1 * size), cv2.LINE_AA)
    else:  # framed picture on the wall
        y = random.uniform(0.02, 0.8) * horizon
        frame = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 0.8), (0.0, 0.8)])
        _fill(picture, (x, y) + size * frame, tuple(0.5 * value for value in colour))
        _fill(picture, (x, y) + size * (0.12 + 0.8 * frame), colour)


def _fill(picture: np.ndarray, points: object, colour: tuple[float, ...]) -> None:
    cv2.fillConvexPoly(picture, np.asarray(points).astype(np.int32), colour, cv2.LINE_AA)
