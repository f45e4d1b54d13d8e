"""The CifDet decoder: detection fields -> boxes.

Source: openpifpaf/decoder/cifdet.py and its C++ counterpart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numba
import numpy as np
from numpy.typing import NDArray

from ..argument_types import Count, Share
from .cif_hr import Buffers, accumulate, fields_checked, in_threads, seeds
from .occupancy import empty_grid, free_seeds

Fields = NDArray[np.float32]
Floats = NDArray[np.float64]
Record = dict[str, Any]

SIGMA_SHARE = 0.1  # of a box's shorter side: radius of a seed, and standard deviation in confidence maps
SOFT_IOU, SOFT_SUPPRESSION = 0.7, 0.3  # version 0.12's: smaller overlaps have this factor


@dataclass(frozen=True, eq=False)
class Boxes:
    """The objects found in one image, best first.

    Attributes:
        boxes: float32 (n, 4), x and y of the top left corner, width, height in pixels.
        scores: float32 (n,), in [0, 1].
        categories: int64 (n,), index of the field, COCO's category id - 1.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    categories: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)


class CifDetDecoder:
    """Decodes fields of categories into boxes. Equal fields always give equal boxes.

    Args:
        stride: pixels per cell.
        seed_threshold: minimum confidence of a box.
        cif_threshold: minimum confidence of cells used in the confidence maps.
        instance_threshold: drop boxes whose confidence after suppression is not above this.
        iou_threshold: suppress boxes that overlap a better one more than this.
        suppression: factor on the confidence of suppressed boxes.
        per_category: only boxes of the same category suppress each other.
        maximum: maximum number of boxes, the best of all categories, before suppression.
        nms: `hard`: suppressed boxes do not suppress others. `soft`: all better boxes do; `suppression` applies to
            overlaps above 0.7, 0.3 to smaller ones (as in version 0.12, with a `seed_threshold` of 0.5 and a
            `cif_threshold` of 0.1).
        voting_threshold: a returned box becomes the mean, weighted by confidence, of the boxes of all cells of its
            category that have at least `seed_threshold` and overlap it more than this (box voting: Gidaris and
            Komodakis, ICCV 2015); 1 for no voting, as in OpenPifPaf.
    """

    def __init__(
        self,
        *,
        stride: Count,
        seed_threshold: Share = 0.2,
        cif_threshold: Share = 0.3,
        instance_threshold: Share = 0.15,
        iou_threshold: Share = 0.5,
        suppression: Share = 0.1,
        per_category: bool = True,
        maximum: Count = 120,
        nms: Literal["hard", "soft"] = "hard",
        voting_threshold: Share = 1.0,
    ) -> None:
        self.stride = stride
        # floats: numba would recompile for integers
        self.seed_threshold, self.cif_threshold = float(seed_threshold), float(cif_threshold)
        self.instance_threshold, self.maximum = instance_threshold, maximum
        self.per_category, self.nms = per_category, nms
        self.voting_threshold = float(voting_threshold)
        steps = [(iou_threshold, suppression)]
        if nms == "soft":
            steps = [(iou_threshold, SOFT_SUPPRESSION), (max(iou_threshold, SOFT_IOU), suppression)]
        self._steps = np.array(steps, dtype=np.float64)
        self._buffers = Buffers()

    def __call__(self, cifdet: Fields) -> Boxes:
        """Return the boxes in an image.

        Args:
            cifdet: decoded fields float32 (categories, 6, rows, columns): log-scale (unused), confidence, x and y of
                the centre, width and height; cells.

        Raises:
            ValueError: another shape. Any values are allowed; cells with a number that is not finite are ignored.
        """
        fields = fields_checked(cifdet, "cifdet", None, 6)
        height, width = ((count - 1) * self.stride + 1 for count in fields.shape[2:])
        starts = self._seeds(fields, height, width)
        starts = starts[free_seeds(empty_grid(len(fields), height, width), starts, self.maximum)]
        categories, cells = starts[:, 1].astype(np.int64), starts[:, 5].astype(np.int64)
        sizes = fields.reshape(len(fields), 6, -1)[categories, 4:, cells].astype(np.float64) * self.stride
        boxes = np.concatenate([starts[:, 2:4] - sizes / 2, sizes], axis=1)
        groups = categories if self.per_category else np.zeros_like(categories)
        scores = starts[:, 0] * suppressions(boxes, groups, self._steps, self.nms == "soft")
        order = np.argsort(-scores, kind="stable")
        order = order[scores[order] > self.instance_threshold]
        boxes, categories = boxes[order], categories[order]
        if self.voting_threshold < 1:
            boxes = voted(boxes, categories, fields, self.stride, self.seed_threshold, self.voting_threshold)
        return Boxes(boxes.astype(np.float32), scores[order].astype(np.float32), categories)

    def batch(self, cifdet: Iterable[Fields], workers: int) -> list[Boxes]:
        """Return the boxes in several images, decoded by `workers` threads; the same as one by one.

        Args:
            cifdet: (N, categories, 6, rows, columns), or a sequence of fields that differ in size.
            workers: at least 1.
        """
        return in_threads(self, list(cifdet), workers)

    def _seeds(self, fields: Fields, height: int, width: int) -> Floats:
        """Return the seeds of all categories, best first, like `cif_hr.seeds`, but with the cell's index in its field.

        All categories share one map, one after the other.
        """
        parts = [np.empty((0, 6))]
        for category in np.flatnonzero((fields[:, 1] >= self.seed_threshold).any(axis=(1, 2))):
            with self._buffers.zeros(1, height, width) as (maps, tiles):
                field = fields[category : category + 1]
                accumulate(maps, tiles, field, self.stride, self.cif_threshold, SIGMA_SHARE)
                starts = seeds(field, maps, self.stride, self.seed_threshold, True, False)
            starts = starts[starts[:, 4] >= 0]
            starts[:, 1] = category
            starts[:, 4] *= SIGMA_SHARE
            parts.append(starts)
        starts = np.concatenate(parts)
        return np.ascontiguousarray(starts[np.argsort(-starts[:, 0], kind="stable")])


