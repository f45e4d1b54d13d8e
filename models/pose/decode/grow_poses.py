"""Poses grow joint by joint along the connections that association fields offer (specification 5.5 to 5.7, 5.9).

Joints are x, y, confidence (0: missing), scale; pixels. Candidates are what `confidence_maps.candidates` returns; so
are `directed` connections: row 2 e leads from the first joint of connection e to the second, row 2 e + 1 back. They are
found by where they start, with buckets of pixels.
"""

import math

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Candidates = NDArray[np.float32]
Order = NDArray[np.int32]
Joint = tuple[float, float, float, float]

BUCKET = 16  # pixels
LEAST_SCALE = 0.5  # pixels
LEAST_SECOND = 0.01  # confidence of a second candidate that is still blended in
SECOND_SHARE = 0.5  # and its share of the best one's
FILLED = 1e-5  # confidence of joints that no field shows
MISSING = (0.0, 0.0, 0.0, 0.0)


@numba.njit(cache=True, nogil=True)
def _bucket(coordinate: float, count: int) -> int:
    """Never falls as the coordinate grows; what is outside belongs to the first or last."""
    return int(min(max(coordinate / BUCKET, 0.0), count - 1.0))


@numba.njit(cache=True, nogil=True)
def index(found: Candidates, spans: Integers, height: int, width: int) -> tuple[Order, Order]:
    """The candidates (m, 6) of each direction in buckets of their start: `order` (m,) and `buckets`.

    In `buckets` (2 C, rows, columns, 2) stand where in `order` a bucket begins and ends; a row's buckets are adjacent.
    """
    rows, columns = height // BUCKET + 1, width // BUCKET + 1
    order = np.empty(len(found), dtype=np.int32)
    buckets = np.zeros((len(spans), rows, columns, 2), dtype=np.int32)
    for way in range(len(spans)):
        first, last = spans[way]
        for place in range(first, last):
            buckets[way, _bucket(found[place, 2], rows), _bucket(found[place, 1], columns), 1] += 1
        for row in range(rows):
            for column in range(columns):
                count = buckets[way, row, column, 1]
                buckets[way, row, column] = first
                first += count
        for place in range(spans[way, 0], last):
            row, column = _bucket(found[place, 2], rows), _bucket(found[place, 1], columns)
            order[buckets[way, row, column, 1]] = place
            buckets[way, row, column, 1] += 1
    return order, buckets


@numba.njit(cache=True, nogil=True)
def two_best(
    found: Candidates, order: Order, buckets: Order, way: int, x: float, y: float, reach: float, variance: float
) -> tuple[int, int, float, float]:
    """The two candidates of the largest weights that start near (x, y), -1 for none, and the weights.

    Near is within `reach` in x and in y. The weight is the confidence times a Gaussian of the distance. Of equal ones
    the later candidate is better.
    """
    best, second, highest, next_highest = -1, -1, 0.0, 0.0
    rows, columns = buckets.shape[1:3]
    left, right = _bucket(x - reach, columns), _bucket(x + reach, columns)
    for row in range(_bucket(y - reach, rows), _bucket(y + reach, rows) + 1):
        for place in range(buckets[way, row, left, 0], buckets[way, row, right, 1]):
            one = order[place]
            start_x, start_y = float(found[one, 1]), float(found[one, 2])
            if not (x - reach <= start_x <= x + reach and y - reach <= start_y <= y + reach):
                continue
            dx, dy = start_x - x, start_y - y
            weight = found[one, 0] * math.exp(-0.5 * (dx * dx + dy * dy) / variance)
            if (weight, one) > (highest, best):
                best, second, highest, next_highest = one, best, weight, highest
            elif (weight, one) > (next_highest, second):
                second, next_highest = one, weight
    return best, second, highest, next_highest


