"""COCO's average precision and recall for poses and boxes: matching and accumulation by pycocotools' COCOeval.

Sources: Lin et al. 2014, "Microsoft COCO", and COCO's keypoint challenge (object keypoint similarity, OKS). This module
adds weights per image, for a bootstrap, and ranges of measures other than the area.
"""

import contextlib
import copy
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from models.base.errors import UserError
from models.pose.report.average_precision import METRICS, Floats, Kind, Metric, accumulated, mean_of_known

Record = Mapping[str, Any]
Ranges = Mapping[str, tuple[float, float]]

LEAST_OVERLAP = 0.5
"""Least overlap (OKS or IoU) of a match, the lowest of COCO's thresholds."""


@dataclass(frozen=True, eq=False)
class ImageMatches:
    """The matches of one image's n annotations (without ignored ones) at `LEAST_OVERLAP`.

    Attributes:
        truth: int64 (n,), indices into `Evaluation.truth`.
        results: int64 (n,), indices into `Evaluation.results` of the matches, -1 for missed annotations.
        overlaps: float64 (n,), OKS or IoU with the match, 0 for missed annotations.
        nearest: float64 (n,), the highest overlap with a false result, or 0; below `LEAST_OVERLAP` for missed ones.
        false: int64 (m,), indices of false results: those that match nothing, not even an ignored annotation.
    """

    truth: NDArray[np.int64]
    results: NDArray[np.int64]
    overlaps: Floats
    nearest: Floats
    false: NDArray[np.int64]


class Evaluation:
    """Matches results with annotations and computes COCO's metrics.

    As in COCO, crowd regions and persons without labelled keypoints are ignored: they are neither missed, nor is a
    result that matches them false. All `image_ids` count, also those without results or annotations; records of other
    images do not. Per image and category, the 20 best poses or 100 best boxes count.

    Args:
        truth: COCO annotations: `image_id`, `category_id`, `bbox`, and `keypoints` of people. Defaults: `iscrowd` 0,
            `area` that of the box, `num_keypoints` counted, keypoints unlabelled. With `sigmas`, categories whose
            annotations have no keypoints do not count.
        results: COCO results: `image_id`, `category_id`, `score`, and `bbox` or `keypoints`. With both, the area is
            that of the box.
        image_ids: ids of all evaluated images.
        sigmas: (K,), of keypoints, as shares of the person's scale, to compare people by OKS. None compares boxes by
            IoU.

    Attributes:
        truth: completed copies of the annotations; `id` is the index + 1 (COCOeval reads 0 as no match).
        results: completed copies of the results, likewise.
        image_ids: sorted, without repeats.

    Raises:
        UserError: for keypoints without three numbers per sigma.
    """

    def __init__(
        self,
        truth: Iterable[Record],
        results: Iterable[Record],
        image_ids: Iterable[int],
        sigmas: Sequence[float] | Floats | None = None,
    ) -> None:
        kind: Kind = "bbox" if sigmas is None else "keypoints"
        self.image_ids = sorted(set(image_ids))
        known, joints = set(self.image_ids), 0 if sigmas is None else len(sigmas)
        annotations = list(truth)
        kinds = {one["category_id"] for one in annotations if not joints or one.get("keypoints")}
        self.truth = [
            _annotation(one, joints) for one in annotations if one["image_id"] in known and one["category_id"] in kinds
        ]
        self.results = [_result(one, joints) for one in results if one["image_id"] in known]
        self.categories = sorted({one["category_id"] for one in (*self.truth, *self.results)})
        self.metrics = METRICS[kind]
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints
            self._evaluator = COCOeval(self._index(self.truth), self._index(self.results), kind)
            if sigmas is not None:
                self._evaluator.params.kpt_oks_sigmas = np.asarray(sigmas, dtype=np.float64)
            self._evaluator.evaluate()
            self._evaluator.accumulate()

    def _index(self, records: list[dict[str, Any]]) -> COCO:
        for place, record in enumerate(records):
            record["id"] = place + 1
        index = COCO()
        index.dataset = {
            "images": [{"id": image} for image in self.image_ids],
            "categories": [{"id": category} for category in self.categories],
            "annotations": records,
        }
        index.createIndex()
        return index

    def ranged(self, ranges: Ranges, truth: Sequence[float], results: Sequence[float]) -> "Evaluation":
        """Return an evaluation within ranges of a measure other than the area; OKS do not change.

        `ranges` include both ends. `truth` and `results` are the measures of the records in `truth` and `results`. As
        with COCO's areas, annotations out of range are ignored, and so are results that match nothing and are out of
        range (NaN never is). The metrics are `AP_<range>` and `AR_<range>`.
        """
        other = copy.deepcopy(self)
        for record, measure in zip((*other.truth, *other.results), (*truth, *results), strict=True):
            record["area"] = measure
        evaluator, params = other._evaluator, other._evaluator.params
        params.areaRng, params.areaRngLbl = [list(one) for one in ranges.values()], list(ranges)
        cells = product(params.catIds, params.areaRng, params.imgIds)
        evaluator.evalImgs = [evaluator.evaluateImg(i, k, area, params.maxDets[-1]) for k, area, i in cells]
        evaluator._paramsEval = copy.deepcopy(params)
        with contextlib.redirect_stdout(io.StringIO()):
            evaluator.accumulate()
        other.metrics = {f"AP_{name}": Metric("precision", range=name) for name in ranges}
        other.metrics |= {f"AR_{name}": Metric("recall", range=name) for name in ranges}
        return other

    def values(self) -> dict[str, float]:
        """Return the metrics in [0, 1]; NaN (COCO's -1) where there are no annotations."""
        precision, recall = (
            np.where(self._evaluator.eval[of] < 0, np.nan, self._evaluator.eval[of]) for of in ("precision", "recall")
        )
        return {name: float(value) for name, value in self._pick(precision[..., -1].mean(axis=1), recall).items()}

    def resampled(self, weights: Floats) -> dict[str, Floats]:
        """Return each metric (samples,) of resampled images; `weights` (samples, images) counts copies of each image.

        Equals COCOeval's result for copied images, except for the order of equal scores within an image.
        """
        params = self._evaluator.params
        shape = (len(weights), len(params.iouThrs), len(self.categories), len(params.areaRng))
        precision, recall = np.full(shape, np.nan), np.full((*shape, len(params.maxDets)), np.nan)
        for category, size in product(range(shape[2]), range(shape[3])):
            if cell := self._cell(category, size):
                precision[:, :, category, size], recall[:, :, category, size] = accumulated(
                    cell, weights, params.recThrs, params.maxDets
                )
        return self._pick(precision, recall)

    def curves(self) -> tuple[Floats, Floats, Floats]:
        """Return precision over recall for all sizes: thresholds (T,), recalls (R,), precisions (T, R).

        Precisions are interpolated and averaged over categories as COCO does; NaN where there are no annotations.
        """
        precision = np.where(self._evaluator.eval["precision"] < 0, np.nan, self._evaluator.eval["precision"])
        params = self._evaluator.params
        return params.iouThrs, params.recThrs, mean_of_known(precision[..., 0, -1], (2,))

    def matches(self) -> list[ImageMatches]:
        """Return the matches in each image of `image_ids`, over all categories and sizes."""
        images: list[list[ImageMatches]] = [[] for _ in self.image_ids]
        for category in range(len(self.categories)):
            for place, one in self._cell(category, 0):
                key = (self.image_ids[place], self.categories[category])
                images[place].append(_image_matches(one, self._evaluator.ious[key]))
        fields = ImageMatches.__dataclass_fields__
        empty = ImageMatches(*(np.zeros(0, float if name in ("overlaps", "nearest") else np.int64) for name in fields))
        return [
            ImageMatches(*(np.concatenate([getattr(one, name) for one in (empty, *parts)]) for name in fields))
            for parts in images
        ]

    def _cell(self, category: int, size: int) -> list[tuple[int, dict[str, Any]]]:
        """Return COCOeval's matches for one category and range, each with the index of its image."""
        images = len(self.image_ids)
        start = (category * len(self._evaluator.params.areaRng) + size) * images
        entries = enumerate(self._evaluator.evalImgs[start : start + images])
        return [(place, one) for place, one in entries if one is not None]

    def _pick(self, precision: Floats, recall: Floats) -> dict[str, Floats]:
        """Return metrics (...) from `precision` (..., T, categories, ranges) and `recall`, with one more axis (M,)."""
        params = self._evaluator.params
        values = {}
        for name, metric in self.metrics.items():
            table = precision if metric.of == "precision" else recall[..., metric.best]
            table = table[..., params.areaRngLbl.index(metric.range)]
            if metric.threshold is not None:
                table = table[..., np.isclose(params.iouThrs, metric.threshold), :]
            values[name] = mean_of_known(table, (-2, -1))
        return values


