"""How good the found people and objects are, by COCO's measures and by distances of joints; and how long it took.

A dump has, for one mode, a row an image (`image_id`, `width`, `height` in pixels of the file), the results as records in
COCO's form, and the annotations of all these images as records of the inputs. Figures for which there is nothing to be found
are left out (COCO prints -1, which averages and plots would take for a value). Intervals are over images.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from models.dump import Dump
from models.pose.report.coco_evaluation import Ranges
from models.pose.report.dump_evaluation import draw_images, estimate, estimates, evaluate, skeleton_of
from models.report.interfaces import Bootstrap, Estimate, Score


def height_ranges(bounds: tuple[float, ...]) -> Ranges:
    """`height_below_50`, `height_50_to_70`, `height_from_70` for the bounds 0.5 and 0.7; bounds belong to what is above."""
    edges = (0.0, *bounds, np.inf)
    percent = [f"{100 * bound:g}" for bound in bounds]
    names = [f"below_{percent[0]}", *map("{}_to_{}".format, percent, percent[1:]), f"from_{percent[-1]}"]
    return {
        f"height_{n}": (low, float(np.nextafter(high, 0.0)))
        for n, (low, high) in zip(names, pairwise(edges), strict=True)
    }


def occlusion_ranges(much: float) -> Ranges:
    """None of the labelled joints is hidden; some, but less than the share `much`; that share or more."""
    above, below = float(np.nextafter(0.0, 1.0)), float(np.nextafter(much, 0.0))
    return {"hidden_none": (0.0, 0.0), "hidden_some": (above, below), "hidden_much": (much, 1.0)}


def hidden_share(flat: list[float]) -> float:
    """Share of the labelled joints (v > 0) that are hidden (v = 1); 0 where none is labelled. `flat`: K times x, y, v."""
    labelled = [flag for flag in flat[2::3] if flag > 0]
    return sum(flag == 1 for flag in labelled) / max(len(labelled), 1)


class KeypointAP(Score):
    """COCO's ten figures for people, then `AP_` and `AR_` by the person's height and by how much of it is hidden.

    Heights are those of boxes, as a share of the image's: `height_below_50`, ... in per cent. Outside a range people are
    ignored, and so are results that match nobody and are out of it themselves. `hidden_none`, `_some` and `_much` go by
    the share of labelled joints that are hidden. What matches nobody cannot be said to be hidden: it counts as false in
    all three, so that these AP depend on how many people there are of each kind; AR does not. `persons` counts those to
    be found, also by range.

    Args:
        mode: of the dump.
        results: records of people.
        truth: records of annotations.
        heights: rising shares between which ranges lie.
        occlusion: the share of hidden joints from which it is `much`.
        skeleton: as in `pose.Scenes`; COCO's unless given.
    """

    def __init__(
        self,
        mode: str,
        results: str,
        truth: str,
        heights: tuple[float, ...] = (0.5, 0.7),
        occlusion: float = 0.5,
        skeleton: dict[str, Any] | None = None,
    ) -> None:
        if not heights or sorted(set(heights)) != list(heights) or heights[0] <= 0:
            raise ValueError(
                f"heights {list(heights)}: rising shares of the image's height are needed, such as 0.5, 0.7"
            )
        if not 0 < occlusion <= 1:
            raise ValueError(f"occlusion {occlusion}: a share above 0, at most 1, is needed")
        self.mode, self.results, self.truth = mode, results, truth
        self.heights, self.occlusion, self.skeleton = height_ranges(heights), occlusion, skeleton_of(skeleton)

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        whole = evaluate(rows, dump, self.results, self.truth, self.skeleton)
        high = dict(zip(rows.table["image_id"].astype(int), rows.table["height"].astype(float), strict=True))
        heights, shares = (
            [one["bbox"][3] / high[one["image_id"]] for one in records] for records in (whole.truth, whole.results)
        )
        hidden = [hidden_share(one["keypoints"]) for one in whole.truth]
        found: dict[str, Estimate | float | int] = dict(estimates(whole, bootstrap))
        judged = np.concatenate([one.truth for one in whole.found()])
        found |= {"persons": len(judged), "images": len(whole.image_ids)}
        for ranges, truth, results in (
            (self.heights, heights, shares),
            (occlusion_ranges(self.occlusion), hidden, [np.nan] * len(whole.results)),
        ):
            found |= estimates(whole.ranged(ranges, truth, results), bootstrap)
            these = np.array(truth, dtype=np.float64)[judged]
            found |= {f"persons_{n}": int(((low <= these) & (these <= up)).sum()) for n, (low, up) in ranges.items()}
        return found


class BoxAP(Score):
    """COCO's twelve figures for boxes: `AR_best1` and `AR_best10` allow one and ten results an image and category.

    Args:
        mode: of the dump.
        results: records of objects.
        truth: records of annotations.
    """

    def __init__(self, mode: str, results: str, truth: str) -> None:
        self.mode, self.results, self.truth = mode, results, truth

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        evaluation = evaluate(dump.mode(self.mode), dump, self.results, self.truth, None)
        judged = sum(len(one.truth) for one in evaluation.found())
        return {**estimates(evaluation, bootstrap), "objects": judged, "images": len(evaluation.image_ids)}


class KeypointErrors(Score):
    """Distances of joints, as shares of the height of the person's annotated box.

    A person is found where COCO's matching gives it a result with an OKS of 0.5 or more. `error` is the mean distance over
    labelled joints of found people that the result has (confidence above 0); `PCK_10` the share of all labelled joints,
    those of people who were missed included, that were found within 10 per cent (percentage of correct keypoints, Yang
    and Ramanan 2013, with the height as measure); `recall` the share of people found. Then `error` and `PCK_` by joint.

    Args:
        mode: of the dump.
        results: records of people.
        truth: records of annotations.
        within: the distances of the PCK, shares of the height.
        skeleton: as in `pose.Scenes`; COCO's unless given.
    """

    def __init__(
        self,
        mode: str,
        results: str,
        truth: str,
        within: tuple[float, ...] = (0.05, 0.1),
        skeleton: dict[str, Any] | None = None,
    ) -> None:
        if not within or min(within) <= 0:
            raise ValueError(f"within {list(within)}: positive shares of a person's height are needed, such as 0.05")
        self.mode, self.results, self.truth = mode, results, truth
        self.within, self.skeleton = {f"PCK_{100 * share:g}": share for share in within}, skeleton_of(skeleton)

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        evaluation = evaluate(dump.mode(self.mode), dump, self.results, self.truth, self.skeleton)
        images = evaluation.found()
        shape = (len(images), len(self.skeleton.keypoints))
        persons, matched = np.zeros(shape[0]), np.zeros(shape[0])
        labelled, measured, distance = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        near = {name: np.zeros(shape) for name in self.within}
        for image, found in enumerate(images):
            persons[image], matched[image] = len(found.truth), (found.results >= 0).sum()
            for truth, result in zip(found.truth, found.results, strict=True):
                person = evaluation.truth[truth]
                joints = np.reshape(person["keypoints"], (-1, 3))
                labelled[image] += joints[:, 2] > 0
                if result < 0:
                    continue
                guess = np.reshape(evaluation.results[result]["keypoints"], (-1, 3))
                there = (joints[:, 2] > 0) & (guess[:, 2] > 0)
                away = np.linalg.norm(guess[:, :2] - joints[:, :2], axis=1) / person["bbox"][3]
                measured[image] += there
                distance[image] += np.where(there, away, 0.0)
                for name, share in self.within.items():
                    near[name][image] += there & (away <= share)
        weights = draw_images(bootstrap, shape[0])
        ratios = {
            "recall": (matched[:, None], persons[:, None]),
            "error": (distance, measured),
            **{name: (hits, labelled) for name, hits in near.items()},
        }
        figures: dict[str, Estimate | float | int] = {}
        for name, (above, below) in ratios.items():
            if below.any():
                with np.errstate(invalid="ignore"):
                    samples = (weights @ above.sum(axis=1)) / (weights @ below.sum(axis=1))
                figures[name] = estimate(float(above.sum() / below.sum()), samples, bootstrap)
        figures |= {"persons": int(persons.sum()), "found": int(matched.sum())}
        for joint, keypoint in enumerate(self.skeleton.keypoints):
            own = {name: (a[:, joint].sum(), b[:, joint].sum()) for name, (a, b) in ratios.items() if name != "recall"}
            if counted := {name: float(a / b) for name, (a, b) in own.items() if b}:
                figures[keypoint] = counted
        return figures
