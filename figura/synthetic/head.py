"""Heads: skull, face, hair, and the five keypoints on them."""

import numpy as np

from figura.synthetic import fabric
from figura.synthetic.canvas import CIRCLE, Frame, Part, Piece, disc, hull
from figura.synthetic.identity import Identity
from figura.synthetic.pose import Skeleton

WIDTH, DEPTH = 0.78, 0.90  # of the skull, in units of half its height
# Nose, left and right eye, left and right ear: positions on the skull, in the same units and the axes of the body.
FACE = np.array(
    [[0.0, 0.16, 0.92], [0.30, -0.10, 0.80], [-0.30, -0.10, 0.80], [0.76, 0.02, -0.08], [-0.76, 0.02, -0.08]]
)
EYES = (1, 2)
EARS = (3, 4)
EYE_RINGS = ((0.115, 225), (0.085, 30))  # radius in the same units, grey


def face_points(identity: Identity, skeleton: Skeleton) -> np.ndarray:
    """The five keypoints (5, 3) in camera axes."""
    return skeleton.head_centre + identity.body.head * FACE @ skeleton.head.T


def face_turned_to_camera(skeleton: Skeleton) -> np.ndarray:
    """Return for each of the five keypoints whether its side of the head faces the camera, bool (5,)."""
    outward = (FACE / np.array([WIDTH, 1.0, DEPTH]) ** 2) @ skeleton.head.T
    facing = outward[:, 2] / np.linalg.norm(outward, axis=1)
    # Ears stick out: they are also visible from the front and from behind.
    return facing > np.array([-0.05, 0.02, 0.02, -0.45, -0.45])


class Shape:
    """Outlines in the plane of the picture, in units of half the head's height, y down the head."""

    def __init__(self, identity: Identity, skeleton: Skeleton) -> None:
        self.size = identity.body.head
        self.centre = skeleton.head_centre[:2]
        down = skeleton.head[:2, 1]
        self.down = down / max(float(np.hypot(*down)), 1e-6)
        self.right = np.array([self.down[1], -self.down[0]])
        forward = skeleton.head[:, 2]
        self.aside = float(forward[:2] @ self.right)
        self.towards = float(forward[2])
        level = max(float(np.hypot(self.towards, self.aside)), 1e-6)
        self.half = float(np.hypot(WIDTH * self.towards, DEPTH * self.aside)) / level

    def outline(self, points: np.ndarray) -> np.ndarray:
        """Map points (n, 2) to the picture and return the outline around them."""
        return hull(self.centre + self.size * (points[:, :1] * self.right + points[:, 1:] * self.down))

    def oval(self, x: float, y: float, half_width: float, half_height: float, *, low: float = 9.0) -> np.ndarray:
        """An ellipse, narrower at the chin, cut off below `low`."""
        points = CIRCLE * (half_width, half_height) + (0.0, y)
        points[:, 0] *= 1.0 - 0.16 * np.clip(points[:, 1], 0.0, 1.0) ** 2
        points[:, 1] = np.minimum(points[:, 1], low)
        return self.outline(points + np.array([x, 0.0]))

    def has_room(self, point: np.ndarray) -> bool:
        """Return whether a point in camera axes is far enough inside the skull to draw an eye there."""
        return bool(abs((point[:2] - self.centre) @ self.right) < 0.86 * self.half * self.size)

    def frame(self) -> Frame:
        """Return the placement of the skull's texture."""
        return Frame(self.centre - self.size * self.down, self.centre + self.size * self.down, self.size * self.half)


