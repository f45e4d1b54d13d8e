"""Frechet distance between generated images and their targets: whether they are alike as a set, not pair by pair.

Features of each set are summed up by a Gaussian; the distance between two is

    |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2))

(Dowson and Landau 1982, with Inception's features the FID of Heusel et al. 2017). It is biased upwards by few images, so
that distances compare only for equal numbers of them, and a bootstrap, whose resamples hold fewer different images than
the set, would move the whole interval upwards: none is given.
"""

import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError
from models.dump import Dump
from models.images.report.features import Extract, SetScore, batches_of
from models.report.interfaces import Bootstrap, Estimate, Values


class Moments:
    """Mean and covariance of vectors that come in batches; memory does not grow with their number. Float64.

    Batches are merged by the pairwise update of Chan, Golub and LeVeque (1983), which subtracts no large numbers.
    """

    def __init__(self, dimensions: int) -> None:
        self.count = 0
        self.mean: Values = np.zeros(dimensions)
        self._scatter: Values = np.zeros((dimensions, dimensions))

    def add(self, vectors: NDArray[np.floating]) -> None:
        """Take in a batch (n, dimensions), n >= 1."""
        batch = np.asarray(vectors, dtype=np.float64)
        centre = batch.mean(axis=0)
        away, total = centre - self.mean, self.count + len(batch)
        self._scatter += (batch - centre).T @ (batch - centre)
        self._scatter += np.outer(away, away) * (self.count * len(batch) / total)
        self.mean = self.mean + away * (len(batch) / total)
        self.count = total

    def covariance(self) -> Values:
        """The unbiased covariance (dimensions, dimensions); needs two vectors."""
        return self._scatter / (self.count - 1)


def frechet_distance(mean: Values, covariance: Values, other_mean: Values, other_covariance: Values) -> float:
    """Squared Frechet distance between two Gaussians of d dimensions: (d,), (d, d), (d,), (d, d) -> at least 0.

    (S1 S2)^(1/2) has the trace of (S1^(1/2) S2 S1^(1/2))^(1/2), a root of a symmetric matrix, real whatever the rank.
    The eigenvalues of that root are the singular values of S1^(1/2) S2^(1/2); so computed, rounding errors stay as they
    are, where a root of rounded eigenvalues near 0 would give them half the digits.
    """
    overlap = np.linalg.svd(_root(covariance) @ _root(other_covariance), compute_uv=False).sum()
    apart = np.square(mean - other_mean).sum()
    return max(0.0, float(apart + np.trace(covariance) + np.trace(other_covariance) - 2 * overlap))


def _root(covariance: Values) -> Values:
    """The symmetric root (d, d); eigenvalues that cannot be told from 0 in float64 are 0."""
    values, vectors = np.linalg.eigh(covariance)
    values[values < len(values) * np.finfo(np.float64).eps * values[-1]] = 0
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)


class FrechetDistance(SetScore):
    """Frechet distance between features of a mode's images and of their targets.

    `image` names what is judged; for a baseline, `average` names a training mean to judge instead, which then stands for
    every image (its covariance is 0), or `image` an input. `extractor`, `weights` and `seed`: see `features.py`.

    Figures: `value`; `images`, how many; `dimensions`; `full_rank`, 0 where the different images, or the different
    targets, are no more than the dimensions: the covariances are then singular and the value says little.
    """

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        if len(rows) < 2:
            raise UserError(
                f"{dump.folder}: mode {self.mode!r}: a Frechet distance needs 2 images, there is {len(rows)}"
            )
        extract = self.extract()
        target = _moments(rows, self.target, extract)
        different = rows.table[f"file.{self.target}"].nunique()
        if self.image is None:
            judged = Moments(len(target.mean))
            judged.add(np.repeat(self.of_average(rows, extract), 2, axis=0))  # two of the same are as good as all
        else:
            judged = _moments(rows, self.image, extract)
            different = min(different, rows.table[f"file.{self.image}"].nunique())
        return {
            "value": frechet_distance(judged.mean, judged.covariance(), target.mean, target.covariance()),
            "images": len(rows),
            "dimensions": len(target.mean),
            "full_rank": int(different > len(target.mean)),
        }


def _moments(rows: Dump, name: str, extract: Extract) -> Moments:
    """Moments of the features of one file of every row."""
    batches = batches_of(rows, name, extract)
    first = next(batches)
    moments = Moments(first.shape[1])
    moments.add(first)
    for vectors in batches:
        moments.add(vectors)
    return moments
