"""The pose decoder, written a second time after openpifpaf/csrc/src/cifcaf.cpp, step by step.

Float64, whole maps and lists of dictionaries or tuples, no index and no buckets; slow. Shares nothing with `models`.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np

EMPTY = (0.0, 0.0, 0.0, 0.0)  # v, x, y, scale


def fields_of(target, kind, unknown_scale=0.0):
    """A target of a `cif`, `caf` or `cifdet` encoder as a decoder's fields: places, and 0.9 on foreground alone."""
    vectors = 2 if kind == "caf" else 1
    last = target[:, 3:5] if kind == "cifdet" else target[:, 1 + 3 * vectors :]  # sizes, or scales
    count, _, rows, columns = target.shape
    fields = np.zeros((count, 2 + 2 * vectors + last.shape[1], rows, columns), dtype=np.float32)
    fields[:, 1] = np.where(target[:, 0] == 1, 0.9, 0)
    for vector in range(vectors):
        fields[:, 2 + 2 * vector] = np.nan_to_num(target[:, 1 + 2 * vector]) + np.arange(columns)
        fields[:, 3 + 2 * vector] = np.nan_to_num(target[:, 2 + 2 * vector]) + np.arange(rows)[:, None]
    fields[:, 2 + 2 * vectors :] = np.nan_to_num(last, nan=unknown_scale)
    return fields


def high_resolution(field, stride, threshold):
    """The map (height, width) of one field (5, rows, columns)."""
    rows, columns = field.shape[1:]
    height, width = (rows - 1) * stride + 1, (columns - 1) * stride + 1
    total = np.zeros((height, width))
    for row in range(rows):
        for column in range(columns):
            v, x, y, scale = (float(one) for one in field[1:, row, column])
            if v >= threshold and scale >= 0:
                sigma = max(1.0, 0.5 * scale * stride)
                total += v / 16 * bump(x * stride, y * stride, sigma, height, width)
                total = np.minimum(total, 1)
    return total


def bump(x, y, sigma, height, width):
    u, w = np.arange(width)[None], np.arange(height)[:, None]
    squared = (u - x) ** 2 + (w - y) ** 2
    z = -0.5 * squared / sigma**2
    weight = np.where((abs(u - x) < 0.5) & (abs(w - y) < 0.5), 1.0, np.where(z >= -2, (1 + z / 8) ** 8, 0))
    for positions, centre, count in ((u, x, width), (w, y, height)):
        start = min(max(math.trunc(centre - sigma), 0), count - 1)
        stop = min(max(math.trunc(centre + sigma + 1), start + 1), count)
        weight = weight * ((positions >= start) & (positions < stop))
    return weight * (squared <= sigma**2)


def read(total, x, y, outside):
    height, width = total.shape
    if not (-0.49 <= x <= width - 0.51 and -0.49 <= y <= height - 0.51):
        return outside
    return total[math.trunc(y + 0.5), math.trunc(x + 0.5)]


def grow(candidates, x, y, t, k, blend):
    """Grow a connection: (v, x, y, scale). Candidates are (c, x1, y1, x2, y2, s1, s2)."""
    t = max(t, 0.5)
    near = [one for one in candidates if abs(one[1] - x) <= k * t / 2 and abs(one[2] - y) <= k * t / 2]
    weighed = []
    for index, one in enumerate(near):
        squared = (one[1] - x) ** 2 + (one[2] - y) ** 2
        weighed.append((one[0] * math.exp(-0.5 * squared / (t * t / 4)), index, one))
    weighed.sort(reverse=True, key=lambda entry: entry[:2])
    if not weighed:
        return EMPTY
    w1, _, best = weighed[0]
    if not blend:
        return w1, best[3], best[4], best[6]
    alone = w1 / 2, best[3], best[4], best[6]
    if len(weighed) == 1:
        return alone
    w2, _, second = weighed[1]
    if w2 < 0.01 or w2 < 0.5 * w1 or math.dist(best[3:5], second[3:5]) > best[6] / 2:
        return alone
    x, y, scale = ((w1 * best[i] + w2 * second[i]) / (w1 + w2) for i in (3, 4, 6))
    return (w1 + w2) / 2, x, y, max(scale, 0)


