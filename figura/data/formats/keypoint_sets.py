"""Published sets of joints by name: COCO, CrowdPose, COCO-WholeBody, Halpe, PoseTrack, MPII, Human-Art, AP-10K.

The order of the joints is that of the published annotation files. Sources of names, sigmas and connections:
    coco: figura.data.formats.skeletons.
    crowdpose: Li et al., "CrowdPose: Efficient Crowded Scenes Pose Estimation and a New Benchmark", 2019; sigmas of its
        evaluation (crowdpose-api/PythonAPI/crowdposetools/cocoeval.py); connections of OpenPifPaf's plugin.
    wholebody: Jin et al., "Whole-Body Human Pose Estimation in the Wild", 2020; sigmas of its evaluation
        (evaluation/myeval_wholebody.py); joints of feet, face and hands named as in MMPose
        (configs/_base_/datasets/coco_wholebody.py); the face's 68 are those of iBUG 300-W.
    ap10k: Yu et al., "AP-10K: A Benchmark for Animal Pose Estimation in the Wild", 2021; its annotation files, and the
        sigmas of its repository (configs/_base_/datasets/ap10k.py).
    halpe: Li et al., "PaStaNet", 2020; names, order and sigmas of Halpe-FullBody (README.md and
        HalpeCOCOAPI/PythonAPI/halpecocotools/cocoeval.py). halpe26 has the first 26, the body and the feet.
    ochuman: Zhang et al., "Pose2Seg: Detection Free Human Instance Segmentation", 2019; the joints and the evaluation
        of its COCO files (OCHumanApi) are COCO's.
    posetrack18: Andriluka et al., "PoseTrack: A Benchmark for Human Pose Estimation and Tracking", 2018. Its evaluation
        is PCKh, so no sigmas are published; they are those of MMPose (configs/_base_/datasets/posetrack18.py).
    mpii: Andriluka et al., "2D Human Pose Estimation: New Benchmark and State of the Art Analysis", 2014; the order of
        its joint ids. As PoseTrack's, its sigmas are MMPose's (mpii.py).
    humanart: Ju et al., "Human-Art: A Versatile Human-Centric Dataset Bridging Natural and Artificial Scenes", 2023:
        `keypoints` are COCO's 17. humanart21 are those of `keypoints_21`, with MMPose's sigmas (humanart21.py).
    body_25: the order of OpenPose (doc/02_output.md); without sigmas of its own, so Halpe's for the same joints.
Connections are MMPose's where a set publishes none. Standing poses, and the connections of the face and the hands, were
made for figura: OKS does not use them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from figura.data.formats.skeletons import COCO, Connections, Skeleton


@dataclass(frozen=True)
class KeypointSet:
    """A published set of joints, and the name of an instance if several categories are merged."""

    skeleton: Skeleton
    people: str


def _flip(names: Sequence[str], pairs: dict[str, str]) -> tuple[int, ...]:
    places = {name: place for place, name in enumerate(names)}
    both = pairs | {other: one for one, other in pairs.items()}
    return tuple(places[both.get(name, name)] for name in names)


def _sides(names: Sequence[str]) -> dict[str, str]:
    return {name: name.replace("left", "right") for name in names if "left" in name}


def _pose(skeleton: Skeleton) -> dict[str, tuple[float, float]]:
    return {name: (float(x), float(y)) for name, (x, y) in zip(skeleton.keypoints, skeleton.standing_pose, strict=True)}


def _places(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Connections:
    return tuple((names.index(a), names.index(b)) for a, b in pairs)


_ROW = ("shoulder", "elbow", "wrist", "hip", "knee", "ankle")
_CROWDPOSE = (*(f"{side}_{part}" for part in _ROW for side in ("left", "right")), "head", "neck")
_BODY = [COCO.keypoints.index(name) for name in _CROWDPOSE[:12]]

CROWDPOSE = Skeleton(
    keypoints=_CROWDPOSE,
    sigmas=np.array([*COCO.sigmas[_BODY], 0.079, 0.079]),
    flip=_flip(_CROWDPOSE, _sides(_CROWDPOSE)),
    connections=_places(_CROWDPOSE, (
        ("head", "neck"), ("neck", "left_shoulder"), ("neck", "right_shoulder"), ("left_shoulder", "right_shoulder"),
        ("left_hip", "right_hip"), ("left_shoulder", "left_elbow"), ("left_elbow", "left_wrist"),
        ("right_shoulder", "right_elbow"), ("right_elbow", "right_wrist"), ("left_shoulder", "left_hip"),
        ("right_shoulder", "right_hip"), ("left_hip", "left_knee"), ("left_knee", "left_ankle"),
        ("right_hip", "right_knee"), ("right_knee", "right_ankle"),
    )),
    dense_connections=(),
    kinematic_tree=_places(_CROWDPOSE, (
        ("neck", "head"), ("neck", "left_shoulder"), ("left_shoulder", "left_elbow"), ("left_elbow", "left_wrist"),
        ("neck", "right_shoulder"), ("right_shoulder", "right_elbow"), ("right_elbow", "right_wrist"),
        ("left_shoulder", "left_hip"), ("left_hip", "left_knee"), ("left_knee", "left_ankle"),
        ("right_shoulder", "right_hip"), ("right_hip", "right_knee"), ("right_knee", "right_ankle"),
    )),
    score_weights=np.ones(14),
    standing_pose=np.array([*COCO.standing_pose[_BODY], (0.0, 10.3), (0.0, 8.6)]),
)  # fmt: skip

_AP10K = (
    "left_eye", "right_eye", "nose", "neck", "root_of_tail", "left_shoulder", "left_elbow", "left_front_paw",
    "right_shoulder", "right_elbow", "right_front_paw", "left_hip", "left_knee", "left_back_paw", "right_hip",
    "right_knee", "right_back_paw",
)  # fmt: skip

AP10K = Skeleton(
    keypoints=_AP10K,
    sigmas=np.array([
        0.025, 0.025, 0.026, 0.035, 0.035, 0.079, 0.072, 0.062, 0.079, 0.072, 0.062, 0.107, 0.087, 0.089, 0.107, 0.087,
        0.089,
    ]),
    flip=_flip(_AP10K, _sides(_AP10K)),
    connections=_places(_AP10K, (
        ("left_eye", "right_eye"), ("left_eye", "nose"), ("right_eye", "nose"), ("nose", "neck"),
        ("neck", "root_of_tail"), ("neck", "left_shoulder"), ("left_shoulder", "left_elbow"),
        ("left_elbow", "left_front_paw"), ("neck", "right_shoulder"), ("right_shoulder", "right_elbow"),
        ("right_elbow", "right_front_paw"), ("root_of_tail", "left_hip"), ("left_hip", "left_knee"),
        ("left_knee", "left_back_paw"), ("root_of_tail", "right_hip"), ("right_hip", "right_knee"),
        ("right_knee", "right_back_paw"),
    )),
    dense_connections=(),
    kinematic_tree=_places(_AP10K, (
        ("neck", "nose"), ("nose", "left_eye"), ("nose", "right_eye"), ("neck", "root_of_tail"),
        ("neck", "left_shoulder"), ("left_shoulder", "left_elbow"), ("left_elbow", "left_front_paw"),
        ("neck", "right_shoulder"), ("right_shoulder", "right_elbow"), ("right_elbow", "right_front_paw"),
        ("root_of_tail", "left_hip"), ("left_hip", "left_knee"), ("left_knee", "left_back_paw"),
        ("root_of_tail", "right_hip"), ("right_hip", "right_knee"), ("right_knee", "right_back_paw"),
    )),
    score_weights=np.ones(17),
    standing_pose=np.array([  # seen from its left, slightly from the front
        (-5.2, 7.4), (-4.8, 7.5), (-5.8, 6.6), (-3.2, 6.6), (4.2, 6.2), (-2.6, 4.6), (-2.9, 2.6), (-2.9, 0.0),
        (-2.0, 4.7), (-2.2, 2.8), (-2.2, 0.4), (3.2, 4.6), (3.7, 2.6), (3.5, 0.0), (3.8, 4.7), (4.4, 2.8), (4.2, 0.4),
    ]),
)  # fmt: skip

_TOES = ("big_toe", "small_toe", "heel")
_FINGERS = ("thumb", "forefinger", "middle_finger", "ring_finger", "pinky_finger")
_FEET = tuple(f"{side}_{part}" for side in ("left", "right") for part in _TOES)
_FACE = tuple(f"face-{number}" for number in range(68))
_HANDS = tuple(
    f"{side}_{part}"
    for side in ("left", "right")
    for part in ("hand_root", *(f"{finger}{joint}" for finger in _FINGERS for joint in range(1, 5)))
)
_WHOLEBODY = (*COCO.keypoints, *_FEET, *_FACE, *_HANDS)

# Numbers of the face's joints, 0 to 67: chains, closed rings, and the ranges reversed by mirroring.
_CHAINS = (range(17), range(17, 22), range(22, 27), range(27, 31), range(31, 36))
_RINGS = (range(36, 42), range(42, 48), range(48, 60), range(60, 68))
_TURNED = ((0, 16), (17, 26), (31, 35), (48, 54), (55, 59), (60, 64), (65, 67))
_EYES = {36: 45, 37: 44, 38: 43, 39: 42, 40: 47, 41: 46}
_FACE_LINKS = (
    (0, 17), (16, 26), (21, 27), (22, 27), (27, 39), (27, 42), (30, 33), (33, 51), (48, 60), (54, 64),
)  # fmt: skip


def _face(number: int) -> str:
    return _FACE[number]


_COCO_PAIRS = [(COCO.keypoints[a], COCO.keypoints[b]) for a, b in COCO.connections]
_FEET_PAIRS = [(f"{side}_ankle", f"{side}_{part}") for side in ("left", "right") for part in _TOES]


def _face_sides() -> dict[str, str]:
    pairs = {_face(one): _face(other) for one, other in _EYES.items()}
    for first, last in _TURNED:
        pairs |= {_face(first + step): _face(last - step) for step in range((last - first + 1) // 2)}
    return pairs


def _face_and_hand_pairs() -> list[tuple[str, str]]:
    pairs = [("nose", _face(30)), ("right_ear", _face(0)), ("left_ear", _face(16))]
    pairs += [(_face(a), _face(b)) for chain in _CHAINS for a, b in pairwise(chain)]
    pairs += [(_face(a), _face(b)) for ring in _RINGS for a, b in pairwise((*ring, ring[0]))]
    pairs += [(_face(a), _face(b)) for a, b in _FACE_LINKS]
    for side in ("left", "right"):
        root = f"{side}_hand_root"
        pairs.append((f"{side}_wrist", root))
        for finger in _FINGERS:
            pairs += pairwise((root, *(f"{side}_{finger}{joint}" for joint in range(1, 5))))
    return pairs


def _face_pose() -> list[tuple[float, float]]:
    """Place the face's joints around (0, 9.2), 1.5 wide, in the unit of COCO's standing pose; face-0 is at the right.

    As in COCO's standing pose the person's right has positive x.
    """
    outline = [(0.75 * np.cos(turn), 9.65 - 1.25 * np.sin(turn)) for turn in np.linspace(0, np.pi, 17)]
    brow = [(0.62 - 0.11 * step, 9.85 + 0.05 * step * (4 - step) / 2) for step in range(5)]
    brows = brow + [(-x, y) for x, y in brow[::-1]]
    bridge = [(0.0, 9.7 - 0.13 * step) for step in range(4)]
    base = [(0.2 - 0.1 * step, 9.17 - 0.02 * (2 - abs(step - 2))) for step in range(5)]
    eye = [(0.47, 9.7), (0.39, 9.75), (0.29, 9.75), (0.2, 9.69), (0.29, 9.65), (0.39, 9.65)]
    other = [(-eye[partner][0], eye[partner][1]) for partner in (3, 2, 1, 0, 5, 4)]
    lips = [(0.34 * np.cos(turn), 8.85 - 0.13 * np.sin(turn)) for turn in -np.arange(12) * np.pi / 6]
    inner = [(0.24 * np.cos(turn), 8.85 - 0.04 * np.sin(turn)) for turn in -np.arange(8) * np.pi / 4]
    return [*outline, *brows, *bridge, *base, *eye, *other, *lips, *inner]


def _hand_pose(wrist: tuple[float, float], inwards: float) -> list[tuple[float, float]]:
    """Place a hand hanging below its `wrist`, with the thumb on the side `inwards` (1: greater x)."""
    fingers = [
        [(wrist[0] + inwards * (0.12 + 0.06 * joint), wrist[1] - 0.3 - 0.16 * joint) for joint in range(4)],
        *(
            [
                (wrist[0] + inwards * across * (1 + 0.1 * joint), wrist[1] - 0.75 + drop - 0.2 * joint)
                for joint in range(4)
            ]
            for across, drop in ((0.16, 0.0), (0.05, -0.03), (-0.06, 0.0), (-0.17, 0.08))
        ),
    ]
    return [(wrist[0], wrist[1] - 0.1), *(point for finger in fingers for point in finger)]


def _wholebody_pose() -> list[tuple[float, float]]:
    body = _pose(COCO)
    ankles = [body[f"{side}_ankle"] for side in ("left", "right")]
    feet = [
        (x + outwards * across, y - down)
        for (x, y), outwards in zip(ankles, (-1, 1), strict=True)
        for across, down in ((-0.15, 0.5), (0.3, 0.45), (0.0, 0.2))
    ]
    hands = [_hand_pose(body[f"{side}_wrist"], inwards) for side, inwards in (("left", 1.0), ("right", -1.0))]
    return [*body.values(), *feet, *_face_pose(), *hands[0], *hands[1]]


_FACE_SIGMAS = (
    0.042, 0.043, 0.044, 0.043, 0.040, 0.035, 0.031, 0.025, 0.020, 0.023, 0.029, 0.032, 0.037, 0.038, 0.043, 0.041,
    0.045, 0.013, 0.012, 0.011, 0.011, 0.012, 0.012, 0.011, 0.011, 0.013, 0.015, 0.009, 0.007, 0.007, 0.007, 0.012,
    0.009, 0.008, 0.016, 0.010, 0.017, 0.011, 0.009, 0.011, 0.009, 0.007, 0.013, 0.008, 0.011, 0.012, 0.010, 0.034,
    0.008, 0.008, 0.009, 0.008, 0.008, 0.007, 0.010, 0.008, 0.009, 0.009, 0.009, 0.007, 0.007, 0.008, 0.011, 0.008,
    0.008, 0.008, 0.010, 0.008,
)  # fmt: skip
_HAND_SIGMAS = (
    0.029, 0.022, 0.035, 0.037, 0.047, 0.026, 0.025, 0.024, 0.035, 0.018, 0.024, 0.022, 0.026, 0.017, 0.021, 0.021,
    0.032, 0.020, 0.019, 0.022, 0.031,
)  # fmt: skip

WHOLEBODY = Skeleton(
    keypoints=_WHOLEBODY,
    sigmas=np.array([
        *COCO.sigmas, 0.068, 0.066, 0.066, 0.092, 0.094, 0.094, *_FACE_SIGMAS, *_HAND_SIGMAS, *_HAND_SIGMAS
    ]),
    flip=_flip(_WHOLEBODY, _sides(_WHOLEBODY) | _face_sides()),
    connections=_places(_WHOLEBODY, [*_COCO_PAIRS, *_FEET_PAIRS, *_face_and_hand_pairs()]),
    dense_connections=(),
    kinematic_tree=(),
    score_weights=np.ones(133),
    standing_pose=np.array(_wholebody_pose()),
)  # fmt: skip

_MIDDLE = {
    "head": (0.0, 10.3),
    "head_top": (0.0, 10.3),
    "neck": (0.0, 8.6),
    "upper_neck": (0.0, 8.6),
    "head_bottom": (0.0, 8.6),
    "thorax": (0.0, 8.0),
    "hip": (0.0, 4.0),
    "pelvis": (0.0, 4.0),
}
"""Where joints in the middle of the body are in COCO's standing pose."""


