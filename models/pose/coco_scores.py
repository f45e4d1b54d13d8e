"""Scores of decoded people and objects: COCO's metrics, and distances of joints.

For each mode, a dump has one row per image (`image_id`, `width`, `height` in pixels of the file), the results as
records in COCO's format, and the annotations of these images as records of the inputs. Metrics without annotations are
omitted, because averages and plots would treat COCO's -1 as a value; a score without any does not apply. Intervals are
over images.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from figura.dump import Dump
from figura.report.interfaces import Bootstrap, Estimate, NotApplicableError, Score

from .argument_types import Distances, Positive, skeleton_of
from .coco_evaluation import Evaluation, Ranges, Record
from .dump_evaluation import estimates, evaluate

NO_JOINTS = "no annotated person has a labelled keypoint"
NO_BOXES = "no annotation has a box"


def height_ranges(bounds: Sequence[float]) -> Ranges:
    """Return the ranges `height_low`, `height_middle` and `height_high`; they include their lower bound."""
    edges = (0.0, *bounds, np.inf)
    return {
        f"height_{name}": (low, float(np.nextafter(high, 0.0)))
        for name, (low, high) in zip(("low", "middle", "high"), pairwise(edges), strict=True)
    }


def occlusion_ranges(much: float) -> Ranges:
    """Return the ranges `hidden_none`, `hidden_some` and `hidden_much` (fraction of hidden joints >= `much`)."""
    above, below = float(np.nextafter(0.0, 1.0)), float(np.nextafter(much, 0.0))
    return {"hidden_none": (0.0, 0.0), "hidden_some": (above, below), "hidden_much": (much, 1.0)}


def hidden_share(flat: list[float]) -> float:
    """Return the fraction of labelled joints (v > 0) that are hidden (v = 1), or 0; `flat` is K times x, y, v."""
    labelled = [flag for flag in flat[2::3] if flag > 0]
    return sum(flag == 1 for flag in labelled) / max(len(labelled), 1)


@dataclass(eq=False)
class OfPeople:
    """The base of scores and pictures of people, compared with annotations by keypoints.

    Args:
        mode: of the dump.
        results: records of people.
        truth: records of annotations.
        skeleton: as in `pose.Scenes`; COCO's unless given.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton",)

    mode: str
    results: str
    truth: str
    _: KW_ONLY
    skeleton: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.body = skeleton_of(self.skeleton)

    def evaluation(self, dump: Dump) -> Evaluation:
        """Match the results of the mode with the annotations."""
        return evaluate(dump, self.mode, self.results, self.truth, self.body)


@dataclass(eq=False)
class KeypointAP(OfPeople, Score):
    """COCO's ten metrics for people, then `AP_` and `AR_` by height, and `AR_` by the fraction of hidden joints.

    Heights are those of boxes as a fraction of the image height: the thirds `height_low`, `_middle` and `_high` of the
    annotated people, with the bounds `height_middle_from` and `height_high_from`. People out of range are ignored, and
    so are unmatched results out of range.
    `hidden_none`, `_some` and `_much` are ranges of the fraction of labelled joints that are hidden. A result has no
    such fraction unless it matches a person: which range a false result belongs to is unknown, and so is the precision
    in each. `persons` counts the annotated people, also by range.

    The first arguments, and `skeleton`, are those of `OfPeople`.

    Args:
        occlusion: minimum fraction of hidden joints for `hidden_much`.
    """

    occlusion: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows, whole = dump.mode(self.mode), self.evaluation(dump)
        high = dict(zip(rows.numbers("image_id").astype(int).tolist(), rows.numbers("height").tolist(), strict=True))
        heights, shares = (
            [one["bbox"][3] / high[one["image_id"]] for one in records] for records in (whole.truth, whole.results)
        )
        hidden = [hidden_share(one["keypoints"]) for one in whole.truth]
        judged = np.concatenate([one.truth for one in whole.matches()])
        if not len(judged):
            raise NotApplicableError(NO_JOINTS)
        metrics: dict[str, Estimate | float | int] = dict(estimates(whole, bootstrap))
        bounds = np.quantile([heights[place] for place in judged], [1 / 3, 2 / 3]).tolist()
        metrics |= dict(zip(("height_middle_from", "height_high_from"), bounds, strict=True))
        metrics |= {"persons": len(judged), "images": len(whole.image_ids)}
        for ranges, truth, results in (
            (height_ranges(bounds), heights, shares),
            (occlusion_ranges(self.occlusion), hidden, [np.nan] * len(whole.results)),
        ):
            known = estimates(whole.ranged(ranges, truth, results), bootstrap)
            metrics |= {name: one for name, one in known.items() if not name.startswith("AP_hidden")}
            these = np.array(truth, dtype=np.float64)[judged]
            metrics |= {f"persons_{n}": int(((low <= these) & (these <= up)).sum()) for n, (low, up) in ranges.items()}
        return metrics


