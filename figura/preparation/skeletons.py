"""The skeleton of a dataset from its settings, its category, a published set or rules.

The rules, for values missing in data/params.yaml and in the category, without a published set of the same names:
    flip: names that differ in one word for the side (`figura.formats.skeletons.mirrored_names`).
    sigmas: 0.05 for each joint, the middle of COCO's on a logarithmic scale, sqrt(0.025 * 0.107) = 0.052.
    connections: the minimum spanning tree of the joints' mean distances in the annotations.
    standing_pose: each joint's median position in the annotations.
    score_weights: 1.
The annotations are those of the first file, which is that of the split train.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.formats.keypoint_sets import set_of
from figura.formats.records import whole_number
from figura.formats.skeletons import Skeleton, mirrored_names, side_of, skeleton_from
from figura.preparation.categories import People
from figura.preparation.settings import KeypointSettings

SIGMA = 0.05
HEIGHT = 10.0  # the longer side of a measured standing pose; COCO's is 9.7 high

_SETTING_OF = {
    "flip_pairs": "flip",
    "flip": "flip",
    "sigmas": "sigmas",
    "standing_pose": "standing_pose",
    "skeleton": "connections",
}
"""Key of a category -> the setting that overrides it."""

Floats = NDArray[np.float64]


class Poses:
    """A sample of the annotated instances, at most 1024, spread evenly over the file."""

    limit = 1024

    def __init__(self, joints: int) -> None:
        self.rows: list[Floats] = []
        self.joints, self.count, self.step = joints, 0, 1

    def add(self, box: Sequence[float], keypoints: Sequence[float]) -> None:
        """Add an instance: its box (x, y, width, height), and x, y, visibility of its joints."""
        if self.count % self.step == 0:
            x, y, width, height = box
            points = np.array(keypoints, dtype=np.float64).reshape(self.joints, 3)
            upright = (points[:, :2] - (x + width / 2, y + height / 2)) * (1, -1) / np.sqrt(width * height)
            self.rows.append(np.where(points[:, 2:] > 0, upright, np.nan))
        self.count += 1
        if len(self.rows) > self.limit:
            self.rows, self.step = self.rows[::2], 2 * self.step

    def places(self) -> Floats:
        """Return x and y (upwards) of the joints from the centre of the box, float64 (instances, K, 2).

        The unit is the square root of the box's area; NaN for joints that are not labelled.
        """
        return np.array(self.rows).reshape(-1, self.joints, 2)


def spanning_tree(places: Floats) -> list[tuple[int, int]] | None:
    """Return the minimum spanning tree of the joints' mean distances, K - 1 pairs from joint 0 outwards (Prim, 1957).

    `places` is (instances, K, 2), NaN for joints that are not labelled. Joints that never occur together are farther
    apart than all others. None if no two joints occur together.
    """
    joints = places.shape[1]
    distances = np.full((joints, joints), np.inf)
    for one in range(joints):
        apart = np.hypot(*np.moveaxis(places - places[:, one : one + 1], -1, 0))
        counts = np.isfinite(apart).sum(axis=0)
        np.divide(np.nansum(apart, axis=0), counts, out=distances[one], where=counts > 0)
    np.fill_diagonal(distances, np.inf)
    if not np.isfinite(distances).any():
        return None
    distances[np.isinf(distances)] = 2 * distances[np.isfinite(distances)].max()
    tree: list[tuple[int, int]] = []
    inside = [0]
    while len(inside) < joints:
        outside = [joint for joint in range(joints) if joint not in inside]
        row, column = divmod(int(np.argmin(distances[np.ix_(inside, outside)])), len(outside))
        tree.append((inside[row], outside[column]))
        inside.append(outside[column])
    return tree


def measured_pose(places: Floats, flip: Sequence[int], connections: Sequence[tuple[int, int]]) -> Floats | None:
    """Return the median pose, float64 (K, 2), y upwards, its longer side `HEIGHT`; None if it has no area.

    Each instance is mirrored (x, and joints by `flip`) if this brings it closer to the one with the most joints, so
    that animals facing left and right do not cancel out. A joint that is never labelled is at the mean of its connected
    joints, or of all.
    """
    seen = np.isfinite(places[:, :, 0])
    if not seen.any():
        return None
    reference = places[int(np.argmax(seen.sum(axis=1)))]
    mirrored = places[:, list(flip)] * (-1, 1)
    both = np.stack([places, mirrored])
    misses = np.nansum((both - reference) ** 2, axis=(2, 3)) / np.maximum(
        np.isfinite(both - reference).sum(axis=(2, 3)), 1
    )
    aligned = both[np.argmin(misses, axis=0), np.arange(len(places))]
    pose = np.full(places.shape[1:], np.nan)
    labelled = np.isfinite(aligned[:, :, 0]).any(axis=0)
    pose[labelled] = np.nanmedian(aligned[:, labelled], axis=0)
    for joint in np.flatnonzero(~labelled).tolist():
        near = [b if a == joint else a for a, b in connections if joint in (a, b)]
        known = pose[near][np.isfinite(pose[near, 0])]
        pose[joint] = (known if len(known) else pose[np.isfinite(pose[:, 0])]).mean(axis=0)
    extent = np.ptp(pose, axis=0)
    if extent.min() < 1e-3 * extent.max() or extent.max() == 0:
        return None
    return np.round((pose - pose.min(axis=0)) * (HEIGHT / extent.max()), 3)


@dataclass(frozen=True)
class Source:
    """A dataset's category of people in the annotation file `path`, and its poses; `key` is that of the settings."""

    path: Path
    people: People
    poses: Poses
    key: str

    @property
    def where(self) -> str:
        """The category, for errors."""
        return f"{self.path}: categories: {self.people.name}"


