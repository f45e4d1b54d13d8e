"""Frechet distance between generated images and their targets: whether they are alike as a set, not pair by pair.

Features of each set are summed up by a Gaussian; the distance between two is

    |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2))

(Dowson and Landau 1982, with Inception's features the FID of Heusel et al. 2017). It is biased upwards by few images, so
that distances compare only for equal numbers of them, and a bootstrap, whose resamples hold fewer different images than
the set, would move the whole interval upwards: none is given.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.engine.dump import Dump
from models.engine.errors import UserError
from models.engine.scores import Bootstrap, Estimate, Score, Values
from models.images import inception, vgg

RANDOM_LAYERS = ("relu1_2", "relu2_2")  # 64 + 128 dimensions
BATCH = 32  # images in memory at a time
Extract = Callable[[Tensor], Values]  # images (N, C, H, W) in [-1, 1] to features (N, dimensions)


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


class FrechetDistance(Score):
    """Frechet distance between features of a mode's images and of their targets.

    `image` names what is judged; for a baseline, `average` names a training mean to judge instead, which then stands for
    every image (its covariance is 0), or `image` an input. Extractors, for images (3 or 1, H, W) in [-1, 1]:

    - `random`: the means over the pixels of relu1_2 (64) and relu2_2 (128) of VGG19 with random weights drawn from
      `seed`: 192 dimensions, offline. Colours and small patterns; values compare only among themselves.
    - `inception`: FID's Inception-v3, 2048 dimensions, with the weights of the file `weights` (see `inception.load`).

    Figures: `value`; `images`, how many; `dimensions`; `full_rank`, 0 where the different images, or the different
    targets, are no more than the dimensions: the covariances are then singular and the value says little.
    """

    def __init__(
        self,
        mode: str,
        target: str,
        extractor: Literal["random", "inception"],
        image: str | None = None,
        average: str | None = None,
        weights: str | None = None,
        seed: int = 0,
    ) -> None:
        if (image is None) == (average is None):
            raise ValueError("write either image or average")
        if extractor not in ("random", "inception"):
            raise ValueError(f"extractor {extractor!r}: write random or inception")
        if (extractor == "inception") != (weights is not None):
            raise ValueError(f"weights {weights!r}: inception needs the path of a file, random takes none")
        self.mode, self.target, self.image, self.average = mode, target, image, average
        self.weights, self.seed = weights, seed

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        if len(rows) < 2:
            raise UserError(
                f"{dump.folder}: mode {self.mode!r}: a Frechet distance needs 2 images, there is {len(rows)}"
            )
        extract = self._extractor()
        target = _moments(rows, self.target, extract)
        different = rows.table[f"file.{self.target}"].nunique()
        if self.average is not None:
            judged = Moments(len(target.mean))
            average = torch.from_numpy(rows.average(self.average))
            judged.add(extract(average.expand(2, -1, -1, -1)))  # two of the same are as good as all
        else:
            judged = _moments(rows, str(self.image), extract)
            different = min(different, rows.table[f"file.{self.image}"].nunique())
        return {
            "value": frechet_distance(judged.mean, judged.covariance(), target.mean, target.covariance()),
            "images": len(rows),
            "dimensions": len(target.mean),
            "full_rank": int(different > len(target.mean)),
        }

    def _extractor(self) -> Extract:
        if self.weights is not None:
            network = inception.load(self.weights)
            return lambda images: _vectors(network(vgg.as_rgb(images)))
        stack = vgg.load("random", seed=self.seed)
        return lambda images: _vectors(random_features(stack, images))


def random_features(network: vgg.VGG19, images: Tensor) -> Tensor:
    """(N, 3 or 1, H, W) in [-1, 1] -> (N, 192): the means over the pixels of the maps in `RANDOM_LAYERS`."""
    maps = network.features(images, set(RANDOM_LAYERS))
    return torch.cat([maps[name].mean(dim=(2, 3)) for name in RANDOM_LAYERS], dim=1)


def _vectors(features: Tensor) -> Values:
    return np.asarray(features.double().numpy())


@torch.no_grad()
def _moments(rows: Dump, name: str, extract: Extract) -> Moments:
    """Moments of the features of one file of every row."""
    moments: Moments | None = None
    for first in range(0, len(rows), BATCH):
        images = np.stack([rows.value(place, name) for place in range(first, min(first + BATCH, len(rows)))])
        vectors = extract(torch.from_numpy(images))
        moments = moments or Moments(vectors.shape[1])
        moments.add(vectors)
    if moments is None or not np.isfinite(moments.mean).all():
        raise UserError(f"{rows.folder}: {name!r} holds images with values that are no finite numbers")
    return moments
