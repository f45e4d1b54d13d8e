"""Kernel distance between generated images and their targets, as two sets rather than pairwise.

It is the unbiased estimate of the squared maximum mean discrepancy of features under the kernel (x . y / d + 1)^3 in d
dimensions (Binkowski et al. 2018, sections 2 and 4; Gretton et al. 2012, lemma 6). With Inception's features it is the
KID. Unlike the Frechet distance, its expectation does not depend on the number of images, so it is suited to small
sets.
"""

import numpy as np
import torch

from figura.base.errors import UserError
from figura.base.sampling import evenly_spaced
from figura.base.seeding import generator
from figura.dump import Dump
from figura.report.interfaces import Bootstrap, Estimate, Values
from models.images.features import Extract, Extractor, SetScore, batches_of, check_widths

MOST = 20_000  # images whose features are in memory at a time


def cubic_kernel(a: Values, b: Values) -> Values:
    """(n, d), (m, d) -> (n, m)."""
    return np.asarray((a @ b.T / a.shape[1] + 1) ** 3)


def squared_discrepancy(a: Values, b: Values) -> float:
    """Return the unbiased estimate from (n, d) and (m, d), n and m at least 2; it may be below 0.

    It is the mean of k over pairs of different rows of a, plus the same of b, minus twice the mean over pairs of a row
    of a and a row of b.
    """
    within = 0.0
    for rows in (a, b):
        kernel = cubic_kernel(rows, rows)
        within += (kernel.sum() - np.trace(kernel)) / (len(rows) * (len(rows) - 1))
    return float(within - 2 * cubic_kernel(a, b).mean())


class KernelDistance(SetScore):
    """Squared maximum mean discrepancy between features of a mode's images and of their targets.

    `image` names the images to score. For a baseline, `image` may name an input, or `average` a training mean, used for
    every image. For `extractor`, `weights` and `seed` see `features.py`.

    The value is the mean over `subsets` random subsets (drawn from `seed`) of `subset_size` images and as many targets;
    the paper uses 100 subsets of 1000. If there are no more images and targets than one subset, it is computed once,
    from all. A file shared by several rows is used once. At most 20 000 images and targets are used, evenly spaced.

    An image made from its target is closer to it than two independent images would be. The value of very good images
    is therefore slightly below 0, less so for larger subsets.

    Metrics: `value`, often published times 1000; `spread`, the standard deviation over the subsets if there are
    several; `images` and `targets`, their numbers; `subset_size`, the size used.
    """

    def __init__(
        self,
        mode: str,
        target: str,
        extractor: Extractor,
        image: str | None = None,
        average: str | None = None,
        weights: str | None = None,
        seed: int = 0,
        subsets: int = 100,
        subset_size: int = 1000,
    ) -> None:
        super().__init__(mode, target, extractor, image, average, weights, seed)
        if subsets < 1:
            raise ValueError(f"subsets {subsets}: at least 1 is needed")
        if subset_size < 2:
            raise ValueError(f"subset_size {subset_size}: at least 2 are needed")
        self.subsets, self.subset_size = subsets, subset_size

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        extract = self.extract()
        target = _features(rows, self.target, extract)
        if self.image is None:
            with torch.no_grad():
                image = np.repeat(self.of_average(rows, extract), len(target), axis=0)
        else:
            image = _features(rows, self.image, extract)
        check_widths(rows, image, target)
        if min(len(image), len(target)) < 2:
            raise UserError(
                f"{dump.folder}: mode {self.mode!r}: a kernel distance needs 2 different images and 2 different "
                f"targets, there are {len(image)} and {len(target)}"
            )
        size = min(self.subset_size, len(image), len(target))
        several = size < max(len(image), len(target))
        values = [self._subset(image, target, size, n) for n in range(self.subsets)] if several else []
        metrics = {"value": float(np.mean(values)), "spread": float(np.std(values))} if several else {}
        metrics = metrics or {"value": squared_discrepancy(image, target)}
        return {**metrics, "images": len(image), "targets": len(target), "subset_size": size}

    def _subset(self, image: Values, target: Values, size: int, number: int) -> float:
        random = generator(self.seed, "kernel distance", number)
        a, b = (vectors[random.choice(len(vectors), size, replace=False)] for vectors in (image, target))
        return squared_discrepancy(a, b)


def _features(rows: Dump, name: str, extract: Extract) -> Values:
    """Return the features (n, d) of the distinct files of this name."""
    column = f"file.{name}"
    files = rows.table[column].drop_duplicates().index if column in rows.table else range(len(rows))
    places = [int(files[place]) for place in evenly_spaced(len(files), MOST)]
    return np.concatenate(list(batches_of(rows, name, extract, places)))
