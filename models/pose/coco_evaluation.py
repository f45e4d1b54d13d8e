"""COCO's average precision and recall for poses and boxes, with weights for images, for a bootstrap.

pycocotools' COCOeval matches each result once; copies of an image are then weights. Sources: Lin et al. 2014,
"Microsoft COCO", and COCO's keypoint challenge (object keypoint similarity, OKS). This module adds ranges of measures
other than the area.
"""

import copy
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from figura.base.errors import UserError

from .average_precision import (
    AREAS,
    METRICS,
    MOST,
    RECALLS,
    THRESHOLDS,
    Flags,
    Floats,
    Integers,
    Kind,
    Metric,
    averaged,
    least_hits,
    mean_of_known,
)

Record = Mapping[str, Any]
Ranges = Mapping[str, tuple[float, float]]

LEAST_OVERLAP = 0.5  # minimum overlap (OKS or IoU) of a match, the lowest of COCO's thresholds


@dataclass(frozen=True, eq=False)
class ImageMatches:
    """The matches of an image's n annotations (except ignored ones) at `LEAST_OVERLAP`.

    Attributes:
        truth: int64 (n,), indices into `Evaluation.truth`.
        results: int64 (n,), indices into `Evaluation.results` of the matches, -1 for missed annotations.
        overlaps: float64 (n,), OKS or IoU with the match, 0 for missed annotations.
        nearest: float64 (n,), the highest overlap with a false result, or 0; below `LEAST_OVERLAP` for missed ones.
        false: int64 (m,), indices of false results, which match nothing, not even an ignored annotation.
    """

    truth: NDArray[np.int64]
    results: NDArray[np.int64]
    overlaps: Floats
    nearest: Floats
    false: NDArray[np.int64]


