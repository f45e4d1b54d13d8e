"""Kernel distance between generated images and their targets: whether they are alike as a set, not pair by pair.

The squared maximum mean discrepancy of features under the kernel (x . y / d + 1)^3, d their dimensions, in its unbiased
estimate (Binkowski et al. 2018, sections 2 and 4; Gretton et al. 2012, lemma 6); with Inception's features it is the KID.
Unlike a Frechet distance its expectation does not depend on how many images there are, so that it tells something from few.
"""

import numpy as np
import torch

from models.base.errors import UserError
from models.base.sampling import evenly_spaced
from models.base.seeding import generator
from models.dump import Dump
from models.images.report.features import Extract, Extractor, SetScore, batches_of
from models.report.interfaces import Bootstrap, Estimate, Values

MOST = 20_000  # images whose features are held at a time


def cubic_kernel(a: Values, b: Values) -> Values:
    """(n, d), (m, d) -> (n, m)."""
    return np.asarray((a @ b.T / a.shape[1] + 1) ** 3)


def squared_discrepancy(a: Values, b: Values) -> float:
    """The unbiased estimate from (n, d) and (m, d), n and m at least 2; it may be below 0.

    The mean of k over pairs of different rows of a, plus that of b, less twice the mean over pairs of a row of each.
    """
    within = 0.0
    for rows in (a, b):
        kernel = cubic_kernel(rows, rows)
        within += (kernel.sum() - np.trace(kernel)) / (len(rows) * (len(rows) - 1))
    return float(within - 2 * cubic_kernel(a, b).mean())


class KernelDistance(SetScore):
    """Squared maximum mean discrepancy between features of a mode's images and of their targets.

    `image` names what is judged; for a baseline, `average` names a training mean to judge instead, which then stands for
    every image, or `image` an input. `extractor`, `weights` and `seed`: see `features.py`.

    It is the mean over `subsets` random ones (drawn from `seed`) of `subset_size` images and as many targets, as published
    100 of 1000. Where there are no more images and targets than that, it is computed once, of all. A file that several
    rows share counts once; of more than 20 000 images or targets, so many count, evenly spread.

    An image that was made from its target is nearer to it than two independent images would be: the value of very good
    images then lies a little below 0, by less the larger the subsets are.

    Figures: `value`, often published times 1000; `spread`, the standard deviation over the subsets, where there are
    several; `images` and `targets`, how many; `subset_size`, that was used.
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
        if min(len(image), len(target)) < 2:
            raise UserError(
                f"{dump.folder}: mode {self.mode!r}: a kernel distance needs 2 different images and 2 different targets, "
                f"there are {len(image)} and {len(target)}"
            )
        size = min(self.subset_size, len(image), len(target))
        several = size < max(len(image), len(target))
        values = [self._subset(image, target, size, n) for n in range(self.subsets)] if several else []
        figures = {"value": float(np.mean(values)), "spread": float(np.std(values))} if several else {}
        figures = figures or {"value": squared_discrepancy(image, target)}
        return {**figures, "images": len(image), "targets": len(target), "subset_size": size}

    def _subset(self, image: Values, target: Values, size: int, number: int) -> float:
        random = generator(self.seed, "kernel distance", number)
        a, b = (vectors[random.choice(len(vectors), size, replace=False)] for vectors in (image, target))
        return squared_discrepancy(a, b)


def _features(rows: Dump, name: str, extract: Extract) -> Values:
    """The features (n, d) of the different files of this name."""
    column = f"file.{name}"
    files = rows.table[column].drop_duplicates().index if column in rows.table else range(len(rows))
    places = [int(files[place]) for place in evenly_spaced(len(files), MOST)]
    return np.concatenate(list(batches_of(rows, name, extract, places)))