def build_skeleton(source: Source, settings: KeypointSettings) -> tuple[Skeleton, list[str]]:
    """Return the skeleton, and a line per applied rule.

    The category's `skeleton` and `flip_pairs` (pairs of names, or of numbers from 1), `flip` (by name), `sigmas` and
    `standing_pose` are used if missing in the settings.

    Raises:
        UserError: the message has the file or key, the value and what is allowed.
    """
    keypoints, notes = list(source.people.keypoints), list[str]()
    published = set_of(keypoints)
    stated = settings.model_dump(exclude_none=True, exclude={"set", "keypoints"})
    if isinstance(stated.get("sigmas"), float):
        stated["sigmas"] = [stated["sigmas"]] * len(keypoints)
    told = _told(source, stated, published, notes) if settings.set is None else {}
    values = {"keypoints": keypoints} | ({} if published is None else published.settings()) | told | stated
    for name, rule in {"sigmas": _sigmas, "flip": _flip, "connections": _connections}.items():
        if name not in values:
            values[name], note = rule(source)
            notes.append(note)
    measured = "standing_pose" not in values
    try:
        skeleton = skeleton_from({"standing_pose": _circle(len(keypoints))} | values)
    except ValueError as error:
        name = re.split(r"\W", str(error))[0]
        if name in told:
            raise UserError(f"{source.where}: {error}; correct it, or write it to {source.key}") from error
        dotted = "." if str(error).startswith(f"{name}: ") and name in KeypointSettings.model_fields else ": "
        raise UserError(f"{source.key}{dotted}{error}") from error
    if measured:
        skeleton, note = _standing(skeleton, source)
        notes.append(note)
    return skeleton, notes + _of_parts(skeleton, source.key) + _of_sides(skeleton, source.key)


def _of_parts(skeleton: Skeleton, key: str) -> list[str]:
    """Return warnings about joints without a connection, and about connections that do not join all the others."""
    parts = [{joint} for joint in range(len(skeleton.keypoints))]
    for pair in skeleton.connections:
        touched = [part for part in parts if part & set(pair)]
        parts = [part for part in parts if part not in touched] + [set().union(*touched)]
    lines = []
    if alone := sorted(joint for part in parts if len(part) == 1 for joint in part):
        names = ", ".join(skeleton.keypoints[joint] for joint in alone)
        lines.append(f"warning: {key}.connections: none reaches {names}, so no person is decoded with them")
    if len(several := [sorted(part) for part in parts if len(part) > 1]) > 1:
        named = "; ".join(", ".join(skeleton.keypoints[joint] for joint in part[:4]) for part in sorted(several))
        lines.append(
            f"warning: {key}.connections: they form {len(several)} parts, so each person is found in {len(several)} "
            f"pieces: {named}"
        )
    return lines


