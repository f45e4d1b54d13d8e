"""COCO's average precision and recall for poses and boxes: matching and accumulation by pycocotools' COCOeval.

Sources: Lin et al. 2014, "Microsoft COCO", and COCO's keypoint challenge (object keypoint similarity, OKS); the figures are
those of specification 9.3. Added here: what a bootstrap over images needs, and ranges of other measures than the area.
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
from models.pose.report.average_precision import FIGURES, Figure, Floats, Kind, accumulated, mean_of_known

Record = Mapping[str, Any]
Ranges = Mapping[str, tuple[float, float]]

FOUND = 0.5
"""The overlap (OKS or IoU) from which a person or object counts as found; the lowest of COCO's thresholds."""


@dataclass(frozen=True, eq=False)
class Found:
    """What became of one image's n judged (not ignored) persons or objects at an overlap of `FOUND`.

    Attributes:
        truth: int64 (n,), places in `Evaluation.truth`.
        results: int64 (n,), places in `Evaluation.results` of their matches, -1 where missed.
        overlaps: float64 (n,), OKS or IoU with the match, 0 where missed.
        nearest: float64 (n,), the highest overlap with a false result, 0 where there is none; below `FOUND` where missed.
        false: int64 (m,), places of results that match nothing, not even something ignored.
    """

    truth: NDArray[np.int64]
    results: NDArray[np.int64]
    overlaps: Floats
    nearest: Floats
    false: NDArray[np.int64]


class Evaluation:
    """Results of some images matched with their truth.

    As COCO does it, crowd regions and persons without labelled keypoint are ignored: neither to be found nor false when
    found. All `image_ids` count, those without results and those without truth too. An image's 20 best poses or 100 best
    boxes a category are judged. Other images' records are left out.

    Args:
        truth: COCO annotations: `image_id`, `category_id`, `bbox`, and `keypoints` of people. Left out, `iscrowd` is 0,
            `area` the box's, `num_keypoints` is counted, and keypoints are not labelled. For keypoints, categories of
            which no annotation has keypoints are left out.
        results: COCO results: `image_id`, `category_id`, `score`, `bbox` or `keypoints` (both: the area is the box's).
        image_ids: of all evaluated images.
        sigmas: (K,), of keypoints, as a share of the person's scale: people are then compared by OKS; None: everything by
            the IoU of boxes.

    Attributes:
        truth: copies of the judged annotations, completed; `id` is their place + 1 (COCOeval takes 0 for no match).
        results: copies of the results, likewise.
        image_ids: rising, each once.

    Raises:
        UserError: for keypoints that are not three numbers a sigma.
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
        self.figures = FIGURES[kind]
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
        """Match again within ranges, both ends included, of another measure than the area; OKS stay as they are.

        `truth` and `results` are the measures of the records in `truth` and `results`. As with COCO's areas, annotations out
        of range are ignored, and so are results that match nothing and are out of range themselves (NaN never is). The
        figures are `AP_<range>` and `AR_<range>`.
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
        other.figures = {f"AP_{name}": Figure("precision", range=name) for name in ranges}
        other.figures |= {f"AR_{name}": Figure("recall", range=name) for name in ranges}
        return other

    def values(self) -> dict[str, float]:
        """Return the figures in [0, 1]; NaN (COCO's -1) where there is nothing to be found."""
        precision, recall = (
            np.where(self._evaluator.eval[of] < 0, np.nan, self._evaluator.eval[of]) for of in ("precision", "recall")
        )
        return {name: float(value) for name, value in self._pick(precision[..., -1].mean(axis=1), recall).items()}

    def resampled(self, weights: Floats) -> dict[str, Floats]:
        """Return the figures, (samples,), if images were there several times: `weights` (samples, images) says how often.

        Equal to what COCOeval accumulates from copies of images, but for the order of equal scores within an image.
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

        Precisions are interpolated and averaged over categories as COCO does, NaN where there is nothing to be found.
        """
        precision = np.where(self._evaluator.eval["precision"] < 0, np.nan, self._evaluator.eval["precision"])
        params = self._evaluator.params
        return params.iouThrs, params.recThrs, mean_of_known(precision[..., 0, -1], (2,))

    def found(self) -> list[Found]:
        """Return what was found in each image of `image_ids`, all categories and sizes."""
        images: list[list[Found]] = [[] for _ in self.image_ids]
        for category in range(len(self.categories)):
            for place, one in self._cell(category, 0):
                key = (self.image_ids[place], self.categories[category])
                images[place].append(_found(one, self._evaluator.ious[key]))
        fields = Found.__dataclass_fields__
        empty = Found(*(np.zeros(0, float if name in ("overlaps", "nearest") else np.int64) for name in fields))
        return [
            Found(*(np.concatenate([getattr(one, name) for one in (empty, *parts)]) for name in fields))
            for parts in images
        ]

    def _cell(self, category: int, size: int) -> list[tuple[int, dict[str, Any]]]:
        """COCOeval's matches for one category and range, with the places of their images."""
        images = len(self.image_ids)
        start = (category * len(self._evaluator.params.areaRng) + size) * images
        found = enumerate(self._evaluator.evalImgs[start : start + images])
        return [(place, one) for place, one in found if one is not None]

    def _pick(self, precision: Floats, recall: Floats) -> dict[str, Floats]:
        """Figures (...) from precisions (..., T, categories, ranges) and recalls (..., T, categories, ranges, M)."""
        params = self._evaluator.params
        found = {}
        for name, figure in self.figures.items():
            table = precision if figure.of == "precision" else recall[..., figure.best]
            table = table[..., params.areaRngLbl.index(figure.range)]
            if figure.threshold is not None:
                table = table[..., np.isclose(params.iouThrs, figure.threshold), :]
            found[name] = mean_of_known(table, (-2, -1))
        return found