def _person(names: Sequence[str], sigmas: Sequence[float], pairs: Sequence[tuple[str, str]]) -> Skeleton:
    """Return a skeleton of joints whose places are known from WholeBody's standing pose, or from `_MIDDLE`."""
    places = _pose(WHOLEBODY) | _MIDDLE
    for side in ("left", "right"):
        places |= {f"{side}_finger": places[f"{side}_middle_finger4"], f"{side}_toe": places[f"{side}_big_toe"]}
    sides = _sides(names) | (_face_sides() if _face(0) in names else {})
    return Skeleton(
        keypoints=tuple(names),
        sigmas=np.array(sigmas),
        flip=_flip(names, sides),
        connections=_places(names, pairs),
        dense_connections=(),
        kinematic_tree=(),
        score_weights=np.ones(len(names)),
        standing_pose=np.array([places[name] for name in names]),
    )


_LIMBS = [
    (f"{side}_{one}", f"{side}_{other}")
    for side in ("left", "right")
    for one, other in (("shoulder", "elbow"), ("elbow", "wrist"), ("hip", "knee"), ("knee", "ankle"))
]


def _both(middle: str, part: str) -> list[tuple[str, str]]:
    return [(middle, f"left_{part}"), (middle, f"right_{part}")]


_HALPE26 = (*COCO.keypoints, "head", "neck", "hip", *(f"{side}_{part}" for part in _TOES for side in ("left", "right")))
_HALPE26_SIGMAS = (*COCO.sigmas, *[0.08] * 3, *[0.089] * 6)
_HALPE26_PAIRS = [
    *_COCO_PAIRS[-7:], ("head", "neck"), ("neck", "hip"), *_both("neck", "shoulder"), *_both("hip", "hip"), *_LIMBS,
    *_FEET_PAIRS,
]  # fmt: skip

