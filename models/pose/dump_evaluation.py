"""Evaluate the records of a dump; metrics with bootstrap intervals over images."""

from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.dump import RERUN_HINT, Dump
from figura.formats.records import is_finite
from figura.formats.skeletons import Skeleton
from figura.report.interfaces import Bootstrap, Estimate
from figura.report.intervals import leave_out

from .coco_evaluation import Evaluation

Floats = NDArray[np.float64]

FARTHEST = 1e12  # larger numbers in records, pixels or their squares, are treated as damage
PEOPLE = 1  # the category of people if only they are compared: ids may differ between evaluation and training data
_AT_ONCE = 1 << 22  # results x samples whose weights are in memory at a time: 32 MiB


def evaluate(
    dump: Dump, mode: str, results: str, truth: str, skeleton: Skeleton | None, least_score: float = 0.0
) -> Evaluation:
    """Match the records `results` of a mode's images with the records `truth` of the inputs.

    With a `skeleton`, compares people by keypoints, for any category ids; else all categories by boxes. Results below
    `least_score` are ignored. Scores and pictures of the same dump share an evaluation.
    """
    sigmas = None if skeleton is None else tuple(np.asarray(skeleton.sigmas).tolist())
    return _evaluated(dump, mode, results, truth, sigmas, least_score)


@lru_cache(maxsize=2)  # people and boxes
def _evaluated(
    dump: Dump, mode: str, results: str, truth: str, sigmas: tuple[float, ...] | None, least_score: float
) -> Evaluation:
    rows = dump.mode(mode)
    ids = rows.numbers("image_id").astype(int).tolist()
    if repeated := [number for number, count in Counter(ids).items() if count > 1]:
        raise UserError(
            f"{rows.folder}: image_id {repeated[0]} occurs more than once; results are judged for one dataset, without "
            "draws"
        )
    records, annotations = rows.records(results), dump.records(truth)
    for index, record in enumerate(records):
        if fault := record_fault(record, ("score",), ("bbox",) if sigmas is None else ("keypoints",)):
            raise UserError(f"{rows.folder}: {results!r}: record {index} (counted from 0): {fault}; {RERUN_HINT}")
    for index, record in enumerate(annotations):
        if fault := record_fault(record, (), ("bbox",)):
            raise UserError(f"{dump.folder}: {truth!r}: record {index} (counted from 0): {fault}; {RERUN_HINT}")
    records = [one for one in records if one["score"] >= least_score]
    if sigmas is None:
        return Evaluation(annotations, records, ids)
    people = {one["category_id"] for one in annotations if one.get("keypoints")}
    annotations = [{**one, "category_id": PEOPLE} for one in annotations if one["category_id"] in people]
    records = [{**one, "category_id": PEOPLE} for one in records]
    return Evaluation(annotations, records, ids, sigmas)


def record_fault(record: dict[str, Any], numbers: tuple[str, ...], lists: tuple[str, ...]) -> str:
    """Return what is wrong with a record: `numbers` and `lists` must be finite, the rest integers."""
    for name in ("image_id", "category_id"):
        if type(record.get(name)) is not int:
            return f"{name} is {record.get(name)!r:.40}; an integer is needed"
    for name in ("iscrowd", "num_keypoints"):
        if type(record.get(name, 0)) not in (int, bool):
            return f"{name} is {record[name]!r:.40}; a whole number is needed"
    for name in ("score", "area"):
        if (name in numbers or name in record) and not is_finite([record.get(name)], FARTHEST):
            return f"{name} is {record.get(name)!r:.40}; a finite number is needed"
    for name in ("bbox", "keypoints"):
        value = record.get(name)
        if (name in lists or value) and not (isinstance(value, list) and is_finite(value, FARTHEST)):
            return f"{name} is {value!r:.40}; a list of finite numbers is needed"
        if name == "bbox" and value and len(value) != 4:
            return f"bbox has {len(value)} numbers; 4 are needed"
    return ""


def estimates(evaluation: Evaluation, bootstrap: Bootstrap) -> dict[str, Estimate]:
    """Return the metrics of an evaluation that are not NaN, with intervals over images."""
    images = len(evaluation.image_ids)
    samples = _resampled(evaluation, bootstrap.draws(images))
    left_out = _resampled(evaluation, leave_out(images, bootstrap.samples))
    return {
        name: bootstrap.bca(value, samples[name], left_out[name])
        for name, value in evaluation.values().items()
        if np.isfinite(value)
    }


def _resampled(evaluation: Evaluation, weights: Floats) -> dict[str, Floats]:
    """Return the metrics for each row of weights (n, images), in chunks of rows."""
    parts = np.array_split(weights, min(len(weights), 1 + len(weights) * len(evaluation.results) // _AT_ONCE))
    resampled = [evaluation.resampled(part) for part in parts]
    return {name: np.concatenate([one[name] for one in resampled]) for name in resampled[0]}
