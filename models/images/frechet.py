"""Frechet distance between generated images and their targets, as two sets rather than pairwise.

A Gaussian is fitted to the features of each set; the distance of two Gaussians is

    |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2))

(Dowson and Landau 1982; with Inception's features it is the FID of Heusel et al. 2017). Small samples bias it upwards,
so only distances for the same number of images are comparable. There is no bootstrap interval: resamples contain fewer
distinct images than the set, which would shift the interval upwards.
"""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from figura.dump import Dump
from figura.report.interfaces import Bootstrap, Estimate, NotApplicableError, Values
from models.images.features import Extract, SetScore, batches_of, check_widths


class Moments:
    """Streaming mean and covariance of batches of vectors, in float64 and constant memory.

    Batches are merged by the pairwise update of Chan, Golub and LeVeque (1983), which avoids cancellation.
    """

    def __init__(self, dimensions: int) -> None:
        self.count = 0
        self.mean: Values = np.zeros(dimensions)
        self._scatter: Values = np.zeros((dimensions, dimensions))

    def add(self, vectors: NDArray[np.floating]) -> None:
        """Add a batch (n, dimensions), n >= 1."""
        batch = np.asarray(vectors, dtype=np.float64)
        centre = batch.mean(axis=0)
        away, total = centre - self.mean, self.count + len(batch)
        self._scatter += (batch - centre).T @ (batch - centre)
        self._scatter += np.outer(away, away) * (self.count * len(batch) / total)
        self.mean = self.mean + away * (len(batch) / total)
        self.count = total

    def covariance(self) -> Values:
        """Return the unbiased covariance (dimensions, dimensions); needs at least two vectors."""
        return self._scatter / (self.count - 1)


def frechet_distance(mean: Values, covariance: Values, other_mean: Values, other_covariance: Values) -> float:
    """Squared Frechet distance between two Gaussians of d dimensions: (d,), (d, d), (d,), (d, d) -> at least 0.

    (S1 S2)^(1/2) has the trace of (S1^(1/2) S2 S1^(1/2))^(1/2), the root of a symmetric matrix, which is real for any
    rank. The eigenvalues of that root are the singular values of S1^(1/2) S2^(1/2). Computing these keeps full
    precision, while the square root of eigenvalues near 0 would lose half of the digits.
    """
    overlap = np.linalg.svd(_root(covariance) @ _root(other_covariance), compute_uv=False).sum()
    apart = np.square(mean - other_mean).sum()
    return max(0.0, float(apart + np.trace(covariance) + np.trace(other_covariance) - 2 * overlap))


def _root(covariance: Values) -> Values:
    """Return the symmetric square root (d, d); eigenvalues below float64's resolution are treated as 0."""
    values, vectors = np.linalg.eigh(covariance)
    values[values < len(values) * np.finfo(np.float64).eps * values[-1]] = 0
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)


class FrechetDistance(SetScore):
    """Frechet distance between features of a mode's images and of their targets.

    `image` names the images to score. For a baseline, `image` may name an input, or `average` a training mean, used for
    every image (its covariance is 0). For `extractor`, `weights` and `seed` see `features.py`.

    Metrics: `value`; `images`, their number; `dimensions`; `full_rank`, 0 if there are no more distinct images or
    distinct targets than dimensions: a covariance is then singular, and the value unreliable.
    """

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        if len(rows) < 2:
            raise NotApplicableError(
                f"{dump.folder}: mode {self.mode!r}: a Frechet distance needs 2 images, there is {len(rows)}"
            )
        extract = self.extract()
        target = self._shared_moments(rows, self.target, extract)
        different = rows.table[f"file.{self.target}"].nunique()
        if self.image is None:
            average = self.of_average(rows, extract)
            judged = Moments(average.shape[1])
            judged.add(np.repeat(average, 2, axis=0))  # two copies give the moments of many
        else:
            judged = self._shared_moments(rows, self.image, extract)
            different = min(different, rows.table[f"file.{self.image}"].nunique())
        check_widths(rows, judged.mean, target.mean)
        return {
            "value": frechet_distance(judged.mean, judged.covariance(), target.mean, target.covariance()),
            "images": len(rows),
            "dimensions": len(target.mean),
            "full_rank": int(different > len(target.mean)),
        }

    def _shared_moments(self, rows: Dump, name: str, extract: Extract) -> Moments:
        """Return the moments of the features of one file of every row, computed once for all scores."""
        files = tuple(rows.table[f"file.{name}"])  # subsets of rows share the dump's cache
        key = FrechetDistance, files, self.extractor, self.weights, self.seed
        if key not in rows.shared:
            rows.shared[key] = _moments(rows, name, extract)
        return cast(Moments, rows.shared[key])


def _moments(rows: Dump, name: str, extract: Extract) -> Moments:
    """Return the moments of the features of one file of every row."""
    batches = batches_of(rows, name, extract)
    first = next(batches)
    moments = Moments(first.shape[1])
    moments.add(first)
    for vectors in batches:
        moments.add(vectors)
    return moments
