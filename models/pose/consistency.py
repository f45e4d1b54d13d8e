"""Agreement of the pose detected in a picture with the target pose: a score, and sheets of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from figura.base.errors import UserError, nearest
from figura.base.pictures import write_png
from figura.base.sampling import evenly_spaced
from figura.dump import Dump
from figura.report.interfaces import Bootstrap, Estimate, NotApplicableError, Picture, Score, groups_of
from figura.report.sheets import pixels_of, side_by_side

from .argument_types import Count, Distances, skeleton_of
from .coco_evaluation import Evaluation, Record
from .coco_scores import joint_distances
from .decode.overlays import OverlayStyle, overlay
from .dump_evaluation import PEOPLE, estimates, record_fault

Floats = NDArray[np.float64]

LABELLED = 2.0  # the visibility of a detected joint, if the detection in the real picture is the target
LEAST_CONFIDENCE = 0.3  # of a joint in a reference
STYLE = OverlayStyle(colours="instance", least_side=192, scores=False)


@dataclass(eq=False)
class PoseConsistency(Score):
    """Agreement of the poses detected in one kind of pictures, of one person each, with the target poses.

    In each picture, the person with the highest score is used, if it is at least `least_score`. `oks` is the mean
    object keypoint similarity (COCO's, 0 to 1) over pictures, 0 without such a person; `found` the fraction of pictures
    with one. `PCK_10` is the fraction of target joints with a detection within 10 percent of the height of the person's
    box (percentage of correct keypoints, Yang and Ramanan 2013, normalised by the height), then for each joint. `AP` is
    COCO's, of all detected people, with OKS thresholds .5 to .95; false detections lower it. Intervals are over groups
    of pictures with equal numbers `groups`, such as pictures of one person; that of AP over pictures.

    Args:
        mode: of the dump.
        kind: of the pictures, as in `pose.DumpedPeople`.
        results: records of the detected people.
        truth: records of the target poses, among the inputs; without it, `reference` is needed.
        reference: a kind of pictures of the same examples whose detections are the targets.
        least_score: minimum score of a person, also in a reference. The network of `recipes/pose.yaml` gave 0.3 to
            nobody in 200 pictures of uniform noise, to somebody in 1, 7 and 4 of 200 of normal noise (blurred by 0, 2
            and 4 pixels), and in 313 of 321 photos of people.
        within: distances of the PCK, as fractions of the height.
        groups: column of the dump; by default, each picture is a group.
        skeleton: as in `pose.Scenes`; COCO's unless given.

    Raises ValueError unless exactly one of `truth` and `reference` is given.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton",)

    mode: str
    kind: str
    results: str
    truth: str | None = None
    reference: str | None = None
    least_score: float = 0.3
    within: Distances = (0.05, 0.1)
    groups: str | None = None
    skeleton: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.truth is None) == (self.reference is None):
            raise ValueError(
                f"truth {self.truth}, reference {self.reference}: one of them says which poses were asked for"
            )
        self.body = skeleton_of(self.skeleton)

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        examples = images_of(rows, self.kind)
        asked = self._asked(dump, rows, examples)
        ids = [number for number in examples.values() if number in asked]
        if not ids:
            raise NotApplicableError("no picture has a pose that was asked for")
        sigmas = np.asarray(self.body.sigmas, dtype=np.float64)
        people = [{**one, "category_id": PEOPLE} for one in rows.records(self.results)]
        evaluation = Evaluation([asked[number] for number in ids], people, ids, sigmas)
        best = best_people(people, self.least_score)
        oks = np.array([similarity(best.get(number), asked[number], sigmas) for number in ids])
        labelled, both, away = joint_distances([asked[number] for number in ids], [best.get(number) for number in ids])
        some = np.array([number in best for number in ids], dtype=np.float64)
        owners = self._owners(rows, ids)
        metrics: dict[str, Any] = {"AP": estimates(evaluation, bootstrap)["AP"]}
        metrics["oks"] = bootstrap.estimate(oks, groups=owners)
        near = {f"PCK_{100 * share:g}": both & (away <= share) for share in self.within}
        for name, hits in near.items():
            above, below = (np.bincount(owners, one.sum(axis=1)).astype(np.float64) for one in (hits, labelled))
            metrics[name] = bootstrap.share(above, below)
        found, pictures = (np.bincount(owners, one).astype(np.float64) for one in (some, np.ones(len(ids))))
        metrics |= {"found": bootstrap.share(found, pictures), "pictures": len(ids)}
        for joint, keypoint in enumerate(self.body.keypoints):
            if total := labelled[:, joint].sum():
                metrics[keypoint] = {name: float(hits[:, joint].sum() / total) for name, hits in near.items()}
        return metrics

    def _owners(self, rows: Dump, ids: Sequence[int]) -> NDArray[np.intp]:
        """Return the group index of each picture, given their image ids."""
        numbers = rows.numbers("image_id").astype(int).tolist()
        owner = dict(zip(numbers, groups_of(rows, self.mode, self.groups).tolist(), strict=True))
        return np.unique([owner[number] for number in ids], return_inverse=True)[1]

    def _asked(self, dump: Dump, rows: Dump, examples: Mapping[int, int]) -> dict[int, Record]:
        """Return the target pose of each picture, an annotation in COCO's format, by image id."""
        if self.truth is not None:
            known = set(examples.values())
            asked = {n: one for n, one in asked_poses(dump, self.truth).items() if n in known}
        else:
            read = best_people(rows.records(self.results), self.least_score)
            numbers = images_of(rows, str(self.reference))
            asked = {}
            for example, image in examples.items():
                person = read.get(numbers.get(example, -1))
                if person is not None:
                    asked[image] = as_asked(person) | {"image_id": image}
        return {number: pose for number, pose in asked.items() if pose["num_keypoints"]}