HALPE26 = _person(_HALPE26, _HALPE26_SIGMAS, _HALPE26_PAIRS)
HALPE = _person(
    (*_HALPE26, *_FACE, *_HANDS), (*_HALPE26_SIGMAS, *[0.015] * 110), [*_HALPE26_PAIRS, *_face_and_hand_pairs()]
)

POSETRACK18 = _person(
    ("nose", "head_bottom", "head_top", *COCO.keypoints[3:]),
    (0.026, 0.025, 0.025, *COCO.sigmas[3:]),
    [
        ("nose", "head_bottom"), ("nose", "head_top"), *_both("head_bottom", "shoulder"), *_LIMBS,
        ("left_shoulder", "right_shoulder"), ("left_shoulder", "left_hip"), ("right_shoulder", "right_hip"),
        ("left_hip", "right_hip"), ("nose", "left_ear"), ("nose", "right_ear"),
    ],
)  # fmt: skip

MPII = _person(
    (
        "right_ankle", "right_knee", "right_hip", "left_hip", "left_knee", "left_ankle", "pelvis", "thorax",
        "upper_neck", "head_top", "right_wrist", "right_elbow", "right_shoulder", "left_shoulder", "left_elbow",
        "left_wrist",
    ),
    (
        0.089, 0.083, 0.107, 0.107, 0.083, 0.089, 0.026, 0.026, 0.026, 0.026, 0.062, 0.072, 0.179, 0.179, 0.072, 0.062,
    ),
    [
        *_both("pelvis", "hip"), ("pelvis", "thorax"), ("thorax", "upper_neck"), ("upper_neck", "head_top"),
        *_both("upper_neck", "shoulder"), *_LIMBS,
    ],
)  # fmt: skip

