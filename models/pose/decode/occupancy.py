"""Where joints or boxes already are: grids that keep an instance from being found twice (specification 5.8, 5.9).

A grid is uint8 (fields, height // 2 + 1, width // 2 + 1): 1 where something of the field's type is. Poses are float64
(n, K, 4): x, y, confidence (0: missing), scale; pixels.
"""

import numba
import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.uint8]
Floats = NDArray[np.float64]

REDUCTION = 2  # pixels a cell
LEAST_RADIUS = 4.0  # pixels
SUPPRESSION = 1e-5  # of the confidence of a joint where a better pose has one


def nowhere(fields: int, height: int, width: int) -> Grid:
    """The empty grid for images of that many pixels."""
    return np.zeros((fields, height // REDUCTION + 1, width // REDUCTION + 1), dtype=np.uint8)


@numba.njit(cache=True, nogil=True)
def mark(occupied: Grid, field: int, x: float, y: float, radius: float) -> None:
    """Occupy the square around a place (pixels), clipped to the grid; at least one cell, were it at the border."""
    rows, columns = occupied.shape[1:]
    x, y, radius = x / REDUCTION, y / REDUCTION, max(radius, LEAST_RADIUS) / REDUCTION
    left, top = min(max(int(x - radius), 0), columns - 1), min(max(int(y - radius), 0), rows - 1)
    right, bottom = min(max(int(x + radius), left + 1), columns), min(max(int(y + radius), top + 1), rows)
    occupied[field, top:bottom, left:right] = 1


@numba.njit(cache=True, nogil=True)
def is_occupied(occupied: Grid, field: int, x: float, y: float) -> bool:
    """Whether a place (pixels) is; places outside of the grid are those at its border."""
    rows, columns = occupied.shape[1:]
    row, column = min(max(int(y / REDUCTION), 0), rows - 1), min(max(int(x / REDUCTION), 0), columns - 1)
    return bool(occupied[field, row, column])


@numba.njit(cache=True, nogil=True)
def next_free(occupied: Grid, seeds: Floats, start: int) -> int:
    """The first of the seeds (value, field, x, y, ...) from `start` on where nothing is; their number if none is."""
    for place in range(start, len(seeds)):
        if not is_occupied(occupied, int(seeds[place, 1]), seeds[place, 2], seeds[place, 3]):
            return place
    return len(seeds)


@numba.njit(cache=True, nogil=True)
def mark_pose(occupied: Grid, pose: Floats) -> None:
    """Occupy the places of a pose's joints (K, 4), each with its scale as the radius."""
    for joint in range(len(pose)):
        if pose[joint, 2] != 0:
            mark(occupied, joint, pose[joint, 0], pose[joint, 1], pose[joint, 3])


@numba.njit(cache=True, nogil=True)
def free_seeds(occupied: Grid, seeds: Floats, most: int) -> NDArray[np.int64]:
    """Which seeds (value, field, x, y, radius, ...) lie where no earlier one of their field is; at most so many."""
    found = np.empty(most, dtype=np.int64)
    count = 0
    for place in range(len(seeds)):
        field, x, y = int(seeds[place, 1]), seeds[place, 2], seeds[place, 3]
        if count < most and not is_occupied(occupied, field, x, y):
            mark(occupied, field, x, y, seeds[place, 4])
            found[count] = place
            count += 1
    return found[:count]


@numba.njit(cache=True, nogil=True)
def _suppress(occupied: Grid, poses: Floats) -> None:
    """Take nearly all confidence from joints, in place, that lie where an earlier pose has one of the same type."""
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
    """Non-maximum suppression of joints; `occupied` is overwritten. Poses come back sorted by their mean confidence.

    Of joints of one type in one place only that of the pose of the highest mean confidence stays (a missing joint
    counts as 0). Joints of at most `keypoint_threshold` become missing, poses below `instance_threshold` are left out.
    """
    occupied[:] = 0
    poses = poses[np.argsort(-poses[:, :, 2].mean(axis=1), kind="stable")]
    _suppress(occupied, poses)
    poses[poses[:, :, 2] <= keypoint_threshold] = 0
    means = poses[:, :, 2].mean(axis=1)
    order = np.argsort(-means, kind="stable")
    return np.ascontiguousarray(poses[order[means[order] >= instance_threshold]])