class MedianPoseAP(OfPeople, Score):
    """COCO's `AP` and `AP50` of a baseline: ground-truth boxes with one pose for all.

    Each annotated box with labelled joints gets the median pose of these people, stretched to the box. Takes the
    arguments of `OfPeople`; `results` are unused.
    """

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        whole = self.evaluation(dump)
        judged = [one for one in whole.truth if one["num_keypoints"] and not one["iscrowd"]]
        if not judged:
            raise NotApplicableError(NO_JOINTS)
        people = median_people(judged)
        metrics = estimates(Evaluation(whole.truth, people, whole.image_ids, self.body.sigmas), bootstrap)
        return {name: metrics[name] for name in ("AP", "AP50")}


def median_people(truth: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a result for each annotated person: the median pose of all, stretched to the person's box."""
    boxes = np.array([one["bbox"] for one in truth], dtype=np.float64)
    joints = np.array([one["keypoints"] for one in truth], dtype=np.float64).reshape(len(truth), -1, 3)
    places = boxes[:, None, :2] + median_pose(joints, boxes) * boxes[:, None, 2:]
    keypoints = np.concatenate([places, np.ones((*places.shape[:2], 1))], axis=2).reshape(len(truth), -1)
    return [{**one, "score": 1.0, "keypoints": flat} for one, flat in zip(truth, keypoints.tolist(), strict=True)]


def median_pose(joints: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median position of each joint in its person's box, (K, 2), as fractions of width and height.

    Only labelled joints are used; joints that are never labelled are at the centre. `joints` are (N, K, 3), COCO's x,
    y, v; `boxes` (N, 4), x, y, width and height, clamped to at least one pixel.
    """
    places = (joints[:, :, :2] - boxes[:, None, :2]) / np.maximum(boxes[:, None, 2:], 1.0)
    labelled = joints[:, :, 2] > 0
    medians = [np.median(places[of, joint], axis=0) if of.any() else (0.5, 0.5) for joint, of in enumerate(labelled.T)]
    return np.array(medians, dtype=np.float64)


@dataclass(eq=False)
class BoxAP(Score):
    """COCO's twelve metrics for boxes; `AR_best1` and `AR_best10` allow 1 and 10 results per image and category.

    Args:
        mode: of the dump.
        results: records of objects.
        truth: records of annotations.
    """

    mode: str
    results: str
    truth: str

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        evaluation = evaluate(dump, self.mode, self.results, self.truth, None)
        judged = sum(len(one.truth) for one in evaluation.matches())
        if not judged:
            raise NotApplicableError(NO_BOXES)
        return {**estimates(evaluation, bootstrap), "objects": judged, "images": len(evaluation.image_ids)}


def joint_distances(
    truth: Sequence[Record], people: Sequence[Record | None], lengths: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
    """Compare annotated people with those found for them: three arrays (n, K).

    They are: which joints are labelled, which of these the found person has (confidence above 0), and the distances of
    the joints as fractions of `lengths` (n,), by default the height of the annotated box. Nobody found (None) has no
    joints.
    """
    joints = np.array([one["keypoints"] for one in truth], dtype=np.float64).reshape(len(truth), -1, 3)
    nobody = [0.0] * joints[0].size
    found = np.array([nobody if one is None else one["keypoints"] for one in people]).reshape(joints.shape)
    labelled = joints[..., 2] > 0
    if lengths is None:
        lengths = np.array([one["bbox"][3] for one in truth], dtype=np.float64)
    away = np.linalg.norm(found[..., :2] - joints[..., :2], axis=2) / lengths[:, None]
    return labelled, labelled & (found[..., 2] > 0), away


@dataclass(eq=False)
class KeypointErrors(OfPeople, Score):
    """Distances of joints, as fractions of the height of the person's annotated box.

    A person is found if COCO's matching gives it a result with an OKS of 0.5 or more. `distance` is the mean over
    labelled joints of found people, if the result has the joint (confidence above 0). `PCK_10` is the fraction of all
    labelled joints, including those of missed people, with a result within 10 percent (percentage of correct keypoints,
    Yang and Ramanan 2013, normalised by the height). `recall` is the fraction of people found. `distance` and `PCK_`
    then follow per joint.

    The first arguments, and `skeleton`, are those of `OfPeople`.

    Args:
        within: distances of the PCK, as fractions of the height.
    """

    within: Distances = (0.05, 0.1)

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        evaluation = self.evaluation(dump)
        images, within = evaluation.matches(), {f"PCK_{100 * share:g}": share for share in self.within}
        if not any(len(one.truth) for one in images):
            raise NotApplicableError(NO_JOINTS)
        truth, results = (np.concatenate([getattr(one, name) for one in images]) for name in ("truth", "results"))
        found = results >= 0
        people = [evaluation.results[place] if place >= 0 else None for place in results]
        labelled, both, away = joint_distances([evaluation.truth[place] for place in truth], people)
        image = np.repeat(np.arange(len(images)), [len(one.truth) for one in images])

        def summed(values: NDArray[Any]) -> NDArray[np.float64]:
            """Sum (people, joints) over each image."""
            total = np.zeros((len(images), *values.shape[1:]))
            np.add.at(total, image, values)
            return total

        ratios = {
            "recall": (summed(found[:, None]), summed(np.ones((len(found), 1)))),
            "distance": (summed(np.where(both, away, 0.0)), summed(both)),
            **{name: (summed(both & (away <= share)), summed(labelled)) for name, share in within.items()},
        }
        metrics: dict[str, Estimate | float | int] = {}
        for name, (above, below) in ratios.items():
            if below.any():
                estimate = bootstrap.ratio if name == "distance" else bootstrap.share
                metrics[name] = estimate(above.sum(axis=1), below.sum(axis=1))
        metrics |= {"persons": len(found), "found": int(found.sum())}
        for joint, keypoint in enumerate(self.body.keypoints):
            own = {name: (a[:, joint].sum(), b[:, joint].sum()) for name, (a, b) in ratios.items() if name != "recall"}
            if counted := {name: float(a / b) for name, (a, b) in own.items() if b}:
                metrics[keypoint] = counted
        return metrics


@dataclass(eq=False)
class TorsoPCK(OfPeople, Score):
    """The fraction of correct joints as published for Leeds Sports, FLIC and others (PCK, Yang and Ramanan 2013).

    A joint is correct within a fraction of the torso, which is the distance from the left shoulder to the right hip of
    the annotation, as in the evaluation of Yang et al. 2016 (github.com/bearpaw/eval_pose). `PCK` counts all labelled
    joints of all annotated people; joints that the result lacks (confidence 0) are wrong, and so are all joints in an
    image without results. A person's result is that with the highest OKS of the image's 20 best, however low, because
    pictures may show people without annotation. `median_pose` is the PCK of a baseline (see `MedianPoseAP`). `people`
    counts people with a torso; those `without_torso`, with one end not labelled or both ends in one place, are left
    out. PCK by joint follows.

    The first arguments, and `skeleton`, are those of `OfPeople`.

    Args:
        within: distance of a correct joint, as a fraction of the torso.
        torso: its ends.
    """

    within: Positive = 0.2
    torso: tuple[str, str] = ("left_shoulder", "right_hip")

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [name for name in self.torso if name not in self.body.keypoints]:
            raise ValueError(f"torso: {unknown[0]!r} is none of the joints {', '.join(self.body.keypoints)}")
        self.ends = [self.body.keypoints.index(name) for name in self.torso]

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        whole = self.evaluation(dump)
        closest = whole.closest().tolist()
        judged = [place for place, one in enumerate(whole.truth) if one["num_keypoints"] and not one["iscrowd"]]
        if not judged:
            raise NotApplicableError(NO_JOINTS)
        joints = np.array([whole.truth[place]["keypoints"] for place in judged], dtype=np.float64)
        start, end = np.moveaxis(joints.reshape(len(judged), -1, 3)[:, self.ends], 1, 0)
        lengths = np.linalg.norm(start[:, :2] - end[:, :2], axis=1)
        known = (start[:, 2] > 0) & (end[:, 2] > 0) & (lengths > 0)
        if not known.any():
            raise NotApplicableError(f"no annotated person has a torso: {' and '.join(self.torso)}")
        places = np.array(judged)[known].tolist()
        truth = [whole.truth[place] for place in places]
        people = [whole.results[closest[place]] if closest[place] >= 0 else None for place in places]
        image = np.searchsorted(whole.image_ids, [one["image_id"] for one in truth])
        labelled, both, away = joint_distances(truth, people, lengths[known])
        hits = both & (away <= self.within)
        _, baseline, away = joint_distances(truth, median_people(truth), lengths[known])

        def share(correct: NDArray[np.bool_]) -> Estimate:
            above, below = np.zeros((2, len(whole.image_ids)))
            np.add.at(above, image, correct.sum(axis=1))
            np.add.at(below, image, labelled.sum(axis=1))
            return bootstrap.share(above, below)

        metrics: dict[str, Estimate | float | int] = {"PCK": share(hits)}
        metrics |= {"median_pose": share(baseline & (away <= self.within))}
        metrics |= {"people": len(truth), "without_torso": len(judged) - len(truth)}
        counts = zip(self.body.keypoints, hits.sum(axis=0).tolist(), labelled.sum(axis=0).tolist(), strict=True)
        return metrics | {keypoint: right / total for keypoint, right, total in counts if total}