HUMANART21 = _person(
    (*COCO.keypoints, "left_finger", "right_finger", "left_toe", "right_toe"),
    (*COCO.sigmas, *[0.089] * 4),
    [
        *_COCO_PAIRS, *((f"{side}_{one}", f"{side}_{other}") for side in ("left", "right")
        for one, other in (("ankle", "toe"), ("wrist", "finger"))),
    ],
)  # fmt: skip

_BODY_25 = (
    "nose", "neck", *(f"{side}_{part}" for side in ("right", "left") for part in ("shoulder", "elbow", "wrist")),
    "hip", *(f"{side}_{part}" for side in ("right", "left") for part in ("hip", "knee", "ankle")),
    *(f"{side}_{part}" for part in ("eye", "ear") for side in ("right", "left")),
    *(f"{side}_{part}" for side in ("left", "right") for part in _TOES),
)  # fmt: skip
BODY_25 = _person(
    _BODY_25,
    [_HALPE26_SIGMAS[_HALPE26.index(name)] for name in _BODY_25],
    [pair for pair in [("nose", "neck"), *_HALPE26_PAIRS] if "head" not in pair],
)

SETS = {
    "coco": KeypointSet(COCO, "person"),
    "crowdpose": KeypointSet(CROWDPOSE, "person"),
    "wholebody": KeypointSet(WHOLEBODY, "person"),
    "halpe": KeypointSet(HALPE, "person"),
    "halpe26": KeypointSet(HALPE26, "person"),
    "ochuman": KeypointSet(COCO, "person"),
    "posetrack18": KeypointSet(POSETRACK18, "person"),
    "mpii": KeypointSet(MPII, "person"),
    "humanart": KeypointSet(COCO, "person"),
    "humanart21": KeypointSet(HUMANART21, "person"),
    "body_25": KeypointSet(BODY_25, "person"),
    "ap10k": KeypointSet(AP10K, "animal"),
}
"""The sets by the name that a dataset's `keypoints` may have."""

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_SIDE = {"l": "left", "r": "right"}


