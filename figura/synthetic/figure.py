"""A person in a pose: the pieces to paint, and the keypoints."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from figura.synthetic import fabric
from figura.synthetic.canvas import CIRCLE, Cloth, Frame, Part, Piece, capsule, disc, extent, hull
from figura.synthetic.head import face_points, face_turned_to_camera, head_pieces
from figura.synthetic.identity import Colour, Identity
from figura.synthetic.pose import Pose, Skeleton, place

CAMERA_PITCH = 8.0  # degrees; people are seen from slightly above
WOOD: Colour = (52, 84, 120)
FAR_SIDE = 0.045  # of the height: a joint this far behind the middle of its pair is on the far side


@dataclass(frozen=True, slots=True)
class Figure:
    """A posed person in units of its standing height; the origin is the ground under the hips.

    Pieces are sorted from far to near; `box` holds left, top, right, bottom of the person's pieces, without furniture.
    `joints` (17, 3) are the COCO keypoints in camera axes. `facing` (17,) marks those not turned away from the camera
    by the head, `near` (17,) those on the nearer side of the body or in its middle.
    """

    pieces: tuple[Piece, ...]
    box: np.ndarray
    joints: np.ndarray
    facing: np.ndarray
    near: np.ndarray


def build(identity: Identity, pose: Pose, *, turn: float, light: float | None) -> Figure:
    """Dress a person and apply a pose, turned by `turn` degrees, lit from the side `light` in [-1, 1].

    Without `light`, all colours are flat; the shapes are the same.
    """
    skeleton = place(identity.body, pose, turn=turn, pitch=CAMERA_PITCH)
    pieces = _legs(identity, skeleton, light) + _trunk(identity, skeleton, light) + _arms(identity, skeleton, light)
    pieces += head_pieces(identity, skeleton, light)
    if pose.name == "sitting":
        pieces.append(_seat(identity, skeleton, light))
    limbs = [limb[:, i] for limb in (skeleton.arms, skeleton.legs) for i in range(3)]
    joints = np.concatenate([face_points(identity, skeleton), *limbs])
    facing = np.concatenate([face_turned_to_camera(skeleton), np.ones(12, dtype=bool)])
    box = extent(piece for piece in pieces if piece.owned)
    return Figure(tuple(sorted(pieces, key=lambda piece: piece.depth)), box, joints, facing, _near_side(joints))


def _near_side(joints: np.ndarray) -> np.ndarray:
    near = np.ones(17, dtype=bool)
    depth = joints[5:, 2].reshape(-1, 2)
    near[5:] = (depth > depth.mean(axis=1, keepdims=True) - FAR_SIDE).ravel()
    return near


def _arms(identity: Identity, skeleton: Skeleton, light: float | None) -> list[Piece]:
    pieces: list[Piece] = []
    radii = identity.body.arm
    for i in range(2):
        shoulder, elbow, wrist, tip = skeleton.arms[i]
        upper, lower = Part.LEFT_UPPER_ARM + i, Part.LEFT_FOREARM + i
        cover = 2.0 * identity.top.cover
        pieces += _limb((shoulder, elbow), radii[:2], identity, light, part=Part(upper), cloth=Cloth.TOP, cover=cover)
        forearm = _limb(
            (elbow, wrist), radii[1:], identity, light, part=Part(lower), cloth=Cloth.TOP, cover=cover - 1.0
        )
        skin = fabric.plain(identity.skin, light=light)
        frame = Frame(wrist[:2], tip[:2], 1.2 * radii[2])
        hand = capsule(wrist[:2], (0.4 * wrist + 0.6 * tip)[:2], 0.9 * radii[2], 1.25 * radii[2])
        pieces += [Piece((hand,), forearm[0].depth - 1e-4, skin, frame, Part(lower)), *forearm]
    return pieces


def _legs(identity: Identity, skeleton: Skeleton, light: float | None) -> list[Piece]:
    pieces: list[Piece] = []
    radii = identity.body.leg
    for i in range(2):
        hip, knee, ankle, heel, toes = skeleton.legs[i]
        upper, lower = Part.LEFT_THIGH + i, Part.LEFT_SHIN + i
        cover = 0.0 if identity.skirt else 2.0 * identity.bottom.cover
        thigh = _limb((hip, knee), radii[:2], identity, light, part=Part(upper), cloth=Cloth.BOTTOM, cover=cover)
        shin = _limb((knee, ankle), radii[1:], identity, light, part=Part(lower), cloth=Cloth.BOTTOM, cover=cover - 1.0)
        shoe = fabric.plain(identity.shoes, light=light)
        sole = capsule(heel[:2], toes[:2], 0.55 * identity.body.sole, 0.45 * identity.body.sole)
        foot = hull(np.concatenate([sole, disc(ankle[:2], 1.1 * radii[2])]))
        frame = Frame(ankle[:2], ankle[:2] + np.array([0.0, 0.05]), 0.06)
        pieces += [*thigh, Piece((foot,), shin[0].depth - 1e-4, shoe, frame, Part(lower)), *shin]
    return pieces


def _limb(
    ends: tuple[np.ndarray, np.ndarray],
    radii: tuple[float, float],
    identity: Identity,
    light: float | None,
    *,
    part: Part,
    cloth: Cloth,
    cover: float,
) -> list[Piece]:
    """A bone's flesh, and its sleeve or trouser leg over the fraction `cover` of it."""
    start, end = ends
    depth = 0.5 * float(start[2] + end[2])
    if cover < 1.0:
        flesh = capsule(start[:2], end[:2], *radii)
        frame = Frame(start[:2], end[:2], max(radii))
        pieces = [Piece((flesh,), depth, fabric.plain(identity.skin, light=light), frame, part)]
    else:
        pieces = []
    if cover > 0.0:
        garment = identity.top if cloth == Cloth.TOP else identity.bottom
        share = min(cover, 1.0)
        last = start + share * (end - start)
        wide = (radii[0] + 0.004, radii[0] + share * (radii[1] - radii[0]) + 0.006)
        length = share * float(np.linalg.norm(end - start))
        texture = fabric.weave(garment, width=2.0 * max(wide), length=length, light=light)
        frame = Frame(start[:2], last[:2], max(wide))
        sleeve = capsule(start[:2], last[:2], *wide) if cover >= 1.0 else _cuffed(start[:2], last[:2], *wide)
        pieces.append(Piece((sleeve,), depth + 5e-5, texture, frame, part, cloth))
    return pieces


