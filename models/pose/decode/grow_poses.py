"""Grow poses joint by joint along the connection candidates of the association fields.

Source: openpifpaf/csrc/src/cifcaf.cpp. Joints are (x, y, confidence, scale) in pixels; a confidence of 0 is a missing
joint. For the candidates and `directed`, see `cif_hr.candidates`: row 2 e leads from the first joint of connection e to
the second, row 2 e + 1 back. An index of square buckets of pixels finds candidates by their start.
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
LEAST_SECOND = 0.01  # minimum weight of a second candidate to blend
SECOND_SHARE = 0.5  # its minimum fraction of the best weight
FILLED = 1e-5  # confidence of joints placed by `fill`
MISSING = (0.0, 0.0, 0.0, 0.0)


@numba.njit(cache=True, nogil=True)
def _bucket(coordinate: float, count: int) -> int:
    """Return the bucket of a coordinate, 0 to `count` - 1; clamps positions outside."""
    return int(min(max(coordinate / BUCKET, 0.0), count - 1.0))


@numba.njit(cache=True, nogil=True)
def index(offers: Candidates, spans: Integers, height: int, width: int) -> tuple[Order, Order]:
    """Sort the candidates (m, 6) of each direction into buckets by their start; return `order` (m,) and `buckets`.

    `buckets` (2 C, rows, columns, 2) has the start and end of each bucket in `order`; the buckets of a row are
    adjacent.
    """
    rows, columns = height // BUCKET + 1, width // BUCKET + 1
    order = np.empty(len(offers), dtype=np.int32)
    buckets = np.zeros((len(spans), rows, columns, 2), dtype=np.int32)
    for way in range(len(spans)):
        first, last = spans[way]
        for index in range(first, last):
            buckets[way, _bucket(offers[index, 2], rows), _bucket(offers[index, 1], columns), 1] += 1
        for row in range(rows):
            for column in range(columns):
                count = buckets[way, row, column, 1]
                buckets[way, row, column] = first
                first += count
        for index in range(spans[way, 0], last):
            row, column = _bucket(offers[index, 2], rows), _bucket(offers[index, 1], columns)
            order[buckets[way, row, column, 1]] = index
            buckets[way, row, column, 1] += 1
    return order, buckets


@numba.njit(cache=True, nogil=True)
def two_best(
    offers: Candidates, order: Order, buckets: Order, way: int, x: float, y: float, reach: float, variance: float
) -> tuple[int, int, float, float]:
    """Return the two candidates with the largest weights that start near (x, y), -1 for none, and their weights.

    Near means within `reach` in x and in y. The weight is the confidence times a Gaussian of the distance. Ties prefer
    the later candidate.
    """
    best, second, highest, next_highest = -1, -1, 0.0, 0.0
    rows, columns = buckets.shape[1:3]
    left, right = _bucket(x - reach, columns), _bucket(x + reach, columns)
    for row in range(_bucket(y - reach, rows), _bucket(y + reach, rows) + 1):
        for index in range(buckets[way, row, left, 0], buckets[way, row, right, 1]):
            one = order[index]
            start_x, start_y = float(offers[one, 1]), float(offers[one, 2])
            if not (x - reach <= start_x <= x + reach and y - reach <= start_y <= y + reach):
                continue
            dx, dy = start_x - x, start_y - y
            weight = offers[one, 0] * math.exp(-0.5 * (dx * dx + dy * dy) / variance)
            if (weight, one) > (highest, best):
                best, second, highest, next_highest = one, best, weight, highest
            elif (weight, one) > (next_highest, second):
                second, next_highest = one, weight
    return best, second, highest, next_highest


@numba.njit(cache=True, nogil=True)
def grow_connection(
    offers: Candidates,
    order: Order,
    buckets: Order,
    way: int,
    x: float,
    y: float,
    scale: float,
    factor: float,
    blend: bool,
) -> Joint:
    """Return the joint to which a connection leads from a joint at (x, y) of `scale`; confidence 0 for none.

    Uses the best candidate that starts within `factor` times half the scale. `blend` averages the best two if they are
    comparable and end at the same position; otherwise it halves the confidence of the best.
    """
    scale = max(scale, LEAST_SCALE)
    best, second, first_weight, second_weight = two_best(
        offers, order, buckets, way, x, y, factor * scale / 2, scale * scale / 4
    )
    if best < 0:
        return MISSING
    x1, y1, scale1 = float(offers[best, 3]), float(offers[best, 4]), float(offers[best, 5])
    if not blend:
        return x1, y1, first_weight, scale1
    alone = x1, y1, first_weight / 2, scale1
    if second < 0 or second_weight < LEAST_SECOND or second_weight < SECOND_SHARE * first_weight:
        return alone
    x2, y2, scale2 = float(offers[second, 3]), float(offers[second, 4]), float(offers[second, 5])
    if (x1 - x2) ** 2 + (y1 - y2) ** 2 > scale1**2 / 4:
        return alone
    total = first_weight + second_weight
    a, b = first_weight / total, second_weight / total
    return a * x1 + b * x2, a * y1 + b * y2, total / 2, a * scale1 + b * scale2


@numba.njit(cache=True, nogil=True)
def _connected(
    pose: Floats,
    directed: Integers,
    offers: Candidates,
    order: Order,
    buckets: Order,
    way: int,
    keypoint_threshold: float,
    keypoint_threshold_rel: float,
    factor: float,
    reverse_match: bool,
    blend: bool,
) -> Joint:
    """Return the joint at the end of a connection if it is confident enough and matches in reverse, else `MISSING`."""
    x, y, confidence, scale = pose[directed[way, 0]]
    new_x, new_y, weight, new_scale = grow_connection(offers, order, buckets, way, x, y, scale, factor, blend)
    value = math.sqrt(weight * confidence)
    if value == 0 or value < keypoint_threshold or value < keypoint_threshold_rel * confidence:
        return MISSING
    if reverse_match:
        back_x, back_y, weight, _ = grow_connection(
            offers, order, buckets, way ^ 1, new_x, new_y, new_scale, factor, blend
        )
        if weight == 0 or abs(back_x - x) + abs(back_y - y) > scale:
            return MISSING
    return new_x, new_y, value, new_scale


@numba.njit(cache=True, nogil=True)
def _expand(pose: Floats, directed: Integers, waiting: Floats, seen: NDArray[np.bool_], joint: int) -> None:
    """Queue each connection from a joint to a missing joint, once."""
    for way in range(len(directed)):
        if directed[way, 0] == joint and pose[directed[way, 1], 2] == 0 and not seen[way]:
            seen[way] = True
            waiting[way] = math.sqrt(pose[joint, 2])


@numba.njit(cache=True, nogil=True)
def grow_pose(
    pose: Floats,
    directed: Integers,
    offers: Candidates,
    order: Order,
    buckets: Order,
    keypoint_threshold: float,
    keypoint_threshold_rel: float,
    factor: float,
    reverse_match: bool,
    blend: bool,
    greedy: bool,
) -> None:
    """Add joints to a pose (K, 4), in place, the most confident first.

    A connection enters the priority queue with the square root of its source's confidence, an upper bound. When popped,
    it is pushed again with the confidence of its target joint; `greedy` accepts the joint at once. Ties prefer the
    first connection.
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
                pose, directed, offers, order, buckets, way, *thresholds, factor, reverse_match, blend
            )
        if ends[way, 2] > 0 and (known or greedy):
            pose[joint] = ends[way]
            _expand(pose, directed, waiting, seen, joint)
        else:
            waiting[way] = ends[way, 2]


@numba.njit(cache=True, nogil=True)
def fill(pose: Floats, directed: Integers) -> None:
    """Place each missing joint at a connected one, in place, preferring the most confident connected joints."""
    while True:
        best, highest = -1, 0.0
        for way in range(len(directed)):
            if pose[directed[way, 1], 2] == 0 and pose[directed[way, 0], 2] > highest:
                best, highest = way, pose[directed[way, 0], 2]
        if best < 0:
            return
        pose[directed[best, 1]] = pose[directed[best, 0]]
        pose[directed[best, 1], 2] = FILLED
