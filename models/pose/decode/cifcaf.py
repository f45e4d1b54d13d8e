"""The CifCaf decoder: intensity and association fields -> poses.

Source: Kreiss, Bertoni and Alahi, "OpenPifPaf: Composite Fields for Semantic Keypoint Detection and Spatio-Temporal
Association", T-ITS 2021, section III.D, as in openpifpaf/decoder/cifcaf.py of version 0.13. Options that OpenPifPaf
accepts but ignores (connection method, reverse match, dense weight) are implemented here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from figura.formats.skeletons import COCO, Skeleton

from ..argument_types import Count, Share
from .cif_hr import Buffers, Maps, accumulate, candidates, fields_checked, in_threads, seeds
from .grow_poses import fill, grow_pose, index
from .occupancy import empty_grid, mark_pose, next_free, without_duplicates

Floats = NDArray[np.float64]
Fields = NDArray[np.float32]
Record = dict[str, Any]

SIGMA_SHARE = 0.5  # standard deviations per scale: a scale is two of them
COMPLETION_FACTOR = 4.0  # while completing poses, connections may start this much farther away


@dataclass(frozen=True, eq=False)
class Poses:
    """The people found in one image, best first.

    Attributes:
        keypoints: float32 (n, K, 4), x and y in pixels, confidence in [0, 1], and the joint's scale in pixels (two
            standard deviations). A confidence of 0 is a missing joint; its position is meaningless.
        scores: float32 (n,), in [0, 1].
    """

    keypoints: NDArray[np.float32]
    scores: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.scores)


class CifCafDecoder:
    """Decodes fields of joints and of connections into poses. Equal fields always give equal poses.

    The decoder grows poses from the best seeds, joint by joint. To remove duplicates, it ranks poses by mean
    confidence, as in OpenPifPaf. The result is sorted by score: the mean of the joints' confidences in descending
    order, weighted by the skeleton's `score_weights`.

    Args:
        stride: pixels per cell.
        skeleton: K joints.
        seed_threshold: minimum confidence of the first joint of a pose.
        instance_threshold: minimum mean confidence of a pose; None is 0.15, or 0 with `force_complete`.
        keypoint_threshold: minimum confidence of a further joint; while growing, at most `seed_threshold`, or 0 with
            `force_complete`.
        keypoint_threshold_rel: the same, relative to the confidence of the joint at the other end of the connection; 0
            with `force_complete`.
        cif_threshold: minimum confidence of cells used in the confidence maps.
        caf_threshold: minimum confidence of a connection.
        force_complete: give each pose all joints: first by weaker connections that start farther away, then by placing
            missing joints onto their neighbours with a confidence of 1e-5. Raises COCO's scores.
        force_complete_caf_threshold: minimum confidence of these weaker connections.
        greedy: accept the joint at the end of a connection at once, not in the order of confidences.
        connection_method: `blend` the best two connections, or take the best one (`max`).
        reverse_match: use only connections that also match in reverse.
        dense_weight: factor on the confidences of the skeleton's dense connections, which follow the standard
            ones in the association field; None if there are none.
        cif_rescore: score seeds with the confidence maps, not only by their cell (an ablation, like the next ones).
        caf_rescore: score connections with the confidence map at their end.
        seed_nms: use only cells more confident than their neighbours as seeds.
        independent_keypoints: keep `keypoint_threshold` while growing, also with `force_complete`.

    Raises:
        ValueError: `dense_weight` for a skeleton without dense connections.
    """

    def __init__(
        self,
        *,
        stride: Count,
        skeleton: Skeleton = COCO,
        seed_threshold: Share = 0.2,
        instance_threshold: Share | None = None,
        keypoint_threshold: Share = 0.15,
        keypoint_threshold_rel: Share = 0.5,
        cif_threshold: Share = 0.3,
        caf_threshold: Share = 0.3,
        force_complete: bool = False,
        force_complete_caf_threshold: Share = 0.001,
        greedy: bool = False,
        connection_method: Literal["blend", "max"] = "blend",
        reverse_match: bool = True,
        dense_weight: Share | None = None,
        cif_rescore: bool = True,
        caf_rescore: bool = True,
        seed_nms: bool = False,
        independent_keypoints: bool = False,
    ) -> None:
        self.stride, self.skeleton = stride, skeleton
        # floats: numba would recompile for integers
        self.seed_threshold, self.cif_threshold = float(seed_threshold), float(cif_threshold)
        self.caf_threshold = float(caf_threshold)
        self.force_complete_caf_threshold = float(force_complete_caf_threshold)
        self.force_complete, self.reverse_match = force_complete, reverse_match
        self.cif_rescore, self.caf_rescore, self.seed_nms = cif_rescore, caf_rescore, seed_nms
        self._blend, self._greedy = connection_method == "blend", greedy
        least = 0.15 if instance_threshold is None else instance_threshold
        self._duplicates = (0.0, instance_threshold or 0.0) if force_complete else (keypoint_threshold, least)
        grown = 0.0 if force_complete and not independent_keypoints else min(keypoint_threshold, seed_threshold)
        self._growth = float(grown), 0.0 if force_complete else float(keypoint_threshold_rel)
        dense = () if dense_weight is None else skeleton.dense_connections
        if dense_weight is not None and not dense:
            raise ValueError(f"dense_weight {dense_weight}: the skeleton has no dense connections, None is needed")
        self.connections = skeleton.connections + dense
        self._weights = np.array([1.0] * len(skeleton.connections) + [dense_weight or 0.0] * len(dense))
        self._directed = np.array([way for a, b in self.connections for way in ((a, b), (b, a))], dtype=np.int64)
        self._buffers = Buffers()

    def __call__(self, cif: Fields, caf: Fields) -> Poses:
        """Return the poses in an image.

        Args:
            cif: decoded fields float32 (K, 5, rows, columns): log-scale (unused), confidence, x, y, scale; cells.
            caf: (connections, 8, rows, columns): log-scale (unused), confidence, x and y at both ends, both scales.

        Raises:
            ValueError: other shapes. Any values are allowed; cells with a number that is not finite are ignored.
        """
        cif = fields_checked(cif, "cif", len(self.skeleton.keypoints), 5)
        caf = fields_checked(caf, "caf", len(self.connections), 8)
        if cif.shape[2:] != caf.shape[2:]:
            raise ValueError(f"caf of shape {caf.shape}: {cif.shape[2:]} cells are needed, as in cif")
        height, width = ((count - 1) * self.stride + 1 for count in cif.shape[2:])
        occupied = empty_grid(len(cif), height, width)
        with self._buffers.zeros(len(cif), height, width) as (maps, tiles):
            if self.cif_rescore or self.caf_rescore:
                accumulate(maps, tiles, cif, self.stride, self.cif_threshold, SIGMA_SHARE)
            poses = self._seeded(cif, caf, maps, occupied)
            if self.force_complete and len(poses):
                self._complete(poses, caf, maps)
        return self._scored(without_duplicates(poses, occupied, *self._duplicates))

    def batch(self, cif: Iterable[Fields], caf: Iterable[Fields], workers: int) -> list[Poses]:
        """Return the poses of several images, decoded by `workers` threads; the same as one by one.

        Args:
            cif: (N, K, 5, rows, columns), or a sequence of fields that differ in size.
            caf: (N, connections, 8, rows, columns), likewise.
            workers: at least 1.
        """
        return in_threads(lambda pair: self(*pair), list(zip(cif, caf, strict=True)), workers)

    def _seeded(self, cif: Fields, caf: Fields, maps: Maps, occupied: NDArray[np.uint8]) -> Floats:
        """Grow poses (n, K, 4), each from the best seed that no earlier pose covers."""
        starts = seeds(cif, maps, self.stride, self.seed_threshold, self.cif_rescore, self.seed_nms)
        if not len(starts):
            return np.empty((0, len(cif), 4))
        starts = starts[np.argsort(-starts[:, 0], kind="stable")]
        offers = self._offers(caf, maps, np.ones(len(self._directed), dtype=np.bool_), self.caf_threshold)
        poses, place = [], next_free(occupied, starts, 0)
        while place < len(starts):
            value, joint, x, y, scale = starts[place, :5].tolist()
            pose = np.zeros((len(cif), 4))
            pose[int(joint)] = x, y, value, max(scale, 0.0)
            grow_pose(pose, self._directed, *offers, *self._growth, 1.0, self.reverse_match, self._blend, self._greedy)
            mark_pose(occupied, pose)
            poses.append(pose)
            place = next_free(occupied, starts, place + 1)
        return np.stack(poses)

    def _offers(
        self, caf: Fields, maps: Maps, wanted: NDArray[np.bool_], threshold: float
    ) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]:
        offers, spans = candidates(
            caf, maps, self._directed, wanted, self._weights, self.stride, threshold, self.caf_rescore
        )
        return (offers, *index(offers, spans, *maps.shape[1:]))

    def _complete(self, poses: Floats, caf: Fields, maps: Maps) -> None:
        """Add the missing joints of all poses, in place."""
        missing = poses[:, :, 2] == 0
        if not missing.any():
            return
        wanted = missing.any(axis=0)[self._directed[:, 1]]
        offers = self._offers(caf, maps, wanted, self.force_complete_caf_threshold)
        for place in np.flatnonzero(missing.any(axis=1)):
            pose = poses[place]
            grow_pose(pose, self._directed, *offers, *self._growth, COMPLETION_FACTOR, False, self._blend, self._greedy)
            fill(pose, self._directed)

    def _scored(self, poses: Floats) -> Poses:
        weights = self.skeleton.score_weights / self.skeleton.score_weights.sum()
        scores = -np.sort(-poses[:, :, 2], axis=1) @ weights
        order = np.argsort(-scores, kind="stable")
        return Poses(poses[order].astype(np.float32), scores[order].astype(np.float32))


def people_records(
    poses: Poses,
    to_original: NDArray[np.floating],
    image_id: int,
    category: int = 1,
    maximum: int = 20,
    least_score: float = 0.0,
) -> list[Record]:
    """Return the best `maximum` poses with a score of at least `least_score` as records.

    A record has `image_id`, `category_id`, `keypoints` (x, y, confidence of each joint, zeros for missing joints),
    `bbox` (around the joints and their scales) and `score`; pixels have two decimals. `to_original` (2, 3) maps pixels
    (x, y, 1) of the network's input to the file's.
    """
    records = []
    for joints, score in zip(poses.keypoints[:maximum], poses.scores, strict=False):
        if score < least_score:
            continue
        present = joints[:, 2] > 0
        places = joints[:, :2] @ to_original[:, :2].T + to_original[:, 2]
        scales = joints[present, 3:4] * np.linalg.norm(to_original[:, 0])
        low, high = (places[present] - scales).min(axis=0), (places[present] + scales).max(axis=0)
        # at least 0.01: a detected joint must not round to a missing one
        triples = np.column_stack([places.round(2), joints[:, 2].clip(0.01, 1).round(4)]) * present[:, None]
        records.append({
            "image_id": image_id,
            "category_id": category,
            "keypoints": [round(float(one), 4) for one in triples.ravel()],
            "bbox": [round(float(one), 2) for one in (*low, *(high - low))],
            "score": round(float(score), 6),
        })  # fmt: skip
    return records