def _cuffed(start: np.ndarray, end: np.ndarray, first: float, last: float) -> np.ndarray:
    """A capsule with a straight far end."""
    along = end - start
    length = float(np.hypot(*along))
    if length < 1e-3:
        return disc(start, max(first, last))
    across = last * np.array([along[1], -along[0]]) / length
    return hull(np.concatenate([disc(start, first), [end + across, end - across]]))


def _trunk(identity: Identity, skeleton: Skeleton, light: float | None) -> list[Piece]:
    body = identity.body
    rings = [_ring(skeleton, share, wide, deep) for share, wide, deep in body.trunk]
    hem = _between(rings, body.trunk, identity.tuck)
    middle, neck, head = skeleton.hip_centre, skeleton.neck, skeleton.head_centre
    depth = 0.5 * float(middle[2] + neck[2]) + 0.012
    half = max(float(np.ptp(ring[:, 0])) for ring in rings[2:5]) / 2.0
    turned = float(np.degrees(np.arctan2(skeleton.chest[0, 2], skeleton.chest[2, 2])))
    cloth = fabric.weave(identity.top, width=2.0 * half, length=body.spine, light=light, turned=turned)
    covered = [ring for ring, row in zip(rings, body.trunk, strict=True) if row[0] < identity.tuck]
    shirt = tuple(_joined([*covered, hem]))
    pieces = [Piece(shirt, depth, cloth, Frame(neck[:2], middle[:2], half), Part.TRUNK, Cloth.TOP)]
    seat = tuple(_joined([_between(rings, body.trunk, 0.74), *rings[-2:]]))
    frame = Frame(0.3 * neck[:2] + 0.7 * middle[:2], middle[:2] + 0.3 * (middle - neck)[:2], half)
    bottom = fabric.weave(identity.bottom, width=2.0 * half, length=body.spine * 0.6, light=light)
    pieces.append(Piece(seat, depth - 0.002, bottom, frame, Part.TRUNK, Cloth.BOTTOM))
    if identity.skirt:
        pieces.append(_skirt(identity, skeleton, rings[-2], depth, light))
    throat = capsule(neck[:2] + 0.012 * skeleton.chest[:2, 1], (0.5 * neck + 0.5 * head)[:2], 0.031, 0.029)
    skin = fabric.plain(identity.skin, light=light)
    neck_depth = max(depth + 1e-3, 0.5 * float(neck[2] + head[2])) if skeleton.chest[2, 2] > 0.0 else depth - 1e-3
    return [*pieces, Piece((throat,), neck_depth, skin, Frame(neck[:2], head[:2], 0.05), Part.NECK)]