def _of_sides(skeleton: Skeleton, key: str) -> list[str]:
    """Return warnings about flips that join a left joint to one that is not right, and sides without a partner."""
    wrong = [
        f"{name} and {skeleton.keypoints[other]}"
        for index, (name, other) in enumerate(zip(skeleton.keypoints, skeleton.flip, strict=True))
        if index < other and {side_of(name), side_of(skeleton.keypoints[other])} not in ({"left", "right"}, {None})
    ]
    alone = [
        name
        for index, name in enumerate(skeleton.keypoints)
        if skeleton.flip[index] == index and (side_of(name) or name.lower().startswith(("left", "right")))
    ]
    lines = []
    if wrong:
        named = ", ".join(wrong)
        lines.append(f"warning: {key}.flip: mirroring exchanges joints that are not left and right by name: {named}")
    if alone and len(alone) < len(skeleton.keypoints):
        lines.append(
            f"warning: {key}.flip: {', '.join(alone)} have a side and no partner, so mirrored pictures would teach the "
            "wrong one; write all pairs there"
        )
    return lines


def _sigmas(source: Source) -> tuple[list[float], str]:
    note = (
        f"warning: {source.key}.sigmas: {source.people.name} has none, so each joint's is {SIGMA}; scores "
        "(OKS) depend on them: compare with other work for its sigmas alone"
    )
    return [SIGMA] * len(source.people.keypoints), note


def _flip(source: Source) -> tuple[dict[str, str], str]:
    flip = mirrored_names(source.people.keypoints)
    if not flip:
        one, other, *_ = source.people.keypoints
        return flip, (
            f"warning: {source.key}.flip: no name tells left from right, so mirrored pictures would teach wrong sides; "
            f"write the pairs, as in `flip: {{{one}: {other}}}`, or train without mirroring"
        )
    pairs = ", ".join(f"{one} and {other}" for one, other in flip.items())
    return flip, f"{source.key}.flip: by their names, mirroring exchanges {pairs}"


def _connections(source: Source) -> tuple[list[list[str]], str]:
    name = source.people.name
    tree = spanning_tree(source.poses.places())
    if tree is None:
        raise UserError(
            f"{source.path}: categories: {name} has no skeleton, and no annotation has two joints to measure one; "
            f"write the pairs of joints to {source.key}.connections"
        )
    pairs = [[source.people.keypoints[a], source.people.keypoints[b]] for a, b in tree]
    named = ", ".join("-".join(pair) for pair in pairs)
    return pairs, f"{source.key}.connections: {name} has no skeleton; joints near each other are connected: {named}"


def _standing(skeleton: Skeleton, source: Source) -> tuple[Skeleton, str]:
    """Return a skeleton whose joints lie on a circle with their places in the annotations instead, if there are any."""
    pose = measured_pose(source.poses.places(), skeleton.flip, skeleton.connections)
    if pose is None:
        return skeleton, f"warning: {source.key}.standing_pose: none can be measured, so the joints lie on a circle"
    note = f"{source.key}.standing_pose: the median of {len(source.poses.rows)} annotations"
    return replace(skeleton, standing_pose=pose), note


def _circle(joints: int) -> list[list[float]]:
    turns = np.arange(joints) * 2 * np.pi / joints
    places: list[list[float]] = (HEIGHT / 2 * np.stack([np.sin(turns), np.cos(turns)], axis=1)).round(3).tolist()
    return places


def _told(source: Source, stated: Mapping[str, Any], published: Skeleton | None, notes: list[str]) -> dict[str, Any]:
    """Return the category's values for its joints that the settings lack, as accepted by `skeleton_from`."""
    told: dict[str, Any] = {}
    members = list(source.people.members.values())
    category, first = source.people.entry, members[0]
    for key, setting in _SETTING_OF.items():
        if setting in stated:
            continue
        if category.get(key):
            told[key] = category[key]
        if any(one.get(key) != first.get(key) for one in members):
            names = ", ".join(str(one.get("name")) for one in members)
            notes.append(
                f"warning: {source.path}: categories: {names} differ in {key}; that of {first.get('name')} counts; "
                f"{source.key}.{setting} can tell another"
            )
    pairs = _named_pairs(source, told.pop("skeleton", None), told.pop("flip_pairs", None), published, notes)
    return pairs | told