def plain_name(name: str) -> str:
    """Return a joint's name in one spelling: `LEye`, `left eye`, `Eye_Left` and `left-eye` are `left_eye`."""
    words = [word.lower() for word in _WORD.findall(name)]
    words = [_SIDE.get(word, word) for word in words]
    return "_".join(sorted(words, key=lambda word: word not in ("left", "right")))


def set_of(keypoints: Sequence[str]) -> KeypointSet | None:
    """Return the published set with these joints in any order and spelling, its skeleton as in `keypoints`, or None."""
    plain = sorted(map(plain_name, keypoints))
    for one in SETS.values():
        if sorted(map(plain_name, one.skeleton.keypoints)) == plain:
            return replace(one, skeleton=reordered(one.skeleton, keypoints))
    return None


def reordered(skeleton: Skeleton, keypoints: Sequence[str]) -> Skeleton:
    """Return the same skeleton with the names and the order `keypoints`, which has each joint once (`plain_name`)."""
    plain = [plain_name(name) for name in skeleton.keypoints]
    old = [plain.index(plain_name(name)) for name in keypoints]
    new = {place: at for at, place in enumerate(old)}

    def moved(pairs: Connections) -> Connections:
        return tuple((new[a], new[b]) for a, b in pairs)

    return Skeleton(
        keypoints=tuple(keypoints),
        sigmas=skeleton.sigmas[old],
        flip=tuple(new[skeleton.flip[place]] for place in old),
        connections=moved(skeleton.connections),
        dense_connections=moved(skeleton.dense_connections),
        kinematic_tree=moved(skeleton.kinematic_tree),
        score_weights=skeleton.score_weights[old],
        standing_pose=skeleton.standing_pose[old],
    )
