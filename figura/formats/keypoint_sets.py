"""Published sets of joints by name: COCO, CrowdPose, COCO-WholeBody, Halpe, PoseTrack, MPII, Human-Art, AP-10K.

The order of the joints is that of the published annotation files. Sources of names, sigmas and connections:
    coco: figura.formats.skeletons.
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
from itertools import pairwise

import numpy as np

from figura.formats.skeletons import COCO, Connections, Skeleton

_SIDES = ("left", "right")


def _chains(*texts: str) -> list[tuple[str, str]]:
    """Return the pairs of neighbours in each text of names; `*` stands for left, then for right."""
    return [
        pair
        for text in texts
        for side in (_SIDES if "*" in text else ("",))
        for pair in pairwise(text.replace("*", side).split())
    ]


def _limbs(*texts: str) -> list[tuple[str, str]]:
    """Like `_chains`, but all texts of the left before those of the right."""
    return [pair for side in _SIDES for text in texts for pair in _chains(text.replace("*", side))]


def _joints(*texts: str) -> tuple[str, ...]:
    """Return the names in the texts; `*` stands for left and right in turn."""
    names = [name for text in texts for name in text.split()]
    return tuple(name.replace("*", side) for name in names for side in (_SIDES if "*" in name else ("",)))


def _skeleton(
    keypoints: Sequence[str],
    sigmas: Sequence[float],
    connections: Sequence[tuple[str, str]],
    tree: Sequence[tuple[str, str]] = (),
    pose: Sequence[tuple[float, float]] | None = None,
) -> Skeleton:
    """Return a skeleton; without `pose`, the joints stand where `_PLACES` has them."""
    at = {name: index for index, name in enumerate(keypoints)}
    mirrored = {name: name.replace("left", "right") for name in keypoints if "left" in name}
    mirrored |= _FACE_SIDES if _FACE[0] in at else {}
    mirrored |= {other: name for name, other in mirrored.items()}
    return Skeleton(
        keypoints=tuple(keypoints),
        sigmas=np.array(sigmas),
        flip=tuple(at[mirrored.get(name, name)] for name in keypoints),
        connections=tuple((at[a], at[b]) for a, b in connections),
        dense_connections=(),
        kinematic_tree=tuple((at[a], at[b]) for a, b in tree),
        score_weights=np.ones(len(keypoints)),
        standing_pose=np.array([_PLACES[name] for name in keypoints] if pose is None else pose),
    )


# --- names of feet, face and hands, and where joints stand ---

_TOES = ("big_toe", "small_toe", "heel")
_FINGERS = ("thumb", "forefinger", "middle_finger", "ring_finger", "pinky_finger")
_FEET = tuple(f"{side}_{part}" for side in _SIDES for part in _TOES)
_FACE = tuple(f"face-{number}" for number in range(68))
_HANDS = tuple(
    f"{side}_{part}"
    for side in _SIDES
    for part in ("hand_root", *(f"{finger}{joint}" for finger in _FINGERS for joint in range(1, 5)))
)
_WHOLEBODY = (*COCO.keypoints, *_FEET, *_FACE, *_HANDS)

# Numbers of the face's joints, 0 to 67: chains, closed rings, single links, and the ranges reversed by mirroring.
_FACE_CHAINS = (
    *map(range, (0, 17, 22, 27, 31), (17, 22, 27, 31, 36)),
    *([*range(first, end), first] for first, end in ((36, 42), (42, 48), (48, 60), (60, 68))),
    (0, 17), (16, 26), (21, 27), (22, 27), (27, 39), (27, 42), (30, 33), (33, 51), (48, 60), (54, 64),
)  # fmt: skip
_TURNED = ((0, 16), (17, 26), (31, 35), (48, 54), (55, 59), (60, 64), (65, 67))
_EYES = {36: 45, 37: 44, 38: 43, 39: 42, 40: 47, 41: 46}
_FACE_SIDES = {_FACE[one]: _FACE[other] for one, other in _EYES.items()} | {
    _FACE[first + step]: _FACE[last - step] for first, last in _TURNED for step in range((last - first + 1) // 2)
}
_FACE_AND_HAND_PAIRS = [
    *_chains("nose face-30", "right_ear face-0", "left_ear face-16"),
    *((_FACE[a], _FACE[b]) for chain in _FACE_CHAINS for a, b in pairwise(chain)),
    *_limbs("*_wrist *_hand_root", *(f"*_hand_root *_{f}1 *_{f}2 *_{f}3 *_{f}4" for f in _FINGERS)),
]


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
    x, y = wrist
    points = [(x, y - 0.1), *((x + inwards * (0.12 + 0.06 * joint), y - 0.3 - 0.16 * joint) for joint in range(4))]
    for across, drop in ((0.16, 0.0), (0.05, -0.03), (-0.06, 0.0), (-0.17, 0.08)):
        points += [(x + inwards * across * (1 + 0.1 * joint), y - 0.75 + drop - 0.2 * joint) for joint in range(4)]
    return points


def _standing_places() -> dict[str, tuple[float, float]]:
    """Place the joints of COCO, feet, face and hands by name, and those in the middle of the body."""
    places = {name: (float(x), float(y)) for name, (x, y) in zip(COCO.keypoints, COCO.standing_pose, strict=True)}
    for side, outwards in zip(_SIDES, (-1, 1), strict=True):
        x, y = places[f"{side}_ankle"]
        for part, across, down in zip(_TOES, (-0.15, 0.3, 0.0), (0.5, 0.45, 0.2), strict=True):
            places[f"{side}_{part}"] = (x + outwards * across, y - down)
    hands = [*_hand_pose(places["left_wrist"], 1.0), *_hand_pose(places["right_wrist"], -1.0)]
    places |= dict(zip((*_FACE, *_HANDS), (*_face_pose(), *hands), strict=True))
    for side in _SIDES:
        places |= {f"{side}_finger": places[f"{side}_middle_finger4"], f"{side}_toe": places[f"{side}_big_toe"]}
    heights = {"head head_top": 10.3, "neck upper_neck head_bottom": 8.6, "thorax": 8.0, "hip pelvis": 4.0}
    return places | {name: (0.0, height) for names, height in heights.items() for name in names.split()}


_PLACES = _standing_places()

# --- the sets ---

CROWDPOSE = _skeleton(
    _joints("*_shoulder *_elbow *_wrist *_hip *_knee *_ankle head neck"),
    (*COCO.sigmas[5:], 0.079, 0.079),
    _chains(
        "head neck", "neck *_shoulder", "left_shoulder right_shoulder", "left_hip right_hip",
        "*_shoulder *_elbow *_wrist", "*_shoulder *_hip", "*_hip *_knee *_ankle",
    ),
    [*_chains("neck head", "neck *_shoulder *_elbow *_wrist"), *_limbs("*_shoulder *_hip *_knee *_ankle")],
)  # fmt: skip

_AP10K_LEGS = _chains(
    "neck root_of_tail", "neck *_shoulder *_elbow *_front_paw", "root_of_tail *_hip *_knee *_back_paw"
)
AP10K = _skeleton(
    _joints(
        "*_eye nose neck root_of_tail left_shoulder left_elbow left_front_paw right_shoulder right_elbow",
        "right_front_paw left_hip left_knee left_back_paw right_hip right_knee right_back_paw",
    ),
    (
        0.025, 0.025, 0.026, 0.035, 0.035, 0.079, 0.072, 0.062, 0.079, 0.072, 0.062, 0.107, 0.087, 0.089, 0.107, 0.087,
        0.089,
    ),
    [*_chains("left_eye right_eye", "*_eye nose", "nose neck"), *_AP10K_LEGS],
    [*_chains("neck nose", "nose *_eye"), *_AP10K_LEGS],
    [  # seen from its left, slightly from the front
        (-5.2, 7.4), (-4.8, 7.5), (-5.8, 6.6), (-3.2, 6.6), (4.2, 6.2), (-2.6, 4.6), (-2.9, 2.6), (-2.9, 0.0),
        (-2.0, 4.7), (-2.2, 2.8), (-2.2, 0.4), (3.2, 4.6), (3.7, 2.6), (3.5, 0.0), (3.8, 4.7), (4.4, 2.8), (4.2, 0.4),
    ],
)  # fmt: skip

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

_COCO_PAIRS = [(COCO.keypoints[a], COCO.keypoints[b]) for a, b in COCO.connections]
_FEET_PAIRS = [(f"{side}_ankle", f"{side}_{part}") for side in _SIDES for part in _TOES]
_LIMBS = _limbs("*_shoulder *_elbow *_wrist", "*_hip *_knee *_ankle")

WHOLEBODY = _skeleton(
    _WHOLEBODY,
    [*COCO.sigmas, 0.068, 0.066, 0.066, 0.092, 0.094, 0.094, *_FACE_SIGMAS, *_HAND_SIGMAS, *_HAND_SIGMAS],
    [*_COCO_PAIRS, *_FEET_PAIRS, *_FACE_AND_HAND_PAIRS],
)

_HALPE26 = (*COCO.keypoints, *_joints("head neck hip", *(f"*_{part}" for part in _TOES)))
_HALPE26_SIGMAS = (*COCO.sigmas, *[0.08] * 3, *[0.089] * 6)
_HALPE26_PAIRS = [
    *_COCO_PAIRS[-7:], *_chains("head neck hip", "neck *_shoulder", "hip *_hip"), *_LIMBS, *_FEET_PAIRS,
]  # fmt: skip

HALPE26 = _skeleton(_HALPE26, _HALPE26_SIGMAS, _HALPE26_PAIRS)
HALPE = _skeleton(
    (*_HALPE26, *_FACE, *_HANDS), (*_HALPE26_SIGMAS, *[0.015] * 110), [*_HALPE26_PAIRS, *_FACE_AND_HAND_PAIRS]
)

POSETRACK18 = _skeleton(
    ("nose", "head_bottom", "head_top", *COCO.keypoints[3:]),
    (0.026, 0.025, 0.025, *COCO.sigmas[3:]),
    [
        *_chains("nose head_bottom", "nose head_top", "head_bottom *_shoulder"), *_LIMBS,
        *_chains("left_shoulder right_shoulder", "*_shoulder *_hip", "left_hip right_hip", "nose *_ear"),
    ],
)  # fmt: skip

MPII = _skeleton(
    _joints(
        "right_ankle right_knee right_hip left_hip left_knee left_ankle pelvis thorax upper_neck head_top right_wrist",
        "right_elbow right_shoulder left_shoulder left_elbow left_wrist",
    ),
    (
        0.089, 0.083, 0.107, 0.107, 0.083, 0.089, 0.026, 0.026, 0.026, 0.026, 0.062, 0.072, 0.179, 0.179, 0.072, 0.062,
    ),
    [*_chains("pelvis *_hip", "pelvis thorax upper_neck head_top", "upper_neck *_shoulder"), *_LIMBS],
)  # fmt: skip

HUMANART21 = _skeleton(
    (*COCO.keypoints, *_joints("*_finger *_toe")),
    (*COCO.sigmas, *[0.089] * 4),
    [*_COCO_PAIRS, *_limbs("*_ankle *_toe", "*_wrist *_finger")],
)

_BODY_25 = _joints(
    "nose neck right_shoulder right_elbow right_wrist left_shoulder left_elbow left_wrist hip right_hip right_knee",
    "right_ankle left_hip left_knee left_ankle right_eye left_eye right_ear left_ear",
    *_FEET,
)
BODY_25 = _skeleton(
    _BODY_25,
    [_HALPE26_SIGMAS[_HALPE26.index(name)] for name in _BODY_25],
    [pair for pair in [("nose", "neck"), *_HALPE26_PAIRS] if "head" not in pair],
)

SETS = {
    "coco": COCO,
    "crowdpose": CROWDPOSE,
    "wholebody": WHOLEBODY,
    "halpe": HALPE,
    "halpe26": HALPE26,
    "ochuman": COCO,
    "posetrack18": POSETRACK18,
    "mpii": MPII,
    "humanart": COCO,
    "humanart21": HUMANART21,
    "body_25": BODY_25,
    "ap10k": AP10K,
}
"""The sets by the name that a dataset's `keypoints` may have."""

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def plain_name(name: str) -> str:
    """Return a joint's name in one spelling: `LEye`, `left eye`, `Eye_Left` and `left-eye` are `left_eye`."""
    words = [word.lower() for word in _WORD.findall(name)]
    words = [{"l": "left", "r": "right"}.get(word, word) for word in words]
    return "_".join(sorted(words, key=lambda word: word not in _SIDES))


def same_joints(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether names are those of the same joints, in any order and spelling."""
    return sorted(map(plain_name, one)) == sorted(map(plain_name, other))


def set_of(keypoints: Sequence[str]) -> Skeleton | None:
    """Return the published set with these joints in any order and spelling, as in `keypoints`, or None."""
    same = (one for one in SETS.values() if same_joints(one.keypoints, keypoints))
    return next((reordered(one, keypoints) for one in same), None)


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
