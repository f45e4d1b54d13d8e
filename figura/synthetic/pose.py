"""Poses as joint angles within human limits, and the skeleton in space.

Axes of the body: x to the person's left, y down, z forward. Angles in degrees. Rows `0` and `1` are left and right.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from figura.synthetic.identity import Body
from figura.synthetic.settings import PoseName, ViewName

SIDES = (1.0, -1.0)

# Columns: lowest, highest. Rows: spine lean, bend, twist; head turn, nod; shoulder flexion, abduction, rotation, elbow;
# hip flexion, abduction, knee. Rounded from the usual ranges of motion, kept a little inside them.
SPINE_LIMITS = np.array([[-10, 45], [-20, 20], [-25, 25]])
HEAD_LIMITS = np.array([[-45, 45], [-35, 30]])
ARM_LIMITS = np.array([[-50, 170], [0, 172], [-80, 90], [0, 145]])
LEG_LIMITS = np.array([[-25, 122], [0, 40], [0, 145]])
ANKLE_LIMITS = (-40.0, 30.0)


class Template(NamedTuple):
    """The mean angles of a kind of pose, and a factor on their standard deviations."""

    spine: tuple[float, float, float]
    nod: float
    arms: tuple[tuple[float, float, float, float], tuple[float, float, float, float]]
    legs: tuple[tuple[float, float, float], tuple[float, float, float]]
    std_factor: float = 1.0


HANGING = (2.0, 9.0, 0.0, 14.0)
UPRIGHT = (0.0, 4.0, 3.0)
TEMPLATES: dict[PoseName, tuple[Template, ...]] = {
    "standing": (
        Template((0, 0, 0), 0, (HANGING, HANGING), (UPRIGHT, UPRIGHT)),
        Template((0, 0, 0), 0, ((-12, 42, -62, 98), HANGING), (UPRIGHT, (4, 9, 8))),
        Template((0, 0, 0), 0, ((28, 8, -35, 85), (30, 8, -35, 80)), (UPRIGHT, UPRIGHT)),
    ),
    "walking": (Template((4, 0, 6), 0, ((-26, 8, 0, 20), (28, 7, 0, 32)), ((26, 4, 9), (-18, 4, 24)), 0.9),),
    "waving": (
        Template((0, 3, 0), 0, ((0, 88, 82, 88), HANGING), (UPRIGHT, UPRIGHT)),
        Template((0, 3, 0), 0, ((10, 140, 60, 35), HANGING), (UPRIGHT, (3, 8, 6))),
    ),
    "sitting": (Template((6, 0, 0), 2, ((34, 10, -22, 50), (34, 10, -22, 50)), ((84, 9, 84), (84, 9, 84))),),
    "crouching": (
        Template((26, 0, 0), -14, ((52, 12, -18, 48), (52, 12, -18, 48)), ((112, 16, 126), (112, 16, 126)), 0.8),
    ),
    "arms_up": (
        Template((-2, 0, 0), -4, ((4, 158, 50, 18), (4, 158, 50, 18)), (UPRIGHT, UPRIGHT)),
        Template((-2, 0, 0), -4, ((4, 128, 70, 62), (4, 128, 70, 62)), (UPRIGHT, UPRIGHT)),
    ),
}
SPINE_STD = np.array([3.0, 3.0, 6.0])
HEAD_STD = np.array([16.0, 6.0])
ARM_STD = np.array([9.0, 6.0, 12.0, 11.0])
LEG_STD = np.array([4.0, 3.0, 5.0])


@dataclass(frozen=True, slots=True)
class Pose:
    """Angles in degrees: spine (3,), head (2,), arms (2, 4), legs (2, 3), in the order of the limits."""

    name: PoseName
    spine: np.ndarray
    head: np.ndarray
    arms: np.ndarray
    legs: np.ndarray


def draw_pose(random: np.random.Generator, name: PoseName) -> Pose:
    """Draw a pose of this kind, mirrored half of the time, with every angle inside its limits."""
    templates = TEMPLATES[name]
    template = templates[random.integers(len(templates))]
    side = slice(None, None, -1) if random.random() < 0.5 else slice(None)
    return Pose(
        name=name,
        spine=_near(random, template.spine, SPINE_STD * template.std_factor, SPINE_LIMITS),
        head=_near(random, (0.0, template.nod), HEAD_STD * template.std_factor, HEAD_LIMITS),
        arms=_near(random, template.arms, ARM_STD * template.std_factor, ARM_LIMITS)[side],
        legs=_near(random, template.legs, LEG_STD * template.std_factor, LEG_LIMITS)[side],
    )


def _near(random: np.random.Generator, middle: tuple, std: np.ndarray, limits: np.ndarray) -> np.ndarray:
    centre = np.asarray(middle, dtype=np.float64)
    # Clip at two standard deviations: several extreme angles together look broken, even if each is possible.
    noise = np.clip(random.standard_normal(centre.shape), -2.0, 2.0) * std
    return np.clip(centre + noise, limits[:, 0], limits[:, 1])


def draw_turn(random: np.random.Generator, view: ViewName) -> float:
    """Draw a person's turn about the vertical, degrees: 0 faces the camera, 90 the right border of the image."""
    middle = {"front": 0.0, "back": 180.0, "side": 90.0 if random.random() < 0.5 else -90.0}[view]
    return middle + float(np.clip(random.normal(0.0, 14.0), -28.0, 28.0))


