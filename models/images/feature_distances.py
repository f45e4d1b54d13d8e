"""Distances between generated images and their targets as two sets of features, rather than pairwise.

Extractors, for images (3 or 1, H, W) in [-1, 1]:

- `random`: pixel means of relu1_2 (64) and relu2_2 (128) of VGG19 with seeded random weights, 192 dimensions, offline.
They capture colours and small patterns; values are comparable only with each other.
- `inception`: FID's Inception-v3, 2048 dimensions (see `inception.load`).
- a network, such as `{type: pose.EfficientNetLite, stages: 7, pretrained: FILE}`: it takes RGB in [-1, 1] and returns
vectors (N, dimensions), or maps (N, dimensions, h, w), whose pixel means are the features. Its method
`load_pretrained`, if any, is called first.

Distances:

- `FrechetDistance` fits a Gaussian to each set: |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)) (Dowson and Landau 1982;
with Inception's features it is the FID of Heusel et al. 2017). Small samples bias it upwards, so only distances for the
same number of images are comparable. There is no bootstrap interval: resamples contain fewer distinct images than the
set, which would shift the interval upwards.
- `KernelDistance` is the unbiased estimate of the squared maximum mean discrepancy under the kernel (x . y / d + 1)^3
in d dimensions (Binkowski et al. 2018, sections 2 and 4; Gretton et al. 2012, lemma 6). With Inception's features it is
the KID. Its expectation does not depend on the number of images, so it is suited to small sets.

Real images are not at distance 0 from other real ones: with `image: other` of `images.ImagePairs` (`baselines`), or an
input of your own dataset, a second score gives the distance that no network can be expected to come below.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from figura.base.error_collector import ErrorCollector, NestedError
from figura.base.errors import UserError
from figura.base.sampling import evenly_spaced
from figura.base.seeding import generator, random_kept, seed_here
from figura.dump import Dump
from figura.recipe.schema import Declaration
from figura.recipe.types import NETWORK, construct
from figura.report.interfaces import Bootstrap, Estimate, NotApplicableError, Values, rows_where

from . import inception, vgg
from .scores import PictureScore, stacks

RANDOM_LAYERS = ("relu1_2", "relu2_2")  # 64 + 128 dimensions
BATCH = 32  # images in memory at a time
SUBSETS, SUBSET_SIZE = 100, 1000  # of a kernel distance
MOST = 20_000  # images whose features a kernel distance has in memory at a time
Extract = Callable[[Tensor], Values]  # images (N, C, H, W) to features (N, dimensions)
Extractor = Literal["random", "inception"] | Declaration


class SetScore(PictureScore):
    """Base class of distances between sets: selects images, targets and their features.

    For `image` and `average` see `PictureScore`. `weights` is the file of `inception`; others have none. `seed` draws
    the weights of `random`, and those that a network of one's own does not load. With `where`, only examples whose
    column of this name is not 0 are used.
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
        where: str | None = None,
    ) -> None:
        super().__init__(mode, target, image, average)
        self.where = where
        if (extractor == "inception") != (weights is not None):
            raise ValueError(f"weights {weights!r}: inception needs the path of a file, other extractors take none")
        self.extractor, self.weights, self.seed = extractor, weights, seed
        self.network = None if isinstance(extractor, str) else _constructed(extractor, seed)

    def rows(self, dump: Dump) -> Dump:
        """Return the rows to judge."""
        return rows_where(dump.mode(self.mode), self.mode, self.where)

    def extract(self) -> Extract:
        """Load the network and return its features as a function of images."""
        if self.extractor == "inception":
            network = inception.load(str(self.weights))
            return lambda images: _vectors(network(vgg.as_rgb(images)))
        if self.network is not None:
            if (load := getattr(self.network, "load_pretrained", None)) is not None:
                load()
            return partial(_pooled, self.network.eval())
        return partial(_random_features, vgg.load("random", seed=self.seed))

    def of_average(self, rows: Dump, extract: Extract) -> Values:
        """Return the features (1, dimensions) of the training mean."""
        return extract(torch.from_numpy(rows.average(str(self.average)))[None])


def _constructed(declaration: Declaration, seed: int) -> nn.Module:
    """Construct a declared network. Raises ValueError if the declaration is wrong."""
    errors = ErrorCollector(Path("extractor"))
    with random_kept():
        seed_here(seed, "extractor")
        network = construct(declaration.type, declaration.arguments, NETWORK, "extractor", errors)
    if errors.lines:
        raise NestedError(errors)
    return cast(nn.Module, network)


def _pooled(network: nn.Module, images: Tensor) -> Values:
    """(N, 3 or 1, H, W) in [-1, 1] -> (N, dimensions). Raises UserError if the network returns something else."""
    features = network(vgg.as_rgb(images))
    if not isinstance(features, Tensor) or features.ndim not in (2, 4) or len(features) != len(images):
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise UserError(
            f"the extractor returns {found} for images {tuple(images.shape)}; expected a tensor (images, dimensions) "
            "or (images, dimensions, height, width)"
        )
    return _vectors(features if features.ndim == 2 else features.mean(dim=(2, 3)))


