"""Scenes: the picture, its label map, and the visible joints."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from figura.synthetic.background import draw_background
from figura.synthetic.canvas import OVERSAMPLING, Canvas, Part, instance_of, part_of
from figura.synthetic.figure import Figure
from figura.synthetic.randomness import Split, Stream, generator
from figura.synthetic.resampling import enlarge, linear
from figura.synthetic.settings import SyntheticSettings
from figura.synthetic.staging import Actor, Stage, draw_actors

_FACE: tuple[frozenset[Part], ...] = (frozenset({Part.HEAD}),) * 5
# for each keypoint in COCO's order, the parts of the joint
OWN = _FACE + tuple(
    frozenset(parts)
    for parts in (
        (Part.LEFT_UPPER_ARM,), (Part.RIGHT_UPPER_ARM,),
        (Part.LEFT_UPPER_ARM, Part.LEFT_FOREARM), (Part.RIGHT_UPPER_ARM, Part.RIGHT_FOREARM),
        (Part.LEFT_FOREARM,), (Part.RIGHT_FOREARM,),
        (Part.LEFT_THIGH,), (Part.RIGHT_THIGH,),
        (Part.LEFT_THIGH, Part.LEFT_SHIN), (Part.RIGHT_THIGH, Part.RIGHT_SHIN),
        (Part.LEFT_SHIN,), (Part.RIGHT_SHIN,),
    )
)  # fmt: skip
# Clothes over trunk and thighs show the joint under them, as in COCO's annotations, unless it is on the far side.
_NONE, _TRUNK, _SKIRT = frozenset[Part](), frozenset({Part.TRUNK}), frozenset({Part.SKIRT})
DRESSED = (_NONE,) * 5 + (_TRUNK,) * 2 + (_NONE,) * 4 + (_TRUNK | _SKIRT,) * 2 + (_SKIRT,) * 2 + (_NONE,) * 2


@dataclass(frozen=True, slots=True)
class Scene:
    """Picture uint8 (side, side, 3), blue first, and its label map uint16 (side, side), see `canvas.label`.

    Actor `i` is instance `i + 1` of the map. `keypoints[i]` (17, 3) holds x, y, v of a person, in pixels with (0, 0) at
    the upper left corner of the image; it is None for things and crowds.
    """

    picture: np.ndarray
    labels: np.ndarray
    actors: tuple[Actor, ...]
    keypoints: tuple[np.ndarray | None, ...]


def draw_scene(settings: SyntheticSettings, *, seed: int, split: Split, index: int) -> Scene:
    """Draw scene `index` of a split; always the same for the same arguments."""
    seed = settings.seed_of(split, seed)
    random = generator(seed, Stream.SCENE, split, index)
    side = settings.image_size * OVERSAMPLING
    stage = Stage(side, horizon=float(random.uniform(0.28, 0.45)) * side, light=float(random.uniform(-1.0, 1.0)))
    canvas = Canvas(draw_background(random, side=side, horizon=stage.horizon, clutter=settings.clutter))
    actors = draw_actors(random, settings, stage, seed=seed, split=split)
    scene = compose(canvas, actors)
    return Scene(_expose(random, scene.picture), scene.labels, scene.actors, scene.keypoints)


def compose(canvas: Canvas, actors: Sequence[Actor]) -> Scene:
    """Paint the actors in order and reduce the canvas."""
    for instance, actor in enumerate(actors, start=1):
        if not actor.crowd:
            _shadow(canvas.picture, actor)
        canvas.paint(actor.pieces, instance)
    keypoints = tuple(_keypoints(canvas, actor, instance) for instance, actor in enumerate(actors, start=1))
    size = (len(canvas.picture) // OVERSAMPLING,) * 2
    picture = cv2.resize(canvas.picture, size, interpolation=cv2.INTER_AREA)
    # use one sample per pixel, so that masks never overlap
    labels = canvas.labels[1::OVERSAMPLING, 1::OVERSAMPLING]
    return Scene(picture, labels, tuple(actors), keypoints)


def _keypoints(canvas: Canvas, actor: Actor, instance: int) -> np.ndarray | None:
    if actor.figure is None or actor.joints is None:
        return None
    return see(canvas.labels, actor.figure, actor.joints, instance) / (OVERSAMPLING, OVERSAMPLING, 1)


def see(labels: np.ndarray, figure: Figure, joints: np.ndarray, instance: int) -> np.ndarray:
    """Return keypoints (17, 3) of an instance: v = 2 visible, 1 inside the image but hidden, 0 (x = y = 0) outside.

    `labels` (side, side) is the canvas's map; `joints` (17, 2) and the returned x and y are positions on it, with (0,
    0) at the upper left corner of the image instead of the centre of its first pixel.
    """
    side = len(labels)
    keypoints = np.zeros((17, 3))
    for i, (x, y) in enumerate(joints + 0.5):
        if not (0.0 <= x < side and 0.0 <= y < side):
            continue
        pixel = labels[int(y), int(x)]
        part = Part(int(part_of(pixel)))
        shows = part in OWN[i] or (part in DRESSED[i] and figure.near[i])
        seen = instance_of(pixel) == instance and shows and figure.facing[i]
        keypoints[i] = x, y, 2 if seen else 1
    return keypoints


def _shadow(picture: np.ndarray, actor: Actor) -> None:
    left, _, right, _ = actor.box
    wide, high = max(int(0.4 * (right - left)), 1), max(int(0.08 * (right - left)), 1)
    corner = int((left + right) / 2) - wide, int(actor.ground) - high
    x0, y0 = max(corner[0], 0), max(corner[1], 0)
    window = picture[y0 : max(corner[1] + 2 * high, 0), x0 : max(corner[0] + 2 * wide, 0)]
    if window.size == 0:
        return
    mask = np.zeros(window.shape[:2], dtype=np.uint8)
    cv2.ellipse(mask, (corner[0] + wide - x0, corner[1] + high - y0), (wide, high), 0, 0, 360, 1, cv2.FILLED)
    cv2.copyTo(cv2.convertScaleAbs(window, alpha=0.68), mask, window)


def _expose(random: np.random.Generator, picture: np.ndarray) -> np.ndarray:
    """Vary brightness, contrast, colour of the light, its fall-off over the image, and the sensor's noise."""
    side = len(picture)
    contrast, brightness = random.uniform(0.78, 1.15), random.uniform(-20.0, 20.0)
    tint = 1.0 + random.normal(0.0, 0.03, 3)
    gain = enlarge(contrast * tint * random.uniform(0.82, 1.12, (2, 2, 1)), side, side, linear)
    grain = random.integers(-3, 4, picture.shape, dtype=np.int8)
    exposed = (picture + np.float32((128.0 + brightness) / contrast - 128.0)) * gain
    return cv2.add(exposed, grain, dtype=cv2.CV_8U)
