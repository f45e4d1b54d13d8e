"""Skeletons: joints and their connections. COCO's person, and others from settings and annotation files."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from figura.base.error_collector import ErrorCollector
from figura.base.errors import nearest
from figura.base.validation import validated
from figura.formats.coco import FLIP, KEYPOINTS, SKELETON

Connections = tuple[tuple[int, int], ...]
ConnectionSet = Literal["standard", "dense", "kinematic_tree"]
Side = Literal["left", "right"]


@dataclass(frozen=True, eq=False)
class Skeleton:
    """K joints and their connections. Joint indices start at 0; connections are in the order of the association fields.

    Attributes:
        keypoints: the K names of the joints.
        sigmas: float64 (K,), each joint's standard deviation as a fraction of the person's scale (COCO's OKS).
        flip: the index that each joint gets when the image is mirrored.
        connections: pairs of joints.
        dense_connections: further pairs, for the dense association field; may be empty.
        kinematic_tree: pairs that reach each joint once, from the root outwards; may be empty.
        score_weights: float64 (K,), weights of the joints' confidences in descending order.
        standing_pose: float64 (K, 2), x and y (upwards) of an upright person, in any unit.

    Raises:
        ValueError: different lengths, joints that do not exist, or a flip that is not its own inverse.
    """

    keypoints: tuple[str, ...]
    sigmas: NDArray[np.float64]
    flip: tuple[int, ...]
    connections: Connections
    dense_connections: Connections
    kinematic_tree: Connections
    score_weights: NDArray[np.float64]
    standing_pose: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Check the values and make read-only copies of the arrays."""
        count = len(self.keypoints)
        if count < 2 or len(set(self.keypoints)) < count:
            raise ValueError(f"keypoints {list(self.keypoints)}: at least two names are needed, each once")
        for name, width in {"sigmas": (), "score_weights": (), "standing_pose": (2,)}.items():
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != (count, *width):
                raise ValueError(f"{name} of shape {array.shape}: {(count, *width)} is needed, a row a keypoint")
            if not np.isfinite(array).all() or (name != "standing_pose" and (array <= 0).any()):
                kind = "finite" if name == "standing_pose" else "positive"
                raise ValueError(f"{name} {array.tolist()}: {kind} numbers are needed")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if sorted(self.flip) != list(range(count)) or any(self.flip[j] != i for i, j in enumerate(self.flip)):
            raise ValueError(f"flip {list(self.flip)}: each of the {count} keypoints once is needed, pairs swapped")
        for name in ("connections", "dense_connections", "kinematic_tree"):
            pairs: Connections = getattr(self, name)
            if any(a == b or not 0 <= min(a, b) <= max(a, b) < count for a, b in pairs):
                raise ValueError(f"{name} {pairs}: pairs of two different joints from 0 to {count - 1} are needed")
            if len({frozenset(pair) for pair in pairs}) < len(pairs):
                raise ValueError(f"{name} {pairs}: each pair may stand once")

    def connection_set(self, name: ConnectionSet) -> Connections:
        """Return `connections` (by the name `standard`), `dense_connections` (`dense`) or `kinematic_tree`.

        Raises:
            ValueError: another name.
        """
        if name not in (allowed := get_args(ConnectionSet)):
            raise ValueError(
                f"connections {name!r}{nearest(str(name), allowed)}: one of {', '.join(allowed)} is needed"
            )
        return {"standard": self.connections, "dense": self.dense_connections}.get(name, self.kinematic_tree)

    def settings(self) -> dict[str, Any]:
        """Return all attributes as plain values with joints by name, the inverse of `skeleton_from`."""

        def named(pairs: Connections) -> list[list[str]]:
            return [[self.keypoints[a], self.keypoints[b]] for a, b in pairs]

        return {
            "keypoints": list(self.keypoints),
            "sigmas": self.sigmas.tolist(),
            "flip": {self.keypoints[a]: self.keypoints[b] for a, b in enumerate(self.flip) if a < b},
            "connections": named(self.connections),
            "dense_connections": named(self.dense_connections),
            "kinematic_tree": named(self.kinematic_tree),
            "score_weights": self.score_weights.tolist(),
            "standing_pose": self.standing_pose.tolist(),
        }


def _from_one(pairs: Sequence[tuple[int, int]]) -> Connections:
    return tuple((a - 1, b - 1) for a, b in pairs)


# Source: the sigmas of pycocotools/cocoeval.py; for the rest, openpifpaf/plugins/coco/constants.py. Pairs count from 1.
COCO = Skeleton(
    keypoints=KEYPOINTS,
    sigmas=np.array([
        0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089,
        0.089,
    ]),
    flip=FLIP,
    connections=_from_one(SKELETON),
    dense_connections=_from_one((
        (1, 4), (1, 5), (4, 5), (1, 6), (1, 7), (2, 6), (3, 7), (6, 13), (7, 12), (6, 10), (7, 11), (8, 9), (10, 11),
        (10, 12), (11, 13), (10, 14), (11, 15), (12, 15), (13, 14), (12, 16), (13, 17), (14, 17), (15, 16), (14, 15),
        (16, 17),
    )),
    kinematic_tree=_from_one((
        (1, 2), (2, 4), (1, 3), (3, 5), (1, 6), (6, 8), (8, 10), (1, 7), (7, 9), (9, 11), (6, 12), (12, 14), (14, 16),
        (7, 13), (13, 15), (15, 17),
    )),
    score_weights=np.array([3.0] * 3 + [1.0] * 14),
    standing_pose=np.array([
        (0.0, 9.3), (-0.35, 9.7), (0.35, 9.7), (-0.7, 9.5), (0.7, 9.5), (-1.4, 8.0), (1.4, 8.0), (-1.75, 6.0),
        (1.75, 6.2), (-1.75, 4.0), (1.75, 4.2), (-1.26, 4.0), (1.26, 4.0), (-1.4, 2.0), (1.4, 2.1), (-1.4, 0.0),
        (1.4, 0.1),
    ]),
)  # fmt: skip

Numbers = list[float]
Pairs = list[Annotated[list[str], Field(min_length=2, max_length=2)]]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keypoints: list[str]
    sigmas: Numbers
    connections: Pairs
    standing_pose: list[Annotated[Numbers, Field(min_length=2, max_length=2)]]
    flip: dict[str, str] | None = None
    dense_connections: Pairs = []
    kinematic_tree: Pairs = []
    score_weights: Numbers | None = None


def skeleton_from(settings: Mapping[str, Any]) -> Skeleton:
    """Build a skeleton from a recipe's plain values: the attributes of `Skeleton`, with joints by name.

    `keypoints`, `sigmas`, `connections` ([[left_hip, left_knee], ...]) and `standing_pose` are required. `flip` maps
    joints to their mirrored joints, in one direction; by default the pairs of `mirrored_names`. `score_weights` default
    to 1.

    Raises:
        ValueError: the message has the key, the value and what is allowed.
    """
    errors = ErrorCollector(Path("skeleton"))
    checked = validated(_Settings, dict(settings), errors)
    if checked is None or errors.lines:
        raise ValueError("; ".join(line.removeprefix(f"{errors.file}: ") for line in errors.lines))
    places = {name: index for index, name in enumerate(checked.keypoints)}

    def joints(key: str, names: Sequence[str]) -> list[int]:
        for name in names:
            if name not in places:
                allowed = ", ".join(places)
                raise ValueError(f"{key}: no keypoint {name!r}{nearest(name, places)}; there are {allowed}")
        return [places[name] for name in names]

    def pairs(key: str, named: Pairs) -> Connections:
        return tuple((a, b) for a, b in (joints(key, names) for names in named))

    flip = list(range(len(checked.keypoints)))
    for one, other in (mirrored_names(checked.keypoints) if checked.flip is None else checked.flip).items():
        a, b = joints("flip", (one, other))
        flip[a], flip[b] = b, a
    return Skeleton(
        keypoints=tuple(checked.keypoints),
        sigmas=np.array(checked.sigmas),
        flip=tuple(flip),
        connections=pairs("connections", checked.connections),
        dense_connections=pairs("dense_connections", checked.dense_connections),
        kinematic_tree=pairs("kinematic_tree", checked.kinematic_tree),
        score_weights=np.array(checked.score_weights or [1.0] * len(checked.keypoints)),
        standing_pose=np.array(checked.standing_pose),
    )


_OTHER_SIDE = {
    "left": "right", "l": "r", "lft": "rgt", "links": "rechts", "linke": "rechte", "linker": "rechter", "near": "off",
    "gauche": "droite", "izquierda": "derecha", "izquierdo": "derecho", "sinistra": "destra", "port": "starboard",
    "左": "右",
}  # fmt: skip
"""Words for the side: English, those of other languages, and of horses and ships."""
_SIDES: dict[str, Side] = {**dict.fromkeys(_OTHER_SIDE, "left"), **dict.fromkeys(_OTHER_SIDE.values(), "right")}
_BETWEEN_WORDS = re.compile(
    r"([_\-. ]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)|(?<=[左右])|(?=[左右]))"
)
_PREFIX = re.compile(r"^(near|off|left|right|l|r)(?=[a-z]{3})")


def mirrored_names(names: Sequence[str]) -> dict[str, str]:
    """Return the pairs of names that differ in one word for the side, left -> right, in any case.

    The words are `left`, `l`, and those of `_OTHER_SIDE`, anywhere in a name: `left_eye`, `Eye_left`, `LeftEye`,
    `l-eye`, `left1`. Only if no name has such a word, sides may be the first letters of a word: `lknee` beside `rknee`.
    A name that could belong to two others, such as `l_arm_l` beside `r_arm_l` and `l_arm_r`, has no partner.
    """
    return _paired(names, _words) or _paired(names, _words_after_prefix)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _BETWEEN_WORDS.split(name.strip())]


def _words_after_prefix(name: str) -> list[str]:
    found = _PREFIX.match(name.strip().lower())
    return [found[0], name.strip().lower()[found.end() :]] if found else [name.strip().lower()]


def _paired(names: Sequence[str], words_of: Callable[[str], list[str]]) -> dict[str, str]:
    known = {"".join(words_of(name)): name for name in names}
    partners = dict[str, str]()
    for name in names:
        words = words_of(name)
        others = {
            known[other]
            for index, word in enumerate(words)
            if word in _OTHER_SIDE
            and (other := "".join((*words[:index], _OTHER_SIDE[word], *words[index + 1 :]))) in known
        }
        if len(others) == 1:
            partners[name] = others.pop()
    taken = list(partners.values())
    return {name: other for name, other in partners.items() if taken.count(other) == 1 and other not in partners}


def side_of(name: str) -> Side | None:
    """Return the side in a name, by its first word for one (as in `mirrored_names`, case-insensitive), or None."""
    words = (part for word in _BETWEEN_WORDS.split(name) for part in re.split(r"[^a-z]+", word.lower()))
    return next((_SIDES[word] for word in words if word in _SIDES), None)
