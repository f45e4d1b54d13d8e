"""Things of other categories: balls, boxes, birds, cars."""

from collections.abc import Callable

import cv2
import numpy as np

from figura.synthetic.canvas import CIRCLE, Piece, hull
from figura.synthetic.identity import Colour, clothes_colour

Thing = tuple[Piece, ...]
BRIGHT, DARK = 1.25, 0.7


def draw_thing(random: np.random.Generator, kind: str) -> Thing:
    """Draw a thing one unit wide or high, standing on the origin; y points down, pieces are in painting order."""
    pieces = MAKERS[kind](random)
    if random.random() < 0.5:
        pieces = tuple(
            Piece(tuple(hull(outline * (-1.0, 1.0)) for outline in piece.hulls), 0.0, piece.texture) for piece in pieces
        )
    return pieces


def _piece(points: object, colour: Colour, bright: float = 1.0) -> Piece:
    flat = np.clip(np.array(colour, dtype=np.float64) * bright, 0.0, 255.0).astype(np.uint8)
    return Piece((hull(np.asarray(points, dtype=np.float64)),), 0.0, flat[None, None])


def _oval(x: float, y: float, half_width: float, half_height: float, turn: float = 0.0) -> np.ndarray:
    matrix = cv2.getRotationMatrix2D((0.0, 0.0), turn, 1.0)[:, :2]
    return CIRCLE * (half_width, half_height) @ matrix.T + (x, y)


def _ball(random: np.random.Generator) -> Thing:
    colour, other = clothes_colour(random), clothes_colour(random)
    turn = float(random.uniform(0.0, 180.0))
    band = _oval(0.0, -0.5, 0.49, random.uniform(0.08, 0.2), turn)
    return (
        _piece(_oval(0.0, -0.5, 0.5, 0.5), colour, DARK),
        _piece(_oval(-0.03, -0.53, 0.44, 0.44), colour),
        _piece(band, other),
        _piece(_oval(-0.18, -0.72, 0.1, 0.08), (255, 255, 255)),
    )


def _box(random: np.random.Generator) -> Thing:
    colour: Colour = (80, 130, 175) if random.random() < 0.4 else clothes_colour(random)
    height, front, lift = random.uniform([0.5, 0.45, 0.08], [0.95, 0.65, 0.2])
    left, corner, right = -0.5, -0.5 + front, 0.5
    side = [(corner, 0.0), (right, -lift), (right, -lift - height), (corner, -height)]
    lid = [(left, -height), (corner, -height), (right, -height - lift), (right - front, -height - lift)]
    middle = left + 0.5 * front
    tape = [(middle - 0.05, 0.0), (middle + 0.05, 0.0), (middle + 0.05, -height), (middle - 0.05, -height)]
    return (
        _piece(side, colour, DARK),
        _piece(lid, colour, BRIGHT),
        _piece([(left, 0.0), (corner, 0.0), (corner, -height), (left, -height)], colour),
        _piece(tape, colour, 0.85),
    )


def _bird(random: np.random.Generator) -> Thing:
    colour, wing = clothes_colour(random), clothes_colour(random)
    raised = float(random.uniform(-35.0, 25.0))
    beak: Colour = (40, 160, 240)
    return (
        _piece([(-0.04, -0.2), (-0.02, -0.2), (-0.02, 0.0), (-0.04, 0.0)], beak, DARK),
        _piece([(0.07, -0.2), (0.09, -0.2), (0.09, 0.0), (0.07, 0.0)], beak, DARK),
        _piece([(-0.2, -0.42), (-0.5, -0.52), (-0.5, -0.36), (-0.2, -0.28)], wing, DARK),
        _piece(_oval(0.0, -0.36, 0.29, 0.19, 12.0), colour),
        _piece([(0.36, -0.6), (0.5, -0.55), (0.36, -0.5)], beak),
        _piece(_oval(0.27, -0.56, 0.13, 0.13), colour),
        _piece(_oval(-0.08, -0.38, 0.2, 0.1, raised), wing),
        _piece(_oval(0.31, -0.59, 0.025, 0.025), (20, 20, 20)),
    )


def _car(random: np.random.Generator) -> Thing:
    colour = clothes_colour(random)
    roof, front = random.uniform([0.36, 0.16], [0.46, 0.28])
    glass: Colour = (205, 190, 165)
    wheels = [
        piece
        for x in (-0.29, 0.29)
        for piece in (
            _piece(_oval(x, -0.09, 0.095, 0.095), (28, 28, 30)),
            _piece(_oval(x, -0.09, 0.045, 0.045), (170, 170, 172)),
        )
    ]
    return (
        _piece([(-0.36, -0.24), (-0.26, -roof), (front - 0.08, -roof), (front + 0.06, -0.24)], colour, 0.9),
        _piece([(-0.31, -0.25), (-0.24, -roof + 0.03), (-0.05, -roof + 0.03), (-0.05, -0.25)], glass),
        _piece([(-0.02, -0.25), (-0.02, -roof + 0.03), (front - 0.1, -roof + 0.03), (front + 0.01, -0.25)], glass),
        _piece([(-0.5, -0.1), (-0.49, -0.24), (-0.4, -0.26), (0.44, -0.25), (0.5, -0.2), (0.5, -0.08)], colour),
        _piece([(-0.5, -0.08), (-0.5, -0.12), (0.5, -0.12), (0.5, -0.08), (0.46, -0.06), (-0.46, -0.06)], colour, DARK),
        _piece([(0.45, -0.2), (0.5, -0.19), (0.5, -0.15), (0.45, -0.16)], (170, 245, 255)),
        *wheels,
    )


MAKERS: dict[str, Callable[[np.random.Generator], Thing]] = {"ball": _ball, "box": _box, "bird": _bird, "car": _car}
# Width of each kind in units of a person's height at the same distance.
WIDTHS: dict[str, tuple[float, float]] = {
    "ball": (0.14, 0.24),
    "box": (0.22, 0.42),
    "bird": (0.2, 0.34),
    "car": (0.7, 1.1),
}
