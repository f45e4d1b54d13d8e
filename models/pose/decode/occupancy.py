"""Occupancy grids: where joints or boxes already are, so that the decoder finds no duplicates.

Source: occupancy and nms_keypoints in openpifpaf/csrc. A grid is uint8 (fields, height // 2 + 1, width // 2 + 1); 1 is
an occupied cell. Poses are float64 (n, K, 4): x, y, confidence (0: missing), scale; pixels.
"""

import numba
import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.uint8]
Floats = NDArray[np.float64]

REDUCTION = 2  # pixels per cell
LEAST_RADIUS = 4.0  # pixels
SUPPRESSION = 1e-5  # factor on the confidence of a joint if a better pose has one there


def empty_grid(fields: int, height: int, width: int) -> Grid:
    """Return an empty grid for an image of this size, pixels."""
    return np.zeros((fields, height // REDUCTION + 1, width // REDUCTION + 1), dtype=np.uint8)


@numba.njit(cache=True, nogil=True)
def mark(occupied: Grid, field: int, x: float, y: float, radius: float) -> None:
    """Occupy the square around a position (pixels), clipped to the grid; always at least one cell."""
    rows, columns = occupied.shape[1:]
    x, y, radius = x / REDUCTION, y / REDUCTION, max(radius, LEAST_RADIUS) / REDUCTION
    left, top = min(max(int(x - radius), 0), columns - 1), min(max(int(y - radius), 0), rows - 1)
    right, bottom = min(max(int(x + radius), left + 1), columns), min(max(int(y + radius), top + 1), rows)
    occupied[field, top:bottom, left:right] = 1


@numba.njit(cache=True, nogil=True)
def is_occupied(occupied: Grid, field: int, x: float, y: float) -> bool:
    """Return whether a position (pixels) is occupied; positions outside are clamped to the border."""
    rows, columns = occupied.shape[1:]
    row, column = min(max(int(y / REDUCTION), 0), rows - 1), min(max(int(x / REDUCTION), 0), columns - 1)
    return bool(occupied[field, row, column])


@numba.njit(cache=True, nogil=True)
def next_free(occupied: Grid, seeds: Floats, start: int) -> int:
    """Return the index of the first free seed (score, field, x, y, ...) from `start` on, or the number of seeds."""
    for index in range(start, len(seeds)):
        if not is_occupied(occupied, int(seeds[index, 1]), seeds[index, 2], seeds[index, 3]):
            return index
    return len(seeds)


@numba.njit(cache=True, nogil=True)
def mark_pose(occupied: Grid, pose: Floats) -> None:
    """Occupy the positions of a pose's joints (K, 4), each with its scale as the radius."""
    for joint in range(len(pose)):
        if pose[joint, 2] != 0:
            mark(occupied, joint, pose[joint, 0], pose[joint, 1], pose[joint, 3])


@numba.njit(cache=True, nogil=True)
def free_seeds(occupied: Grid, seeds: Floats, most: int) -> NDArray[np.int64]:
    """Return the indices of the first `most` seeds (score, field, x, y, radius, ...) that no earlier one covers.

    Seeds only cover seeds of the same field.
    """
    indices = np.empty(most, dtype=np.int64)
    count = 0
    for index in range(len(seeds)):
        field, x, y = int(seeds[index, 1]), seeds[index, 2], seeds[index, 3]
        if count < most and not is_occupied(occupied, field, x, y):
            mark(occupied, field, x, y, seeds[index, 4])
            indices[count] = index
            count += 1
    return indices[:count]


@numba.njit(cache=True, nogil=True)
def _suppress(occupied: Grid, poses: Floats) -> None:
    """Scale down the confidence of joints, in place, where an earlier pose has a joint of the same type."""
    for pose in poses:
        for joint in range(len(pose)):
            x, y, confidence, scale = pose[joint]
            if confidence == 0:
                continue
            if is_occupied(occupied, joint, x, y):
                pose[joint, 2] = confidence * SUPPRESSION
            else:
                mark(occupied, joint, x, y, scale)


def without_duplicates(poses: Floats, occupied: Grid, keypoint_threshold: float, instance_threshold: float) -> Floats:
    """Suppress duplicate joints (non-maximum suppression) and return the poses sorted by mean confidence.

    If several poses have a joint of one type at the same position, only the pose with the highest mean confidence keeps
    it (missing joints count as 0). Joints of at most `keypoint_threshold` become missing. Poses below
    `instance_threshold` or without joints are dropped. Overwrites `occupied`.
    """
    occupied[:] = 0
    poses = poses[np.argsort(-poses[:, :, 2].mean(axis=1), kind="stable")]
    _suppress(occupied, poses)
    poses[poses[:, :, 2] <= keypoint_threshold] = 0
    means = poses[:, :, 2].mean(axis=1)
    order = np.argsort(-means, kind="stable")
    kept = (means >= instance_threshold) & (means > 0)
    return np.ascontiguousarray(poses[order[kept[order]]])