def _random_features(network: vgg.VGG, images: Tensor) -> Values:
    """(N, 3 or 1, H, W) in [-1, 1] -> (N, 192): pixel means of the layers' maps. Raises UserError below 2 x 2 px."""
    if min(images.shape[2:], default=0) < 2:
        raise UserError(f"the extractor random halves images; found {tuple(images.shape[1:])}, 2 x 2 px are needed")
    maps = network.features(images, set(RANDOM_LAYERS))
    return _vectors(torch.cat([maps[name].flatten(2).mean(dim=2) for name in RANDOM_LAYERS], dim=1))


@torch.no_grad()
def batches_of(rows: Dump, name: str, extract: Extract, places: Iterable[int] | None = None) -> Iterator[Values]:
    """Yield the features (n, dimensions), n <= `BATCH`, of one file of each row, or only of the rows `places`."""
    for (images,) in stacks(rows, [name], BATCH, places):
        yield extract(images)


def _vectors(features: Tensor) -> Values:
    return np.asarray(features.double().numpy())


class Moments:
    """Streaming mean and covariance of batches of vectors, in float64 and constant memory.

    Batches are merged by the pairwise update of Chan, Golub and LeVeque (1983), which avoids cancellation.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean: Values = np.zeros(1)  # takes the number of dimensions from the first batch
        self._scatter: Values = np.zeros((1, 1))

    def add(self, vectors: NDArray[np.floating]) -> None:
        """Add a batch (n, dimensions), n >= 1."""
        batch = np.asarray(vectors, dtype=np.float64)
        centre = batch.mean(axis=0)
        away, total = centre - self.mean, self.count + len(batch)
        self._scatter = self._scatter + (batch - centre).T @ (batch - centre)
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

    For `image` and `average` see `PictureScore`; the covariance of an average is 0. For `extractor`, `weights` and
    `seed` see the top of this module.

    Metrics: `value`; `images`, their number; `dimensions`; `full_rank`, 0 if there are no more distinct images or
    distinct targets than dimensions: a covariance is then singular, and the value unreliable.
    """

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = self.rows(dump)
        if len(rows) < 2:
            raise NotApplicableError(
                f"{dump.folder}: mode {self.mode!r}: a Frechet distance needs 2 images, there is {len(rows)}"
            )
        extract = self.extract()
        target = self._shared_moments(rows, self.target, extract)
        different = rows.table[f"file.{self.target}"].nunique()
        if self.image is None:
            judged = Moments()
            judged.add(np.repeat(self.of_average(rows, extract), 2, axis=0))  # two copies give the moments of many
        else:
            judged = self._shared_moments(rows, self.image, extract)
            different = min(different, rows.table[f"file.{self.image}"].nunique())
        return {
            "value": frechet_distance(judged.mean, judged.covariance(), target.mean, target.covariance()),
            "images": len(rows),
            "dimensions": len(target.mean),
            "full_rank": int(different > len(target.mean)),
        }

    def _shared_moments(self, rows: Dump, name: str, extract: Extract) -> Moments:
        """Return the moments of the features of one file of every row, computed once for all scores."""
        files = tuple(rows.table[f"file.{name}"])  # subsets of rows share the dump's cache
        key = FrechetDistance, files, repr(self.extractor), self.weights, self.seed
        if key not in rows.shared:
            moments = Moments()
            for vectors in batches_of(rows, name, extract):
                moments.add(vectors)
            rows.shared[key] = moments
        return cast(Moments, rows.shared[key])


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

    For `image` and `average` see `PictureScore`, for `extractor`, `weights` and `seed` the top of this module.

    The value is the mean over 100 random subsets (drawn from `seed`) of 1000 images and as many targets, as in the
    paper. If there are no more images and targets than one subset, it is computed once, from all. A file shared by
    several rows is used once. At most 20 000 images and targets are used, evenly spaced.

    An image made from its target is closer to it than two independent images would be. The value of very good images
    is therefore slightly below 0, less so for larger subsets.

    Metrics: `value`, often published times 1000; `spread`, the standard deviation over the subsets if there are
    several; `images` and `targets`, their numbers; `subset_size`, the size used.
    """

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = self.rows(dump)
        extract = self.extract()
        target = _features(rows, self.target, extract)
        if self.image is None:
            with torch.no_grad():
                image = np.repeat(self.of_average(rows, extract), len(target), axis=0)
        else:
            image = _features(rows, self.image, extract)
        if min(len(image), len(target)) < 2:
            raise UserError(
                f"{dump.folder}: mode {self.mode!r}: a kernel distance needs 2 different images and 2 different "
                f"targets, there are {len(image)} and {len(target)}"
            )
        size = min(SUBSET_SIZE, len(image), len(target))
        several = size < max(len(image), len(target))
        values = [self._subset(image, target, size, n) for n in range(SUBSETS)] if several else []
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
