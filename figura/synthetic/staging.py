"""Place people and things in a scene."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from figura.synthetic.canvas import Piece, extent
from figura.synthetic.figure import Figure, build
from figura.synthetic.identity import draw_identity
from figura.synthetic.objects import WIDTHS, draw_thing
from figura.synthetic.pose import draw_pose, draw_turn
from figura.synthetic.randomness import SPLITS, Split, Stream, generator, pick
from figura.synthetic.settings import PoseName, SyntheticSettings

GROUND_SLOPE = 0.62  # ground position below the horizon, per standing height: the camera is at chest height
PLACEMENTS = 40  # attempts to find a free position before a person is skipped
CROWD_HEIGHTS = (0.09, 0.17)
CROWD_POSES: dict[PoseName, float] = {"standing": 0.55, "walking": 0.3, "arms_up": 0.15}
OBJECT_HEIGHTS = (0.45, 0.95)  # of a person at the same distance, fractions of the side


@dataclass(frozen=True, slots=True)
class Stage:
    """Shared by a scene: side in canvas pixels, row of the horizon, side of the light."""

    side: int
    horizon: float
    light: float


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, a thing or a crowd in canvas pixels; actors are painted in the order of `ground`.

    `box` holds left, top, right, bottom, including hidden parts. A person has a `figure` with its `joints`
    (17, 2) and `facts` for its annotation.
    """

    category: str
    pieces: tuple[Piece, ...]
    ground: float
    box: np.ndarray
    joints: np.ndarray | None = None
    figure: Figure | None = None
    crowd: bool = False
    facts: tuple[tuple[str, str | int], ...] = ()


def stand(figure: Figure, *, height: float, x: float, ground: float, **facts: str | int) -> Actor:
    """Put a figure of the given standing height onto the ground."""
    offset = np.array([x, ground])
    return Actor(
        category="person",
        pieces=tuple(piece.moved(height, offset) for piece in figure.pieces),
        ground=ground,
        box=figure.box * height + np.tile(offset, 2),
        joints=figure.joints[:, :2] * height + offset,
        figure=figure,
        facts=tuple(facts.items()),
    )


def overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Return intersection over the smaller area of two boxes (left, top, right, bottom)."""
    size = np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2])
    smaller = min(float(np.prod(first[2:] - first[:2])), float(np.prod(second[2:] - second[:2])))
    return float(np.prod(np.maximum(size, 0.0))) / smaller


def draw_actors(
    random: np.random.Generator, settings: SyntheticSettings, stage: Stage, *, seed: int, split: Split
) -> list[Actor]:
    """Draw all actors of a scene, from far to near."""
    actors: list[Actor] = []
    if random.random() < settings.crowd_share:
        actors.append(_crowd(random, settings, stage))
    count = pick(random, settings.people_per_scene)
    boxes: list[np.ndarray] = []
    for index in random.choice(getattr(settings.identities, split), count, replace=False):
        if person := _person(random, settings, stage, boxes, seed=seed, split=split, index=int(index)):
            actors.append(person)
            boxes.append(person.box)
    for _ in range(pick(random, settings.objects_per_scene)):
        if thing := _thing(random, stage, boxes, most=settings.max_overlap):
            actors.append(thing)
            boxes.append(thing.box)
    return sorted(actors, key=lambda actor: actor.ground)


def _person(
    random: np.random.Generator,
    settings: SyntheticSettings,
    stage: Stage,
    taken: Sequence[np.ndarray],
    *,
    seed: int,
    split: Split,
    index: int,
) -> Actor | None:
    """Draw a person in some pose, or None if there is no room."""
    identity = draw_identity(
        generator(seed, Stream.IDENTITY, split, index),
        limb_thickness=settings.limb_thickness,
        head_size=settings.head_size,
    )
    pose, view = pick(random, settings.poses), pick(random, settings.views)
    figure = build(identity, draw_pose(random, pose), turn=draw_turn(random, view), light=stage.light)
    number = index + 1 + sum(getattr(settings.identities, other) for other in SPLITS[: SPLITS.index(split)])
    cut = random.random() < settings.cut_share
    for _ in range(PLACEMENTS):
        height = float(random.uniform(*settings.height_range)) * stage.side
        x, ground = _position(random, figure.box * height, stage, stage.horizon + GROUND_SLOPE * height, cut)
        if _is_free(figure.box * height + (x, ground, x, ground), taken, settings.max_overlap):
            return stand(figure, height=height, x=x, ground=ground, person_id=number, pose=pose, view=view)
    return None


def _position(
    random: np.random.Generator, box: np.ndarray, stage: Stage, ground: float, cut: bool
) -> tuple[float, float]:
    """Return a position where the box is inside the image or, with `cut`, crosses its border by up to half."""
    left, top, right, bottom = box
    side = stage.side
    low = side - bottom
    inside = min(max(ground + random.normal(0.0, 0.02) * side, -top), low)
    across = sorted((-left, side - right))
    if not cut:
        return float(random.uniform(*across)), float(inside)
    out = random.uniform(0.15, 0.5)
    border = random.integers(3)
    if border == 0:
        return float(-left - out * (right - left)), float(inside)
    if border == 1:
        return float(side - right + out * (right - left)), float(inside)
    return float(random.uniform(*across)), float(low + out * (bottom - top))


def _is_free(box: np.ndarray, taken: Sequence[np.ndarray], most: float) -> bool:
    return all(overlap(box, other) <= most for other in taken)


def _thing(random: np.random.Generator, stage: Stage, taken: Sequence[np.ndarray], *, most: float) -> Actor | None:
    """Draw a ball, box, bird or car, or None if there is no room."""
    kind = sorted(WIDTHS)[random.integers(len(WIDTHS))]
    pieces = draw_thing(random, kind)
    around = extent(pieces)
    flies = kind == "bird" and random.random() < 0.5
    for _ in range(PLACEMENTS):
        distance = random.uniform(*OBJECT_HEIGHTS) * stage.side
        size = float(distance * random.uniform(*WIDTHS[kind]))
        ground = float(min(stage.horizon + GROUND_SLOPE * distance, 1.05 * stage.side))
        air = random.uniform(0.1, 0.6) * stage.side if flies else 0.0
        offset = np.array([random.uniform(0.0, stage.side), ground - air])
        box = around * size + np.tile(offset, 2)
        if box[3] > 0.1 * stage.side and _is_free(box, taken, most):
            return Actor(kind, tuple(piece.moved(size, offset) for piece in pieces), ground, box)
    return None


def _crowd(random: np.random.Generator, settings: SyntheticSettings, stage: Stage) -> Actor:
    """Draw a crowd: many small people far away, without individual labels."""
    pieces: list[Piece] = []
    middle, reach = random.uniform(0.25, 0.75) * stage.side, random.uniform(0.18, 0.4) * stage.side
    for height in np.sort(random.uniform(*CROWD_HEIGHTS, random.integers(10, 22))) * stage.side:
        identity = draw_identity(random, limb_thickness=settings.limb_thickness, head_size=settings.head_size)
        pose, turn = draw_pose(random, pick(random, CROWD_POSES)), float(random.uniform(-180.0, 180.0))
        figure = build(identity, pose, turn=turn, light=stage.light)
        offset = np.array([middle + random.uniform(-reach, reach), stage.horizon + GROUND_SLOPE * height])
        pieces += [piece.moved(float(height), offset) for piece in figure.pieces]
    return Actor("person", tuple(pieces), stage.horizon, extent(pieces), crowd=True)
