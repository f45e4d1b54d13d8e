"""COCO's matching of results with annotations, vectorised over all images: overlaps and assignment.

Equal to pycocotools' COCOeval (`computeOks`, `computeIoU`, `evaluateImg`), without its Python loops: a cell, one
category in one image, is a row of arrays that hold all cells with the same number of annotations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_AT_ONCE = 1 << 20  # maximum size, cells x results x annotations (x keypoints), of an array


@dataclass(frozen=True, eq=False)
class Cells:
    """n cells with G annotations and at most D results each, sorted by descending number of results.

    Attributes:
        truth: (n, G), indices of annotations, ascending.
        results: (n, D), indices into the sorted results, by descending score; padded with -1.
        overlaps: (n, D, G), OKS or IoU; unspecified for padding.
        crowd: (n, G), annotations that several results may match.
    """

    truth: Integers
    results: Integers
    overlaps: Floats
    crowd: Flags


def similarities(people: Floats, truth: Floats, boxes: Floats, areas: Floats, sigmas: Floats) -> Floats:
    """Return the OKS (n, D, G) of people (n, D, K, 2) with annotated ones (n, G, K, 3), like `COCOeval.computeOks`.

    Without labelled keypoints, distances are to a box (n, G, 4) enlarged threefold. `areas` are (n, G).
    """
    labelled = truth[..., 2] > 0
    count = labelled.sum(axis=-1)
    away = people[:, :, None] - truth[:, None, ..., :2]
    rows, columns = np.nonzero(count == 0)
    corner, extent = boxes[rows, columns, :2], boxes[rows, columns, 2:]
    near, far = (corner - extent)[:, None, None], (corner + extent * 2)[:, None, None]
    away[rows, :, columns] = np.maximum(0, near - people[rows]) + np.maximum(0, people[rows] - far)
    squares = away[..., 0] ** 2 + away[..., 1] ** 2
    exponents = squares / (sigmas * 2) ** 2 / (areas + np.spacing(1))[:, None, :, None] / 2
    each = np.exp(-exponents)
    found = np.empty(each.shape[:-1])
    for number in np.unique(count):  # equal numbers of summands, to round like COCOeval
        rows, columns = np.nonzero(count == number)
        chosen = each[rows, :, columns]
        if number:
            wanted = np.broadcast_to(labelled[rows, columns][:, None], chosen.shape)
            chosen = chosen[wanted].reshape(*chosen.shape[:2], number)
        found[rows, :, columns] = chosen.sum(axis=-1) / chosen.shape[-1]
    return found


def box_overlaps(results: Floats, truth: Floats, crowd: Flags) -> Floats:
    """Return IoU (n, D, G) of boxes (n, D, 4), x, y, width, height, with (n, G, 4); for crowds, the fraction inside."""
    ours, theirs = results[:, :, None], truth[:, None]
    low = np.maximum(ours[..., :2], theirs[..., :2])
    sides = np.minimum(ours[..., 2:] + ours[..., :2], theirs[..., 2:] + theirs[..., :2]) - low
    common = sides[..., 0] * sides[..., 1]
    area = ours[..., 2] * ours[..., 3]
    union = np.where(crowd[:, None], area, area + theirs[..., 2] * theirs[..., 3] - common)
    overlaps = np.zeros(common.shape)
    return np.divide(common, union, out=overlaps, where=(sides > 0).all(axis=-1))


def paired(truth: Integers, results: Integers, size: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield indices of annotations (n, G) and of results (n, D), padded with -1, of the cells that have both.

    `truth` and `results` are the cell indices of the records, ascending for results. `size` is the number of values per
    pair of a result and an annotation.
    """
    order = np.argsort(truth, kind="stable")
    cells, starts, annotations = np.unique(truth[order], return_index=True, return_counts=True)
    first, end = (np.searchsorted(results, cells, side=side) for side in ("left", "right"))
    many = end - first
    by_size = np.lexsort((-many, annotations))
    by_size = by_size[many[by_size] > 0]
    for number in np.unique(annotations[by_size]).tolist():
        left = by_size[annotations[by_size] == number]
        while len(left):
            most = int(many[left[0]])
            chosen = left[: max(1, _AT_ONCE // (most * number * size))]
            left = left[len(chosen) :]
            places = first[chosen, None] + np.arange(most)
            yield order[starts[chosen, None] + np.arange(number)], np.where(places < end[chosen, None], places, -1)


def matched(cells: Cells, ignored: Flags, thresholds: Floats) -> Integers:
    """Return the annotation, 0 to G - 1, matched with each result at each threshold, or -1: (T, n, D).

    By descending score, each result gets the free annotation with the highest overlap of at least the threshold, the
    last among equals, and an `ignored` one (n, G) only if there is no other.
    """
    cell_count, most, annotations = cells.overlaps.shape
    matches = np.full((len(thresholds), cell_count, most), -1, dtype=np.int64)
    free = np.ones((len(thresholds), cell_count, annotations), dtype=bool)
    bounds = np.minimum(thresholds, 1 - 1e-10)[:, None, None]
    active = (cells.results >= 0).sum(axis=0)
    for rank, count in enumerate(active.tolist()):
        overlaps = cells.overlaps[:count, rank]
        possible = (overlaps >= bounds) & (free[:, :count] | cells.crowd[:count])
        if not possible.any():
            continue
        wanted = possible & ~ignored[:count]
        chosen = np.where(wanted.any(axis=-1, keepdims=True), wanted, possible)
        best = annotations - 1 - np.where(chosen, overlaps, -1.0)[..., ::-1].argmax(axis=-1)
        at, cell = np.nonzero(chosen.any(axis=-1))
        matches[at, cell, rank] = best[at, cell]
        free[at, cell, best[at, cell]] = False
    return matches