def turn_x(degrees: float) -> np.ndarray:
    """Rotation (3, 3) that takes down to forward."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])


def turn_y(degrees: float) -> np.ndarray:
    """Rotation (3, 3) that takes forward to the person's left."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def turn_z(degrees: float) -> np.ndarray:
    """Rotation (3, 3) that takes down to the person's left."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, slots=True)
class Skeleton:
    """Joints in camera axes (x right, y down, z to the camera), units of the standing height.

    The origin is the ground under the hips. Frames (3, 3) hold the axes of pelvis, chest and head as columns; arms are
    (2, 4, 3): shoulder, elbow, wrist, fingertips; legs are (2, 5, 3): hip, knee, ankle, heel, toes.
    """

    pelvis: np.ndarray
    chest: np.ndarray
    head: np.ndarray
    hip_centre: np.ndarray
    neck: np.ndarray
    head_centre: np.ndarray
    arms: np.ndarray
    legs: np.ndarray


def place(body: Body, pose: Pose, *, turn: float, pitch: float) -> Skeleton:
    """Compute forward kinematics for a camera that looks down by `pitch` degrees, without perspective."""
    pelvis = turn_x(-pitch) @ turn_y(turn)
    lean, bend, twist = pose.spine
    chest = pelvis @ turn_x(-lean) @ turn_z(bend) @ turn_y(twist)
    head = chest @ turn_y(pose.head[0]) @ turn_x(-pose.head[1])
    # The lower third of the spine stays with the pelvis, so that the trunk bends rather than tips over.
    neck = -body.spine * (0.3 * pelvis[:, 1] + 0.7 * chest[:, 1])
    legs = np.stack([_leg(body, pelvis, pose.legs[i], SIDES[i]) for i in range(2)])
    arms = np.stack([_arm(body, chest, neck, pose.arms[i], SIDES[i]) for i in range(2)])
    skull = neck - body.neck * 0.5 * (chest + head)[:, 1] - body.head * head[:, 1]
    ground = (np.max(legs @ pelvis[:, 1]) + 0.4 * body.sole) * pelvis[:, 1]
    return Skeleton(pelvis, chest, head, -ground, neck - ground, skull - ground, arms - ground, legs - ground)


def _arm(body: Body, chest: np.ndarray, neck: np.ndarray, angles: np.ndarray, side: float) -> np.ndarray:
    flexion, abduction, rotation, elbow = angles
    upper = chest @ turn_x(flexion) @ turn_z(side * abduction) @ turn_y(side * rotation)
    lower = upper @ turn_x(elbow)
    # A raised arm lifts its shoulder.
    lift = 0.02 * (1.0 - np.cos(np.radians(max(flexion, abduction)))) / 2.0
    shoulder = neck + chest @ np.array([side * body.shoulders, 0.035 - lift, 0.0])
    bend = shoulder + body.arm_lengths[0] * upper[:, 1]
    wrist = bend + body.arm_lengths[1] * lower[:, 1]
    return np.stack([shoulder, bend, wrist, wrist + 0.055 * lower[:, 1]])


def _leg(body: Body, pelvis: np.ndarray, angles: np.ndarray, side: float) -> np.ndarray:
    flexion, abduction, knee = angles
    # Abduction spreads hanging legs in the frontal plane and opens the knees of a seated person in the horizontal one.
    hanging = np.cos(np.radians(flexion))
    spread = turn_z(side * abduction * hanging) @ turn_y(side * abduction * (1.0 - hanging))
    upper = pelvis @ spread @ turn_x(flexion)
    lower = upper @ turn_x(-knee)
    # Feet are flat as far as the ankle allows.
    foot = lower @ turn_x(float(np.clip(knee - flexion, *ANKLE_LIMITS)))
    hip = side * body.hips * pelvis[:, 0]
    bend = hip + body.leg_lengths[0] * upper[:, 1]
    ankle = bend + body.leg_lengths[1] * lower[:, 1]
    low = ankle + 0.5 * body.sole * foot[:, 1]
    return np.stack([hip, bend, ankle, low - 0.03 * foot[:, 2], low + 0.085 * foot[:, 2]])