class Occupancy:
    def __init__(self, count, height, width):
        self.cells = np.zeros((count, height // 2 + 1, width // 2 + 1), dtype=bool)

    def mark(self, field, x, y, scale):
        radius, slices = max(2.0, scale / 2), []
        for centre, count in ((y / 2, self.cells.shape[1]), (x / 2, self.cells.shape[2])):
            start = min(max(math.trunc(centre - radius), 0), count - 1)
            slices.append(slice(start, min(max(math.trunc(centre + radius), start + 1), count)))
        self.cells[(field, *slices)] = True

    def occupied(self, field, x, y):
        row, column = (min(max(math.trunc(p / 2), 0), n - 1) for p, n in zip((y, x), self.cells.shape[1:], strict=True))
        return self.cells[field, row, column]


@dataclass
class Decoder:
    """Decode fields to a list of (score, {joint: (v, x, y, scale)})."""

    stride: int
    connections: tuple
    score_weights: tuple
    force_complete: bool = False
    greedy: bool = False
    connection_method: str = "blend"
    reverse_match: bool = True
    caf_rescore: bool = True
    cif_rescore: bool = True
    seed_nms: bool = False
    weights: tuple | None = None
    maps: list | None = None  # of `high_resolution` with 0.3, to save time

    def __call__(self, cif, caf):
        self.count = len(cif)
        self.maps = self.maps or [high_resolution(field, self.stride, 0.3) for field in cif]
        self.occupancy = Occupancy(self.count, *self.maps[0].shape)
        poses, lists = [], self.lists(caf, 0.3)
        for v, field, x, y, scale in self.seeds(cif):
            if not self.occupancy.occupied(field, x, y):
                pose = {field: (v, x, y, scale)}
                self.extend(pose, lists, 1.0, self.reverse_match)
                for joint, (_, *where) in pose.items():
                    self.occupancy.mark(joint, *where)
                poses.append(pose)
        if self.force_complete:
            lists = self.lists(caf, 0.001)
            for pose in poses:
                self.extend(pose, lists, 4.0, False)
                self.flood(pose)
        poses = self.suppress(poses)
        total = sum(self.score_weights)
        scored = []
        for pose in poses:
            values = sorted((joint[0] for joint in pose.values()), reverse=True)
            scored.append((sum(w * v for w, v in zip(self.score_weights, values, strict=False)) / total, pose))
        return sorted(scored, key=lambda entry: -entry[0])

    def seeds(self, cif):
        found = []
        for f, j, i in np.ndindex(len(cif), *cif.shape[2:]):
            c, x, y, scale = (float(one) for one in cif[f, 1:, j, i])
            if self.seed_nms and c < cif[f, 1, max(j - 1, 0) : j + 2, max(i - 1, 0) : i + 2].max():
                continue
            x, y = x * self.stride, y * self.stride
            v = 0.9 * read(self.maps[f], x, y, -1) + 0.1 * c if self.cif_rescore else c
            if c >= 0.2 and v >= 0.2:
                found.append((v, f, x, y, scale * self.stride))
        return sorted(found, key=lambda seed: -seed[0])

    def lists(self, caf, threshold):
        """The candidates: for each connection, the forward and the backward list."""
        found = []
        for e, (a, b) in enumerate(self.connections):
            forward, backward = [], []
            for j, i in np.ndindex(*caf.shape[2:]):
                c, *rest = (float(one) for one in caf[e, 1:, j, i])
                x1, y1, x2, y2, s1, s2 = (one * self.stride for one in rest)
                c *= self.weights[e] if self.weights else 1
                if c < threshold:
                    continue
                ways = (forward, b, (x1, y1, x2, y2, s1, s2)), (backward, a, (x2, y2, x1, y1, s2, s1))
                for side, end, numbers in ways:
                    total = self.maps[end]
                    scored = c * (0.1 + 0.9 * read(total, *numbers[2:4], 0)) if self.caf_rescore else c
                    if scored > threshold:
                        side.append((scored, *numbers))
            found.append((forward, backward))
        return found

    def reach(self, pose, lists, k, reverse_match, start, way):
        """The joint at the other end of a connection, or None."""
        least, share = (0, 0) if self.force_complete else (0.15, 0.5)
        blend = self.connection_method == "blend"
        v, x, y, scale = pose[start]
        g, *new = grow(lists[way // 2][way % 2], x, y, scale, k, blend)
        reached = math.sqrt(g * v)
        if g == 0 or reached < least or reached < share * v:
            return None
        if reverse_match:
            back = grow(lists[way // 2][1 - way % 2], *new, k, blend)
            if back[0] == 0 or abs(back[1] - x) + abs(back[2] - y) > scale:
                return None
        return reached, *new

    def extend(self, pose, lists, k, reverse_match):
        queue, queued = [], set()
        ways = [way for a, b in self.connections for way in ((a, b), (b, a))]

        def expand(joint):
            for way, (start, end) in enumerate(ways):
                if start == joint and end not in pose and (start, end) not in queued:
                    queued.add((start, end))
                    heapq.heappush(queue, (-math.sqrt(pose[joint][0]), way, start, end, None))

        for joint in list(pose):
            expand(joint)
        while queue:
            _, way, start, end, computed = heapq.heappop(queue)
            if end in pose:
                continue
            accepted = computed is not None or self.greedy
            if computed is None:
                computed = self.reach(pose, lists, k, reverse_match, start, way)
            if computed is not None and accepted:
                pose[end] = computed
                expand(end)
            elif computed is not None:
                heapq.heappush(queue, (-computed[0], way, start, end, computed))

    def flood(self, pose):
        """Break ties: the first connection, forward before backward."""
        edges = [edge for a, b in self.connections for edge in ((a, b), (b, a))]
        while True:
            open_edges = [(a, b) for a, b in edges if a in pose and b not in pose]
            if not open_edges:
                return
            start, end = max(open_edges, key=lambda edge: pose[edge[0]][0])
            pose[end] = (1e-5, *pose[start][1:])

    def suppress(self, poses):
        """Non-maximum suppression of keypoints."""
        least, least_mean = (0, 0) if self.force_complete else (0.15, 0.15)

        def mean(pose):
            return sum(joint[0] for joint in pose.values()) / self.count

        self.occupancy.cells[:] = False
        kept = []
        for pose in sorted(poses, key=mean, reverse=True):
            left = {}
            for joint in sorted(pose):
                v, *where = pose[joint]
                if self.occupancy.occupied(joint, *where[:2]):
                    v *= 1e-5
                else:
                    self.occupancy.mark(joint, *where)
                if v > least:
                    left[joint] = (v, *where)
            if mean(left) >= least_mean:
                kept.append(left)
        return sorted(kept, key=mean, reverse=True)