def _ring(skeleton: Skeleton, share: float, wide: float, deep: float) -> np.ndarray:
    """The outline (20, 2) of a slice through the trunk."""
    centre = skeleton.neck + share * (skeleton.hip_centre - skeleton.neck)
    frame = skeleton.chest if share < 0.5 else skeleton.pelvis
    return (centre + CIRCLE[:, :1] * wide * frame[:, 0] + CIRCLE[:, 1:] * deep * frame[:, 2])[:, :2]


def _between(rings: list[np.ndarray], trunk: tuple[tuple[float, float, float], ...], share: float) -> np.ndarray:
    upper = max(i for i, row in enumerate(trunk[:-1]) if row[0] < share)
    part = (share - trunk[upper][0]) / (trunk[upper + 1][0] - trunk[upper][0])
    return rings[upper] + part * (rings[upper + 1] - rings[upper])


def _joined(rings: list[np.ndarray]) -> list[np.ndarray]:
    return [hull(np.concatenate(pair)) for pair in pairwise(rings)]


def _skirt(identity: Identity, skeleton: Skeleton, waist: np.ndarray, depth: float, light: float | None) -> Piece:
    """Cloth around both thighs, down to the fraction `cover` of the legs."""
    share = min(2.0 * identity.bottom.cover, 1.0)
    below = 2.0 * identity.bottom.cover - share
    hips, knees, ankles = skeleton.legs[:, 0], skeleton.legs[:, 1], skeleton.legs[:, 2]
    hems = hips + share * (knees - hips) + below * (ankles - knees)
    wide = identity.body.leg[0] + 0.008
    outline = hull(np.concatenate([waist, *(disc(end[:2], wide) for end in (*hips, *hems))]))
    centre, end = skeleton.hip_centre, hems.mean(axis=0)
    half = float(np.ptp(outline[:, 0])) / 2.0
    length = max(float(np.linalg.norm(end - centre)), 0.1)
    texture = fabric.weave(identity.bottom, width=2.0 * half, length=length, light=light)
    start = centre[:2] - 0.2 * (end - centre)[:2]
    covered = (hips + knees) if below == 0.0 else np.concatenate([hips + knees, knees + ankles])
    near = max(depth - 0.001, 0.5 * float(covered[:, 2].max()) + 1e-3)
    return Piece((outline,), near, texture, Frame(start, end[:2], half), Part.SKIRT, Cloth.BOTTOM)


def _seat(identity: Identity, skeleton: Skeleton, light: float | None) -> Piece:
    """A stool under the hips, lit from the front."""
    hips = skeleton.hip_centre
    wide, top = 2.0 * identity.body.hips + 0.02, identity.body.leg[0]
    corners = np.array([[-wide, hips[1] + top], [wide, hips[1] + top], [0.9 * wide, 0.0], [-0.9 * wide, 0.0]])
    wood = fabric.plain(WOOD, light=None if light is None else 0.0)
    frame = Frame(np.array([hips[0], hips[1]]), np.array([hips[0], 0.0]), wide)
    return Piece((hull(corners + np.array([hips[0], 0.0])),), float(hips[2]) - 0.02, wood, frame, owned=False)
