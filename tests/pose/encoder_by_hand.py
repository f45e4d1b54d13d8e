"""The targets of the composite fields, written a second time after openpifpaf/encoder, step by step.

Plain loops in float64 over grids that are padded by ten cells; slow. Shares nothing with `models`.
An annotation is a dictionary: keypoints (K, 3), box (x, y, w, h), crowd, category; all in pixels.
"""

import math

import numpy as np

PAD = 10
EPSILON = np.finfo(np.float64).eps  # of float64; a limb of 5 cells along the grid tells it from 1e-12


def rounded(value):
    """Half to even."""
    below = math.floor(value)
    rest = value - below
    if rest == 0.5:
        return below if below % 2 == 0 else below + 1
    return below if rest < 0.5 else below + 1


def shape_of(size, stride):
    return (size[0] - 1) // stride + 1, (size[1] - 1) // stride + 1


def keypoint_sets(annotations, stride, *, hidden=32.0, invisible=False, collision=False):
    """Return the joints, in cells, of all annotations but crowds, after the suppressions in pixels."""
    people = [one for one in annotations if not one["crowd"]]
    sets = [np.array(one["keypoints"], dtype=np.float64) for one in people]
    if invisible:
        for joints in sets:
            joints[joints[:, 2] < 2, 2] = 0
    elif hidden is not None:
        for entries in zip(*sets, strict=True):
            suppress_hidden(entries, hidden)
    if collision:
        for i in range(len(sets)):
            for j in range(i + 1, len(sets)):
                sides = [*people[i]["box"][2:], *people[j]["box"][2:]]
                suppress_collision(sets[i], sets[j], max(16.0, 0.2 * float(max(sides))))
    return [np.column_stack([joints[:, :2] / stride, joints[:, 2]]) for joints in sets]


def suppress_hidden(entries, threshold):
    """One keypoint type of all persons, sorted by visibility, highest first."""
    entries = sorted(entries, key=lambda entry: -entry[2])
    for entry in entries:
        for other in entries:
            if entry[2] == 1 and other[2] > 1 and is_near(entry, other, threshold):
                entry[2] = 0


def suppress_collision(joints, others, threshold):
    for a, b in zip(joints, others, strict=True):
        if a[2] and b[2] and is_near(a, b, threshold):
            a[2] = b[2] = 0


def is_near(a, b, threshold):
    return abs(a[0] - b[0]) <= threshold and abs(a[1] - b[1]) <= threshold


def box_area(points):
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return (max(xs) - min(xs)) * (max(ys) - min(ys))


def instance_scale(joints, pose):
    """Scale of a person (annrescaler.py); joints in cells."""
    chosen = [index for index, joint in enumerate(joints) if joint[2] > 0]
    if len(chosen) < 3:
        return math.nan
    cosine = sine = math.sqrt(0.5)
    turned = [(cosine * x - sine * y, sine * x + cosine * y) for x, y in pose]
    ratios = []
    for variant in ([tuple(point) for point in pose], turned):
        part = box_area([variant[index] for index in chosen])
        if part > 0.1:
            ratios.append(box_area(variant) / part)
    if not ratios:
        return math.nan
    factor = min(math.sqrt(min(ratios)), 5.0)
    scale = math.sqrt(box_area([tuple(joints[index][:2]) for index in chosen])) * factor
    return math.nan if scale < 0.1 else scale


def clear(mask, box, stride, margin):
    """Clear the rectangle of a box in the ignore mask (annrescaler.py)."""
    rows, columns = mask.shape
    x1, y1, w, h = (float(value) / stride for value in box)
    x2, y2 = x1 + w, y1 + h
    left = min(max(math.trunc(x1 - margin), 0), columns - 1)
    right = min(max(math.trunc(math.ceil(x2 + margin)) + 1, left + 1), columns)
    top = min(max(math.trunc(y1 - margin), 0), rows - 1)
    bottom = min(max(math.trunc(math.ceil(y2 + margin)) + 1, top + 1), rows)
    mask[top:bottom, left:right] = False


def person_mask(annotations, size, stride, margin):
    mask = np.ones(shape_of(size, stride), dtype=bool)
    for one in annotations:
        if one["crowd"] or not any(joint[2] > 0 for joint in one["keypoints"]):
            clear(mask, one["box"], stride, margin)
    return mask


def empty_maps(masks, components):
    """A padded target (fields, components, rows, columns) and its best distances, for usable-cell masks a field."""
    fields, (rows, columns) = len(masks), masks[0].shape
    target = np.full((fields, components, rows + 2 * PAD, columns + 2 * PAD), np.nan)
    best = np.full((fields, rows + 2 * PAD, columns + 2 * PAD), np.inf)
    target[:, 0] = 0
    for field, mask in enumerate(masks):
        for row in range(rows):
            for column in range(columns):
                if not mask[row, column]:
                    target[field, 0, row + PAD, column + PAD] = np.nan
                    best[field, row + PAD, column + PAD] = 1.0
    return target, best


def finish(target, valid_area, stride):
    """Cut the padding, then 3.6."""
    cut = target[:, :, PAD:-PAD, PAD:-PAD].copy()
    x, y, w, h = (float(value) / stride for value in valid_area)
    for row in range(cut.shape[2]):
        for column in range(cut.shape[3]):
            outside = column >= math.ceil(x + w) + 1 or row >= math.ceil(y + h) + 1
            outside |= (x >= 1 and column < math.trunc(x)) or (y >= 1 and row < math.trunc(y))
            if outside:
                cut[:, :, row, column] = np.nan
                cut[:, 0, row, column] = 0
    return cut