def object_records(
    boxes: Boxes,
    to_original: NDArray[np.floating],
    image_id: int,
    ids: Sequence[int] = (),
    maximum: int = 100,
    least_score: float = 0.0,
) -> list[Record]:
    """Return the best `maximum` boxes with a score of at least `least_score` as records.

    A record has `image_id`, `category_id`, `bbox` and `score`; pixels have two decimals. `ids` are the category ids of
    the fields; without them, ids count the fields from 1. `to_original` is that of `cifcaf.people_records`.
    """
    corners = np.stack([boxes.boxes[:, :2], boxes.boxes[:, :2] + boxes.boxes[:, 2:]], axis=1)
    placed = corners @ to_original[:, :2].T + to_original[:, 2]
    low, high = placed.min(axis=1), placed.max(axis=1)
    return [
        {
            "image_id": image_id,
            "category_id": ids[category] if ids else int(category) + 1,
            "bbox": [round(float(one), 2) for one in (*first, *(last - first))],
            "score": round(float(score), 6),
        }
        for first, last, score, category in zip(low[:maximum], high, boxes.scores, boxes.categories, strict=False)
        if score >= least_score
    ]


@numba.njit(cache=True, nogil=True)
def suppressions(boxes: Floats, groups: NDArray[np.int64], steps: Floats, soft: bool) -> Floats:
    """Return the factor on the score of each box, float64 (n,); boxes (n, 4: x, y, width, height), best first.

    `steps` (m, 2) holds pairs of IoU and factor, with ascending IoU. A box gets the factor of the last step whose IoU
    is below its greatest overlap with an earlier box of the same group (n,), or 1. Suppressed boxes count as earlier
    boxes only if `soft`.
    """
    factors = np.ones(len(boxes))
    for index in range(len(boxes)):
        greatest = 0.0
        for other in range(index):
            if groups[other] == groups[index] and (soft or factors[other] == 1):
                greatest = max(greatest, _overlap(boxes[index], boxes[other]))
        for step in range(len(steps)):
            if greatest > steps[step, 0]:
                factors[index] = steps[step, 1]
    return factors


@numba.njit(cache=True, nogil=True)
def voted(
    boxes: Floats, categories: NDArray[np.int64], fields: Fields, stride: int, least: float, threshold: float
) -> Floats:
    """Return for each box (n, 4: x, y, width, height) the mean of the cells' boxes that overlap it above `threshold`.

    Only finite cells of the box's category with a confidence of at least `least` are used, weighted by confidence. A
    box without such an overlap is unchanged. `fields` are decoded, `boxes` in pixels.
    """
    result = boxes.copy()
    vote = np.empty(4)
    for index in range(len(boxes)):
        field, total, weights = fields[categories[index]], np.zeros(4), 0.0
        for row in range(field.shape[1]):
            for column in range(field.shape[2]):
                weight = float(field[1, row, column])
                if not least <= weight < np.inf:
                    continue
                for axis in range(2):
                    vote[2 + axis] = float(field[4 + axis, row, column]) * stride
                    vote[axis] = float(field[2 + axis, row, column]) * stride - vote[2 + axis] / 2
                if np.isfinite(vote).all() and _overlap(boxes[index], vote) > threshold:
                    total += weight * vote
                    weights += weight
        if weights > 0:
            result[index] = total / weights
    return result


@numba.njit(cache=True, nogil=True)
def _overlap(one: Floats, other: Floats) -> float:
    """Intersection over union; 0 for boxes without area."""
    width = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    height = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    intersection = width * height
    return float(intersection / (one[2] * one[3] + other[2] * other[3] - intersection))