def head_pieces(identity: Identity, skeleton: Skeleton, light: float | None) -> list[Piece]:
    """Draw the head's pieces from back to front, at the depth of the skull; long hair is behind or in front of it."""
    shape = Shape(identity, skeleton)
    skin, hair = fabric.plain(identity.skin, light=light), fabric.plain(identity.hair, light=light)
    depth, frame = float(skeleton.head_centre[2]) + 0.03, shape.frame()
    points = face_points(identity, skeleton)
    ears = [disc(points[i, :2], 0.17 * shape.size) for i in EARS]
    pieces = [Piece((shape.oval(0.0, 0.0, shape.half, 1.0), *ears), depth, skin, frame, Part.HEAD)]
    if (mane := _mane(identity, shape)) is not None:
        # Hair hangs at the back of the head: in front of the trunk when seen from behind, else behind it.
        pieces.insert(0, Piece((mane,), depth - 0.14 * shape.towards - 0.02, hair, frame, Part.HAIR))
    if identity.hairstyle != "bald":
        pieces.append(Piece(_hair(identity, shape), depth + 1e-4, hair, frame, Part.HAIR))
    near_ear = [disc(points[i, :2], 0.15 * shape.size) for i in EARS if points[i, 2] > skeleton.head_centre[2] - 0.01]
    if identity.hairstyle in ("short", "bun", "cap") and near_ear:
        pieces.append(Piece(tuple(near_ear), depth + 2e-4, skin, frame, Part.HEAD))
    if shape.towards > -0.3:
        pieces += _face(identity, shape, skin, hair, depth, points)
    if identity.hairstyle == "cap" and shape.towards > -0.75:
        pieces.append(Piece((_brim(shape),), depth + 6e-4, hair, frame, Part.HAIR))
    return pieces


def _hair(identity: Identity, shape: Shape) -> tuple[np.ndarray, ...]:
    behind = 0.5 * (1.0 - shape.towards)
    back = -0.12 * shape.aside
    style = identity.hairstyle
    if style == "curls":
        return (shape.oval(1.5 * back, -0.16, shape.half * 1.35, 1.14, low=0.25 + 0.5 * behind),)
    low = {"short": -0.05 + 0.5 * behind, "bun": -0.1 + 0.6 * behind, "cap": -0.28, "bob": 0.75, "long": 0.9}[style]
    hulls = [shape.oval(back, -0.03, shape.half * 1.10, 1.10, low=low)]
    if style == "bun":
        hulls.append(shape.oval(-0.75 * shape.aside, -0.95, 0.42, 0.42))
    return tuple(hulls)


def _mane(identity: Identity, shape: Shape) -> np.ndarray | None:
    if identity.hairstyle not in ("long", "bob"):
        return None
    low = 2.15 if identity.hairstyle == "long" else 1.05
    back = -0.42 * shape.aside
    half = 0.98 * shape.half if abs(shape.aside) < 0.6 else 0.62 * shape.half
    points = np.concatenate(
        [CIRCLE * (half, 0.8) + (back, -0.1), CIRCLE * (1.08 * half, 0.4) + (1.1 * back, low - 0.4)]
    )
    return shape.outline(points)


def _face(
    identity: Identity, shape: Shape, skin: np.ndarray, hair: np.ndarray, depth: float, points: np.ndarray
) -> list[Piece]:
    front, aside = max(shape.towards, 0.0), shape.aside
    x, half = 0.44 * aside, 0.66 * front + 0.44 * abs(aside)
    nose = disc(points[0, :2], shape.size * (0.06 + 0.07 * abs(aside)))
    pieces = [Piece((shape.oval(x, 0.14, half, 0.82), nose), depth + 3e-4, skin, shape.frame(), Part.HEAD)]
    if identity.beard:
        beard = shape.oval(x, 0.14, half, 0.84)
        jaw = (beard - shape.centre) @ shape.down > 0.42 * shape.size
        pieces.append(Piece((hull(beard[jaw]),), depth + 4e-4, hair, shape.frame(), Part.HEAD))
    for eye in points[list(EYES)]:
        if eye[2] > points[:, 2].mean() - 0.05 and shape.has_room(eye):
            for radius, grey in EYE_RINGS:
                colour = np.full((1, 1, 3), grey, dtype=np.uint8)
                pieces.append(Piece((disc(eye[:2], radius * shape.size),), depth + 5e-4, colour, None, Part.HEAD))
    if shape.towards > 0.0:
        pieces.append(_mouth(identity, shape, depth + 5e-4))
    return pieces


def _mouth(identity: Identity, shape: Shape, depth: float) -> Piece:
    x, half = 0.62 * shape.aside, 0.2 * shape.towards + 0.04
    lips = np.array([[x - half, 0.515], [x + half, 0.515], [x + half, 0.585], [x - half, 0.585]])
    red = np.full((1, 1, 3), identity.lips, dtype=np.uint8)
    return Piece((shape.outline(lips),), depth, red, None, Part.HEAD)


def _brim(shape: Shape) -> np.ndarray:
    front, aside = max(shape.towards, 0.0), shape.aside
    return shape.oval(0.75 * aside, -0.36, 0.74 * front + 0.62 * abs(aside), 0.13)