def _annotation(record: Record, joints: int) -> dict[str, Any]:
    box = record["bbox"]
    annotation = {"iscrowd": 0, **record, "area": record.get("area", box[2] * box[3])}
    if joints:
        annotation["keypoints"] = record.get("keypoints") or [0.0] * 3 * joints
        _check_keypoints(annotation, joints)
        annotation.setdefault("num_keypoints", sum(flag > 0 for flag in annotation["keypoints"][2::3]))
    return annotation


def _result(record: Record, joints: int) -> dict[str, Any]:
    """Complete a result as `COCO.loadRes` does: a missing box encloses the keypoints; the area is the box's."""
    result = dict(record)
    if joints:
        _check_keypoints(result, joints)
        if not result.get("bbox"):
            x, y = result["keypoints"][0::3], result["keypoints"][1::3]
            result["bbox"] = [min(x), min(y), max(x) - min(x), max(y) - min(y)]
    result["area"] = result["bbox"][2] * result["bbox"][3]
    return result


def _check_keypoints(record: Record, joints: int) -> None:
    if len(record["keypoints"]) != 3 * joints:
        raise UserError(
            f"image {record['image_id']}: a person has {len(record['keypoints'])} numbers as keypoints; the skeleton's "
            f"{joints} keypoints need {3 * joints}; give the dataset's own `skeleton` to the score"
        )


def _image_matches(one: Mapping[str, Any], overlaps: Any) -> ImageMatches:
    """Convert COCOeval's matches of an image; `overlaps` has a row per result and a column per annotation, by id."""
    ids, judged = np.array(one["gtIds"], dtype=np.int64), np.asarray(one["gtIgnore"]) == 0
    table = np.zeros((len(one["dtIds"]), len(ids))) if not len(overlaps) else np.asarray(overlaps, dtype=np.float64)
    table = table[:, np.argsort(np.argsort(ids))]
    matches = np.asarray(one["gtMatches"][0], dtype=np.int64)
    false = (one["dtMatches"][0] == 0) & ~one["dtIgnore"][0]
    rows = {number: row for row, number in enumerate(one["dtIds"])}
    exact = [table[rows[match], column] if match else 0.0 for column, match in enumerate(matches.tolist())]
    return ImageMatches(
        truth=ids[judged] - 1,
        results=matches[judged] - 1,
        overlaps=np.array(exact, dtype=np.float64)[judged],
        nearest=table[false].max(axis=0, initial=0.0)[judged],
        false=np.array(one["dtIds"], dtype=np.int64)[false] - 1,
    )