@numba.njit(cache=True, nogil=True)
def grow_connection(
    found: Candidates,
    order: Order,
    buckets: Order,
    way: int,
    x: float,
    y: float,
    scale: float,
    factor: float,
    blend: bool,
) -> Joint:
    """Where the connection leads from a joint at (x, y) of `scale` (specification 5.5); confidence 0: nowhere.

    The best candidate that starts within `factor` times half the scale; with `blend` the mean of the best two, if
    they are comparable and end in the same place, and else half the best one's weight as the confidence.
    """
    scale = max(scale, LEAST_SCALE)
    best, second, first_weight, second_weight = two_best(
        found, order, buckets, way, x, y, factor * scale / 2, scale * scale / 4
    )
    if best < 0:
        return MISSING
    x1, y1, scale1 = float(found[best, 3]), float(found[best, 4]), float(found[best, 5])
    if not blend:
        return x1, y1, first_weight, scale1
    alone = x1, y1, first_weight / 2, scale1
    if second < 0 or second_weight < LEAST_SECOND or second_weight < SECOND_SHARE * first_weight:
        return alone
    x2, y2, scale2 = float(found[second, 3]), float(found[second, 4]), float(found[second, 5])
    if (x1 - x2) ** 2 + (y1 - y2) ** 2 > scale1**2 / 4:
        return alone
    total = first_weight + second_weight
    a, b = first_weight / total, second_weight / total
    return a * x1 + b * x2, a * y1 + b * y2, total / 2, a * scale1 + b * scale2


@numba.njit(cache=True, nogil=True)
def _connected(
    pose: Floats,
    directed: Integers,
    found: Candidates,
    order: Order,
    buckets: Order,
    way: int,
    keypoint_threshold: float,
    keypoint_threshold_rel: float,
    factor: float,
    reverse_match: bool,
    blend: bool,
) -> Joint:
    """The joint at the other end of a connection, if it is good enough and leads back (specification 5.6)."""
    x, y, confidence, scale = pose[directed[way, 0]]
    new_x, new_y, weight, new_scale = grow_connection(found, order, buckets, way, x, y, scale, factor, blend)
    value = math.sqrt(weight * confidence)
    if value == 0 or value < keypoint_threshold or value < keypoint_threshold_rel * confidence:
        return MISSING
    if reverse_match:
        back_x, back_y, weight, _ = grow_connection(
            found, order, buckets, way ^ 1, new_x, new_y, new_scale, factor, blend
        )
        if weight == 0 or abs(back_x - x) + abs(back_y - y) > scale:
            return MISSING
    return new_x, new_y, value, new_scale


@numba.njit(cache=True, nogil=True)
def _expand(pose: Floats, directed: Integers, waiting: Floats, seen: NDArray[np.bool_], joint: int) -> None:
    """Let the connections from a joint to missing ones wait, each once."""
    for way in range(len(directed)):
        if directed[way, 0] == joint and pose[directed[way, 1], 2] == 0 and not seen[way]:
            seen[way] = True
            waiting[way] = math.sqrt(pose[joint, 2])


@numba.njit(cache=True, nogil=True)
def grow_pose(
    pose: Floats,
    directed: Integers,
    found: Candidates,
    order: Order,
    buckets: Order,
    keypoint_threshold: float,
    keypoint_threshold_rel: float,
    factor: float,
    reverse_match: bool,
    blend: bool,
    greedy: bool,
) -> None:
    """Add joints to a pose (K, 4), in place, the most confident first (specification 5.7).

    A connection first waits with the root of its source's confidence, an upper bound, and when its turn comes again
    with the confidence of the joint it leads to; `greedy` takes the joint at once. Of equals the first one is next.
    """
    waiting = np.zeros(len(directed))
    seen = np.zeros(len(directed), dtype=np.bool_)
    ends = np.zeros((len(directed), 4))
    for joint in range(len(pose)):
        if pose[joint, 2] > 0:
            _expand(pose, directed, waiting, seen, joint)
    while True:
        way = int(np.argmax(waiting))
        if waiting[way] == 0:
            return
        waiting[way] = 0
        joint = directed[way, 1]
        if pose[joint, 2] > 0:
            continue
        known = ends[way, 2] > 0
        if not known:
            thresholds = keypoint_threshold, keypoint_threshold_rel
            ends[way] = _connected(
                pose, directed, found, order, buckets, way, *thresholds, factor, reverse_match, blend
            )
        if ends[way, 2] > 0 and (known or greedy):
            pose[joint] = ends[way]
            _expand(pose, directed, waiting, seen, joint)
        else:
            waiting[way] = ends[way, 2]


@numba.njit(cache=True, nogil=True)
def fill(pose: Floats, directed: Integers) -> None:
    """Put missing joints, in place, onto connected ones, those onto the most confident joints first."""
    while True:
        best, highest = -1, 0.0
        for way in range(len(directed)):
            if pose[directed[way, 1], 2] == 0 and pose[directed[way, 0], 2] > highest:
                best, highest = way, pose[directed[way, 0], 2]
        if best < 0:
            return
        pose[directed[best, 1]] = pose[directed[best, 0]]
        pose[directed[best, 1], 2] = FILLED