def cif(annotations, size, valid_area, stride, sigmas, pose, *, side=4, bmin=0.1, **suppressions):
    """The targets of cif.py."""
    offset = (side - 1) / 2
    mask = person_mask(annotations, size, stride, offset)
    target, best = empty_maps([mask] * len(sigmas), 5)
    for joints in keypoint_sets(annotations, stride, **suppressions):
        scale = instance_scale(joints, pose)
        for field, (x, y, v) in enumerate(joints):
            if v <= 0:
                continue
            left, top = rounded(x - offset) + PAD, rounded(y - offset) + PAD
            if left < 0 or top < 0 or left + side > target.shape[3] or top + side > target.shape[2]:
                continue
            for row in range(top, top + side):
                for column in range(left, left + side):
                    rx, ry = x - (column - PAD), y - (row - PAD)
                    if math.sqrt(rx * rx + ry * ry) < best[field, row, column]:
                        best[field, row, column] = math.sqrt(rx * rx + ry * ry)
                        target[field, :, row, column] = 1, rx, ry, bmin / stride, scale * sigmas[field]
    return finish(target, valid_area, stride)


def caf(annotations, size, valid_area, stride, sigmas, pose, pairs, *, sparse=None, radius=2.0, only_in_view=False,
        min_size=3, aspect=0.0, fixed=False, bmin=0.1, **suppressions):  # fmt: skip
    """The targets of caf.py; `sparse` are the pairs of the sparse skeleton, if any."""
    mask = person_mask(annotations, size, stride, (min_size - 1) / 2)
    rows, columns = mask.shape
    target, best = empty_maps([mask] * len(pairs), 9)
    for joints in keypoint_sets(annotations, stride, **suppressions):
        scale = instance_scale(joints, pose)
        for field, (a, b) in enumerate(pairs):
            if joints[a][2] <= 0 or joints[b][2] <= 0:
                continue
            d = math.dist(joints[a][:2], joints[b][:2])
            if sparse is not None and shortest(joints, sparse, a) < d / radius > shortest(joints, sparse, b):
                continue
            out = [x < 0 or y < 0 or x > columns - 1 or y > rows - 1 for x, y, _ in (joints[a], joints[b])]
            if all(out) or (only_in_view and any(out)):
                continue
            rest = bmin / stride, bmin / stride, scale * sigmas[a], scale * sigmas[b]
            connection(target[field], best[field], joints[a][:2], joints[b][:2], rest, min_size, aspect, fixed)
    return finish(target, valid_area, stride)


def connection(target, best, p1, p2, rest, min_size, aspect, fixed):
    """Draw one connection on the padded grid of one field."""
    (x1, y1), (x2, y2) = p1, p2
    dx, dy = x2 - x1, y2 - y1
    d = math.sqrt(dx * dx + dy * dy)
    q = max(min_size, math.trunc(d * aspect))
    margin = min(max((q / 2) / (d + EPSILON), 0.25), 0.4)
    fractions = [0.5] if fixed else np.linspace(margin, 1 - margin, max(2, math.ceil(d)))
    handled = set()
    for t in fractions:
        for ey, ex in np.ndindex(q, q):
            column, row = rounded(x1 + t * dx + (ex - (q - 1) / 2)), rounded(y1 + t * dy + (ey - (q - 1) / 2))
            on_grid = -PAD <= column < target.shape[2] - PAD and -PAD <= row < target.shape[1] - PAD
            if not on_grid or (row, column) in handled:
                continue
            handled.add((row, column))
            distance = abs(dy * (column - x1) - dx * (row - y1)) / (d + 0.01)
            if distance > best[row + PAD, column + PAD]:
                continue
            best[row + PAD, column + PAD] = distance
            vectors = x1 - column, y1 - row, x2 - column, y2 - row
            target[:, row + PAD, column + PAD] = 1, *vectors, *rest


def shortest(joints, pairs, joint):
    lengths = [math.inf]
    for a, b in pairs:
        if joint in (a, b) and joints[a][2] > 0 and joints[b][2] > 0:
            lengths.append(math.hypot(joints[a][0] - joints[b][0], joints[a][1] - joints[b][1]))
    return min(lengths)


def cifdet(annotations, size, valid_area, stride, categories, *, side=5, bmin=1.0):
    """The targets of cifdet.py."""
    offset = (side - 1) / 2
    masks = [np.ones(shape_of(size, stride), dtype=bool) for _ in range(categories)]
    for one in annotations:
        if one["crowd"]:
            clear(masks[one["category"]], one["box"], stride, offset)
    target, best = empty_maps(masks, 7)
    for one in annotations:
        if one["crowd"]:
            continue
        x, y, w, h = (float(value) / stride for value in one["box"])
        x, y = x + w / 2, y + h / 2
        left, top = rounded(x - offset) + PAD, rounded(y - offset) + PAD
        if left < 0 or top < 0 or left + side > target.shape[3] or top + side > target.shape[2]:
            continue
        bmin_of_box = max(0.1 * 0.5 * min(w, h), bmin / stride)
        for row in range(top, top + side):
            for column in range(left, left + side):
                rx, ry = x - (column - PAD), y - (row - PAD)
                distance = math.sqrt(rx * rx + ry * ry)
                if distance < best[one["category"], row, column]:
                    best[one["category"], row, column] = distance
                    confidence = math.nan if distance > 2.0 else 1.0
                    target[one["category"], :, row, column] = confidence, rx, ry, w, h, bmin_of_box, bmin_of_box
    return finish(target, valid_area, stride)