@dataclass(eq=False)
class PoseSheet(Picture):
    """One row per example: the target pose, in grey, and the detected person over each picture.

    Only the person with the highest score is drawn. Row labels have the OKS of each picture.

    Args:
        mode: of the dump.
        kinds: of pictures, as in `pose.DumpedPeople`; one column each. Kinds missing in the dump are skipped.
        picture: name of the pictures among the inputs.
        results: records of the detected people.
        truth: records of the target poses, among the inputs; without it, none is drawn and there are no OKS.
        count: rows, evenly spaced.
        skeleton: as in `pose.Scenes`; COCO's unless given.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton",)
    suffix = ".jpg"

    mode: str
    kinds: Annotated[list[str], Field(min_length=1)]
    picture: str
    results: str
    truth: str | None = None
    count: Count = 8
    skeleton: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.body = skeleton_of(self.skeleton)

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        there = set(rows.column("kind").astype(str))
        kinds = [kind for kind in self.kinds if kind in there]
        images = {kind: images_of(rows, kind) for kind in kinds}
        places = {number: place for place, number in enumerate(rows.table["image_id"].astype(int).tolist())}
        asked = asked_poses(dump, self.truth) if self.truth else {}
        read, sigmas = best_people(rows.records(self.results)), np.asarray(self.body.sigmas, dtype=np.float64)
        examples = [one for one in images[kinds[0]] if all(one in n for n in images.values())] if kinds else []
        if not examples:
            raise NotApplicableError("no example has a picture of each kind")
        cells, labels = [], []
        for example in (examples[place] for place in evenly_spaced(len(examples), self.count)):
            numbers = [images[kind][example] for kind in kinds]
            poses, people = [asked.get(number) for number in numbers], [read.get(number) for number in numbers]
            cells.append([
                overlay(
                    pixels_of(rows, places[number], self.picture), _one(person), (), self.body, STYLE, _one(pose)
                )
                for number, person, pose in zip(numbers, people, poses, strict=True)
            ])  # fmt: skip
            similar = (
                f"{kind} {similarity(person, pose, sigmas):.2f}"
                for kind, person, pose in zip(kinds, people, poses, strict=True)
                if pose is not None
            )
            labels.append("  ".join([f"example {example}  OKS", *similar] if self.truth else [f"example {example}"]))
        write_png(path, side_by_side(cells, kinds, labels=labels))


def asked_poses(dump: Dump, truth: str) -> dict[int, Record]:
    """Return the target poses by image id: people with joints among the records `truth`, except crowds.

    Raises:
        UserError: a record is not in COCO's format, or a picture has two.
    """
    poses: dict[int, Record] = {}
    for index, one in enumerate(dump.records(truth)):
        if not one.get("keypoints") or one.get("iscrowd"):
            continue
        where = f"{dump.folder}: {truth!r}: record {index} (counted from 0)"
        if fault := record_fault(one, (), ("bbox", "keypoints")):
            raise UserError(f"{where}: {fault}")
        if one["image_id"] in poses:
            raise UserError(f"{where}: image {one['image_id']} has another pose already; a picture shows one person")
        _, _, width, height = one["bbox"]
        labelled = sum(flag > 0 for flag in one["keypoints"][2::3])
        poses[one["image_id"]] = {"area": width * height, **one, "num_keypoints": labelled, "category_id": PEOPLE}
    return poses


def images_of(rows: Dump, kind: str) -> dict[int, int]:
    """Return the image id of each example among one kind of pictures.

    Raises:
        NotApplicableError: there is no such kind; it may have been skipped.
    """
    kinds = rows.column("kind").astype(str)
    table = rows.table[kinds == kind]
    if table.empty:
        known = sorted(set(kinds))
        raise NotApplicableError(
            f"no pictures of the kind {kind!r}{nearest(kind, known)}; there are {', '.join(known)}"
        )
    return dict(zip(table["example"].astype(int).tolist(), table["image_id"].astype(int).tolist(), strict=True))


def best_people(records: Sequence[Record], least: float = 0.0) -> dict[int, Record]:
    """Return the person of the highest score, at least `least`, in each image, the first among equals, by image id."""
    best: dict[int, Record] = {}
    for one in records:
        if one["score"] < least:
            continue
        if one["image_id"] not in best or one["score"] > best[one["image_id"]]["score"]:
            best[one["image_id"]] = one
    return best


def similarity(person: Record | None, asked: Record, sigmas: Floats) -> float:
    """Return the OKS of a person with the labelled joints that were asked for (Lin et al. 2014); 0 without a person."""
    if person is None:
        return 0.0
    joints = _joints(asked)
    labelled = joints[:, 2] > 0
    squares = ((_joints(person) - joints)[labelled, :2] ** 2).sum(axis=1)
    exponents = squares / (sigmas[labelled] * 2) ** 2 / (asked["area"] + np.spacing(1)) / 2
    return float(np.exp(-exponents).mean())


def as_asked(person: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a detected person to an annotation, with the joints of confidence `LEAST_CONFIDENCE` or more."""
    joints = _joints(person)
    joints[:, 2] = np.where(joints[:, 2] >= LEAST_CONFIDENCE, LABELLED, 0.0)
    _, _, width, height = person["bbox"]
    return {
        "image_id": person["image_id"],
        "category_id": PEOPLE,
        "keypoints": joints.ravel().tolist(),
        "num_keypoints": int((joints[:, 2] > 0).sum()),
        "bbox": list(person["bbox"]),
        "area": width * height / 2,  # a person fills about half of its box
        "iscrowd": 0,
    }


def _joints(record: Mapping[str, Any]) -> Floats:
    return np.array(record["keypoints"], dtype=np.float64).reshape(-1, 3)


def _one(record: Record | None) -> list[Record]:
    return [] if record is None else [record]