def _named_pairs(
    source: Source, connections: Any, flips: Any, published: Skeleton | None, notes: list[str]
) -> dict[str, Any]:
    """Return the category's pairs by name as `connections` and `flip`."""
    keypoints, named = list(source.people.keypoints), dict[str, Any]()
    number = _first_number(connections, flips, keypoints, published)
    if number is None:
        notes.append(
            f"warning: {source.where}: skeleton and flip_pairs could count joints from 0 or from 1; read from 1"
        )
    elif number == 0:
        notes.append(f"{source.where}: skeleton and flip_pairs count joints from 0")
    if flips:
        try:
            named["flip"] = dict(_pairs("flip_pairs", flips, keypoints, number == 0))
        except ValueError as error:
            raise UserError(f"{source.where}: {error}; correct it, or write it to {source.key}") from error
    if connections:
        try:
            named["connections"] = _pairs("skeleton", connections, keypoints, number == 0)
        except ValueError as error:
            if published is None:
                raise UserError(f"{source.where}: {error}; correct it, or write {source.key}.connections") from error
            notes.append(f"warning: {source.where}: {error}; the connections of the published set count")
    return named


def _first_number(
    skeleton: Any, flip_pairs: Any, keypoints: Sequence[str], published: Skeleton | None
) -> Literal[0, 1] | None:
    """Return the number of the first joint in the category's pairs: COCO's files count from 1, many tools from 0.

    A 0 or the number of joints decides; else the base by which `flip_pairs` join sides by name, and `skeleton` the
    pairs of the published set, or without one, pairs whose mirror image it has, too. None if both fit.
    """
    connections, flips = _numbered(skeleton, keypoints), _numbered(flip_pairs, keypoints)
    pairs = connections + flips
    numbers = {one for pair in pairs for one in pair}
    if not numbers or len(keypoints) in numbers:
        return 1
    if 0 in numbers:
        return 0
    sides = mirrored_names(keypoints)
    other = sides | {right: left for left, right in sides.items()}
    stated = {frozenset(pair) for pair in published.settings()["connections"]} if published else None

    def named(pairs: Sequence[Sequence[int]], first: int) -> set[frozenset[str]]:
        inside = [pair for pair in pairs if all(0 <= one - first < len(keypoints) for one in pair)]
        return {frozenset(keypoints[one - first] for one in pair) for pair in inside}

    def fitting(first: int) -> int:
        joined = named(connections, first)
        mirrored = {frozenset(other.get(name, name) for name in pair) for pair in joined} if sides else set()
        exchanged = {frozenset(pair) for pair in sides.items()}
        return len(joined & (mirrored if stated is None else stated)) + len(named(flips, first) & exchanged)

    from_0, from_1 = fitting(0), fitting(1)
    if from_0 == from_1:
        return None
    return 0 if from_0 > from_1 else 1


def _numbered(pairs: Any, keypoints: Sequence[str]) -> list[list[int]]:
    """Return the pairs of numbers, without those of names."""
    numbers = [
        [number for joint in pair if joint not in keypoints and (number := whole_number(joint)) is not None]
        for pair in (pairs if isinstance(pairs, list) else ())
        if isinstance(pair, list)
    ]
    return [pair for pair in numbers if len(pair) == 2]


def _pairs(key: str, pairs: Any, keypoints: Sequence[str], from_0: bool) -> list[list[str]]:
    """Return pairs of names, each once, from pairs of names or of numbers, from 1 or `from_0`.

    Raises:
        ValueError: other values.
    """
    named: list[list[str]] = []
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
            raise ValueError(f"{key}: found {str(pair)[:80]}; expected pairs of two joints")
        names = []
        for joint in pair:
            name, number = joint.strip() if isinstance(joint, str) else joint, whole_number(joint)
            place = -1 if number is None else number - (not from_0)
            if name not in keypoints and not 0 <= place < len(keypoints):
                raise ValueError(
                    f"{key}: found {pair}; expected joints from 1 to {len(keypoints)}, as in COCO's files, or names"
                )
            names.append(name if name in keypoints else keypoints[place])
        if names not in named and names[::-1] not in named:
            named.append(names)
    return named