def _annotation(record: Record, joints: int) -> dict[str, Any]:
    box = record["bbox"]
    found = {"iscrowd": 0, **record, "area": record.get("area", box[2] * box[3])}
    if joints:
        found["keypoints"] = record.get("keypoints") or [0.0] * 3 * joints
        _check_keypoints(found, joints)
        found.setdefault("num_keypoints", sum(flag > 0 for flag in found["keypoints"][2::3]))
    return found


def _result(record: Record, joints: int) -> dict[str, Any]:
    """As `COCO.loadRes`: the area is that of the box, or of the extent of the keypoints where there is no box."""
    found = dict(record)
    if joints:
        _check_keypoints(found, joints)
        if not found.get("bbox"):
            x, y = found["keypoints"][0::3], found["keypoints"][1::3]
            found["bbox"] = [min(x), min(y), max(x) - min(x), max(y) - min(y)]
    found["area"] = found["bbox"][2] * found["bbox"][3]
    return found


def _check_keypoints(record: Record, joints: int) -> None:
    if len(record["keypoints"]) != 3 * joints:
        raise UserError(
            f"image {record['image_id']}: a person has {len(record['keypoints'])} numbers as keypoints; the skeleton's "
            f"{joints} keypoints need {3 * joints}; give the dataset's own `skeleton` to the score"
        )


def _found(one: Mapping[str, Any], overlaps: Any) -> Found:
    """From COCOeval's matches of an image; its overlaps: a row a result, a column an annotation, by rising id."""
    ids, judged = np.array(one["gtIds"], dtype=np.int64), np.asarray(one["gtIgnore"]) == 0
    table = np.zeros((len(one["dtIds"]), len(ids))) if not len(overlaps) else np.asarray(overlaps, dtype=np.float64)
    table = table[:, np.argsort(np.argsort(ids))]
    matches = np.asarray(one["gtMatches"][0], dtype=np.int64)
    false = (one["dtMatches"][0] == 0) & ~one["dtIgnore"][0]
    rows = {number: row for row, number in enumerate(one["dtIds"])}
    exact = [table[rows[match], column] if match else 0.0 for column, match in enumerate(matches.tolist())]
    return Found(
        truth=ids[judged] - 1,
        results=matches[judged] - 1,
        overlaps=np.array(exact, dtype=np.float64)[judged],
        nearest=table[false].max(axis=0, initial=0.0)[judged],
        false=np.array(one["dtIds"], dtype=np.int64)[false] - 1,
    )