class Evaluation:
    """Matches results with annotations and computes COCO's metrics.

    As in COCO, crowd regions and persons without labelled keypoints are ignored: they are never missed, and results
    that match them are not false. All `image_ids` are evaluated, including those without results or annotations;
    records of other images are ignored. Per image and category, the 20 best poses or 100 best boxes are used.

    Args:
        truth: COCO annotations: `image_id`, `category_id`, `bbox`, and `keypoints` of people. Defaults: `iscrowd` 0,
            `area` that of the box, `num_keypoints` counted, keypoints unlabelled. With `sigmas`, categories whose
            annotations have no keypoints are ignored.
        results: COCO results: `image_id`, `category_id`, `score`, and `bbox` or `keypoints`. With both, the area is the
            box's.
        image_ids: ids of all evaluated images.
        sigmas: (K,), of keypoints, relative to the person's scale, to compare people by OKS. None compares boxes by
            IoU.

    Attributes:
        truth: completed copies of the annotations.
        results: completed copies of the results.
        image_ids: sorted, without duplicates.

    Raises:
        UserError: keypoints do not have three numbers per sigma.
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
        self.metrics, self._most = METRICS[kind], MOST[kind]
        self._truth_cells = self._cells_of(self.truth)
        cells, scores = self._cells_of(self.results), _column(self.results, "score")
        order = np.lexsort((-scores, cells))
        rank = np.arange(len(order)) - np.searchsorted(cells[order], cells[order])
        self._kept, self._rank = order[rank < self._most[-1]], rank[rank < self._most[-1]]
        self._result_cells, self._scores = cells[self._kept], scores[self._kept]
        self._compare(kind, sigmas)
        self._judge(AREAS[kind], _column(self.truth, "area"), _column(self.results, "area"))

    def _cells_of(self, records: Sequence[Record]) -> Integers:
        """Return each record's cell index: category-major, with the images in order."""
        images = {number: index for index, number in enumerate(self.image_ids)}
        starts = {number: index * len(images) for index, number in enumerate(self.categories)}
        return np.array([starts[one["category_id"]] + images[one["image_id"]] for one in records], dtype=np.int64)

    def _compare(self, kind: Kind, sigmas: Sequence[float] | Floats | None) -> None:
        """Compute the overlaps of all results with the annotations in their cells."""
        self._numbered = [
            [{**one, "id": number} for number, one in enumerate(records, 1)] for records in (self.truth, self.results)
        ]
        with redirect_stdout(io.StringIO()):  # pycocotools prints its progress
            self._coco = COCOeval(*map(self._index, self._numbered), kind)
            self._coco.params.maxDets, self._coco.params.areaRng = list(self._most), []
            if sigmas is not None:
                self._coco.params.kpt_oks_sigmas = np.asarray(sigmas, dtype=np.float64)
            self._coco.evaluate()
        self._cells, order = list[_Cell](), np.argsort(self._truth_cells, kind="stable")
        for cell in np.union1d(self._truth_cells, self._result_cells).tolist():
            category, image = divmod(cell, len(self.image_ids))
            key, ends = (self.image_ids[image], self.categories[category]), (cell, cell + 1)
            truth = order[slice(*np.searchsorted(self._truth_cells, ends, sorter=order))]
            results = np.arange(*np.searchsorted(self._result_cells, ends))
            overlaps = np.reshape(self._coco.ious[key], (len(results), len(truth)))
            self._cells.append(_Cell(key, truth, results, overlaps))

    def _index(self, records: Sequence[Record]) -> Any:
        index = COCO()
        images, categories = ([{"id": one} for one in ids] for ids in (self.image_ids, self.categories))
        index.dataset = {"images": images, "categories": categories, "annotations": records}
        index.createIndex()
        return index

    def _judge(self, ranges: Ranges, truth: Floats, results: Floats) -> None:
        """Match within each range of a measure of annotations and results."""
        self._ranges = list(ranges)
        for records, measures in zip(self._numbered, (truth, results), strict=True):
            for record, measure in zip(records, measures.tolist(), strict=True):
                record["area"] = measure  # COCOeval looks for what is in range there
        self._judged = [self._within(one) for one in ranges.values()]

    def _within(self, limits: tuple[float, float]) -> "_Judged":
        ignored = np.zeros(len(self.truth), dtype=bool)
        matches = np.full((len(THRESHOLDS), len(self._kept)), -1, dtype=np.int64)
        judged = np.zeros(matches.shape, dtype=bool)
        for cell in self._cells:
            found = self._coco.evaluateImg(*cell.key, limits, self._most[-1])
            ignored[np.array(found["gtIds"], dtype=np.int64) - 1] = found["gtIgnore"]
            matches[:, cell.results] = found["dtMatches"] - 1
            judged[:, cell.results] = ~found["dtIgnore"]
        return _Judged(ignored, matches, judged & (matches >= 0), judged)

    def ranged(self, ranges: Ranges, truth: Sequence[float], results: Sequence[float]) -> "Evaluation":
        """Return an evaluation within ranges of a measure other than the area; OKS are unchanged.

        `ranges` include both ends. `truth` and `results` are the measures of the records in `truth` and `results`. As
        with COCO's areas, annotations out of range are ignored, and so are results that match nothing and are out of
        range (NaN never is). The metrics are `AP_<range>` and `AR_<range>`.
        """
        other = copy.copy(self)
        other._judge(ranges, np.asarray(truth, dtype=np.float64), np.asarray(results, dtype=np.float64))
        other.metrics = {f"AP_{name}": Metric("precision", range=name) for name in ranges}
        other.metrics |= {f"AR_{name}": Metric("recall", range=name) for name in ranges}
        return other

    def values(self) -> dict[str, float]:
        """Return the metrics in [0, 1]; NaN (COCO's -1) where there are no annotations."""
        _, recall, precision = self._tables(np.ones((1, len(self.image_ids))))
        return {name: float(value) for name, value in self._pick(precision.mean(axis=1), recall[0]).items()}

    def resampled(self, weights: Floats) -> dict[str, Floats]:
        """Return each metric (samples,) of resampled images; `weights` (samples, images) counts copies of each image.

        Equals COCOeval's result for copied images, except for the order of equal scores within an image.
        """
        average, recall, _ = self._tables(weights)
        return self._pick(average, recall)

    def curves(self) -> tuple[Floats, Floats, Floats]:
        """Return precision over recall for all sizes: thresholds (T,), recalls (R,), precisions (T, R).

        Precisions are interpolated and averaged over categories as COCO does; NaN where there are no annotations.
        """
        _, _, precision = self._tables(np.ones((1, len(self.image_ids))))
        return THRESHOLDS, RECALLS, mean_of_known(precision[..., 0], (2,))

    def matches(self) -> list[ImageMatches]:
        """Return the matches in each image of `image_ids`, over all categories and sizes."""
        judged, images = self._judged[0], len(self.image_ids)
        matches, false = judged.matches[0], judged.judged[0] & ~judged.hits[0]
        results, overlaps, nearest = np.full(len(self.truth), -1), np.zeros(len(self.truth)), np.zeros(len(self.truth))
        for cell in self._cells:
            found, person = np.nonzero(matches[cell.results][:, None] == cell.truth)
            results[cell.truth[person]] = self._kept[cell.results[found]]
            overlaps[cell.truth[person]] = cell.overlaps[found, person]
            nearest[cell.truth] = cell.overlaps[false[cell.results]].max(axis=0, initial=0.0)
        truth = np.flatnonzero(~judged.ignored)
        truth = truth[np.lexsort((self._truth_cells[truth], self._truth_cells[truth] % max(images, 1)))]
        wrong = np.flatnonzero(false)
        wrong = wrong[np.argsort(self._result_cells[wrong] % max(images, 1), kind="stable")]
        people, others = (
            np.searchsorted(cells % max(images, 1), np.arange(1, images))
            for cells in (self._truth_cells[truth], self._result_cells[wrong])
        )
        columns = [np.split(one[truth], people) for one in (np.arange(len(self.truth)), results, overlaps, nearest)]
        rows = zip(*columns, np.split(self._kept[wrong], others), strict=True)
        return [ImageMatches(*row) for row in rows][:images]

    def closest(self) -> Integers:
        """Return for each annotation in `truth` the result in its image with the highest overlap, -1 without results.

        No overlap is too low, and a result may be the closest of several annotations; of equals the best score counts.
        """
        closest = np.full(len(self.truth), -1)
        for cell in self._cells:
            if cell.overlaps.size:
                closest[cell.truth] = self._kept[cell.results[cell.overlaps.argmax(axis=0)]]
        return closest

    def _tables(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Return average precision (samples, T, categories, ranges) and recall (samples, T, categories, ranges, M).

        Also the first sample's precision at `RECALLS` (T, R, categories, ranges). NaN where there are no annotations.
        """
        samples, images = weights.shape
        shape = (len(self.categories), len(self._ranges))
        average = np.full((samples, len(THRESHOLDS), *shape), np.nan)
        recall = np.full((*average.shape, len(self._most)), np.nan)
        precision = np.full((len(THRESHOLDS), len(RECALLS), *shape), np.nan)
        counts = weights.astype(np.int64)
        for category, size in product(*map(range, shape)):
            ends = np.array([category, category + 1]) * images
            judged, own = self._judged[size], slice(*np.searchsorted(self._result_cells, ends))
            truth = self._truth_cells[~judged.ignored] - ends[0]
            positives = weights @ np.bincount(truth[(truth >= 0) & (truth < images)], minlength=images)
            known, least = positives > 0, least_hits(positives)
            places, rank = self._result_cells[own] - ends[0], self._rank[own]
            order = np.argsort(-self._scores[own], kind="stable")
            for row, (hits, counted) in enumerate(zip(judged.hits[:, own], judged.judged[:, own], strict=True)):
                means, curves = averaged(places[order], hits[order], counted[order], counts, least)
                average[known, row, category, size] = means[known]
                precision[row, :, category, size] = curves[0] if known[0] else np.nan
            present, images_of = np.unique(places, return_inverse=True)
            correct = [
                np.bincount(images_of[hits & (rank < limit)], minlength=len(present))
                for hits in judged.hits[:, own]
                for limit in self._most
            ]
            found = (weights[:, present] @ np.array(correct, dtype=np.float64).T).reshape(samples, len(THRESHOLDS), -1)
            recall[known, :, category, size] = found[known] / positives[known, None, None]
        return average, recall, precision

    def _pick(self, precision: Floats, recall: Floats) -> dict[str, Floats]:
        """Return metrics (...) from `precision` (..., T, categories, ranges) and `recall`, with one more axis (M,)."""
        values = {}
        for name, metric in self.metrics.items():
            table = precision if metric.of == "precision" else recall[..., metric.best]
            table = table[..., self._ranges.index(metric.range)]
            if metric.threshold is not None:
                table = table[..., np.isclose(THRESHOLDS, metric.threshold), :]
            values[name] = mean_of_known(table, (-2, -1))
        return values


@dataclass(frozen=True, eq=False)
class _Cell:
    """The records of one category in one image.

    Attributes:
        key: ids of the image and the category.
        truth: int64 (G,), indices of annotations.
        results: int64 (D,), indices of the sorted results.
        overlaps: float64 (D, G), OKS or IoU.
    """

    key: tuple[int, int]
    truth: Integers
    results: Integers
    overlaps: Floats


@dataclass(frozen=True, eq=False)
class _Judged:
    """The outcome for the annotations and the n sorted results within one range.

    Attributes:
        ignored: bool (annotations,).
        matches: int64 (T, n), indices of annotations, -1 for none.
        hits: bool (T, n), results that match an annotation that is not ignored.
        judged: bool (T, n), results that count as hits or as false.
    """

    ignored: Flags
    matches: Integers
    hits: Flags
    judged: Flags


def _column(records: Sequence[Record], name: str) -> Floats:
    return np.array([one[name] for one in records], dtype=np.float64)


def _annotation(record: Record, joints: int) -> dict[str, Any]:
    box = record["bbox"]
    annotation = {"iscrowd": 0, **record, "area": record.get("area", box[2] * box[3])}
    if joints:
        annotation["keypoints"] = record.get("keypoints") or [0.0] * 3 * joints
        _check_keypoints(annotation, joints)
        annotation.setdefault("num_keypoints", sum(flag > 0 for flag in annotation["keypoints"][2::3]))
    return annotation


def _result(record: Record, joints: int) -> dict[str, Any]:
    """Complete a result like `COCO.loadRes`: a missing box encloses the keypoints; the area is the box's."""
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
