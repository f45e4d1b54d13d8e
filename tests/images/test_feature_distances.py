"""Distances of features: Frechet's against closed forms and SciPy, the kernel's against a double loop; and of dumps."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dumps_by_hand import dump_of, sealed
from numpy.typing import NDArray
from scipy.linalg import sqrtm
from torch import nn

from figura.base.errors import UserError
from figura.dump import Dump
from figura.recipe.schema import Declaration
from figura.report.interfaces import Bootstrap, NotApplicableError, Values
from models.images import feature_distances, vgg
from models.images.feature_distances import (
    Extract,
    FrechetDistance,
    KernelDistance,
    Moments,
    SetScore,
    batches_of,
    frechet_distance,
)

Array = NDArray[np.float64]
BOOTSTRAP = Bootstrap(10, 0.9, seed=0)


def by_scipy(a: Array, b: Array) -> float:
    """The distance of two tables (n, d) as the formula is written."""
    (m1, s1), (m2, s2) = ((table.mean(axis=0), np.cov(table, rowvar=False)) for table in (a, b))
    return float(np.square(m1 - m2).sum() + np.trace(s1 + s2 - 2 * np.real(sqrtm(s1 @ s2))))


def test_singular_covariances_give_a_real_distance() -> None:
    """Rank 1 each, along u and v: the trace of the root is |u| |v| |cos|."""
    u, v = np.array([3.0, 4.0, 0.0]), np.array([0.0, 2.0, 0.0])
    found = frechet_distance(np.zeros(3), np.outer(u, u), np.zeros(3), np.outer(v, v))
    assert found == pytest.approx(25 + 4 - 2 * 8, rel=1e-9)
    same = frechet_distance(np.ones(3), np.outer(u, u), np.ones(3), np.outer(u, u))
    assert 0 <= same < 1e-6


def test_moments_of_batches_are_those_of_the_whole() -> None:
    table = np.random.default_rng(2).normal(size=(23, 4)) @ np.diag([1, 2, 3, 4]) + 1e6
    moments = Moments()
    for first, last in ((0, 1), (1, 12), (12, 23)):
        moments.add(table[first:last])
    assert moments.count == 23
    np.testing.assert_allclose(moments.mean, table.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(moments.covariance(), np.cov(table, rowvar=False), atol=1e-7)


def pictures(count: int, channels: int = 3, seed: int = 0, size: int = 8) -> torch.Tensor:
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def random_features(network: vgg.VGG, images: torch.Tensor) -> Array:
    """Pixel means of two layers: (N, 192)."""
    maps = network.features(images, {"relu1_2", "relu2_2"}).values()
    return torch.cat([one.mean((2, 3)) for one in maps], dim=1).double().numpy()


def test_score_of_a_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_distances, "BATCH", 7)
    images, targets = pictures(20) * 0.5, pictures(20, seed=1)
    dump = dump_of(tmp_path, image=images, target=targets)
    network = vgg.load("random", seed=0)
    a, b = (random_features(network, x) for x in (images, targets))
    found = FrechetDistance(mode="m", image="image", target="target", extractor="random")(dump, BOOTSTRAP)
    # SciPy's root of a singular product is good to about the root of float64's precision.
    assert found.pop("value") == pytest.approx(by_scipy(a, b), rel=1e-5)
    assert found == {"images": 20, "dimensions": 192, "full_rank": 0}
    baseline = FrechetDistance(mode="m", average="mean", target="target", extractor="random")(dump, BOOTSTRAP)
    centre = random_features(network, targets.mean(0, keepdim=True))[0]
    expected = np.square(centre - b.mean(0)).sum() + b.var(axis=0, ddof=1).sum()
    assert baseline["value"] == pytest.approx(expected, rel=1e-6)
    same = FrechetDistance(mode="m", image="target", target="target", extractor="random")(dump, BOOTSTRAP)
    assert same["value"] == pytest.approx(0, abs=1e-5 * expected)


@pytest.mark.parametrize("distance", [FrechetDistance, KernelDistance])
def test_only_rows_whose_column_is_set_count(distance: type[SetScore], tmp_path: Path) -> None:
    images, targets, kept = pictures(20) * 0.5, pictures(20, seed=1), torch.arange(20) % 3 == 0
    whole = dump_of(tmp_path / "whole", image=images, target=targets, columns={"seen": kept.int().tolist()})
    part = dump_of(tmp_path / "part", image=images[kept], target=targets[kept])
    chosen, expected = (
        distance(mode="m", image="image", target="target", extractor="random", where=where)(dump, BOOTSTRAP)
        for dump, where in ((whole, "seen"), (part, None))
    )
    assert chosen["images"] == 7
    assert chosen == pytest.approx(expected)


def test_features_of_a_file_are_computed_once_for_all_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []

    def counted(rows: Dump, name: str, extract: Extract) -> Iterator[Values]:
        judged.append(name)
        return batches_of(rows, name, extract)

    monkeypatch.setattr(feature_distances, "batches_of", counted)
    dump = dump_of(tmp_path, image=pictures(20) * 0.5, target=pictures(20, seed=1))
    alone = Dump(tmp_path)

    def value(of: Dump, image: str | None = None, average: str | None = None, seed: int = 0) -> object:
        score = FrechetDistance("m", "target", "random", image=image, average=average, seed=seed)
        return score(of, BOOTSTRAP)["value"]

    first, mean, other = value(dump, image="image"), value(dump, average="mean"), value(dump, seed=5, image="image")
    assert judged == ["target", "image"] * 2
    assert [mean, other] == [value(alone, average="mean"), value(alone, seed=5, image="image")]
    assert first != other


def test_says_when_there_are_too_few_different_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An extractor of 5 dimensions stands for Inception: 12 grey images are enough, of 4 targets not."""
    paths = []

    def load(path: str) -> torch.nn.Module:
        paths.append(path)
        return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((1, 2)), torch.nn.Flatten(), torch.nn.Linear(6, 5))

    monkeypatch.setattr(feature_distances.inception, "load", load)
    score = FrechetDistance(mode="m", image="image", target="target", extractor="inception", weights="some/file")
    for repeat, full_rank in ((1, 1), (3, 0)):
        dump = dump_of(
            tmp_path / str(repeat), image=pictures(12, 1), target=pictures(12 // repeat, 1, seed=1), repeat=repeat
        )
        found = score(dump, BOOTSTRAP)
        assert (found["images"], found["dimensions"], found["full_rank"]) == (12, 5, full_rank)
    assert paths == ["some/file"] * 2


class Halves(nn.Module):
    """Maps of two cells, the means of the left and the right half, multiplied by a drawn or loaded number."""

    def __init__(self, loads: bool) -> None:
        super().__init__()
        self.factor, self.loads = torch.rand(1), loads

    def load_pretrained(self) -> None:
        self.factor = torch.full((1,), 3.0) if self.loads else self.factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * torch.cat([half.mean((2, 3), keepdim=True) for half in x.chunk(2, dim=3)], dim=1)


def test_a_network_by_its_type_extracts_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its maps' means over pixels, by SciPy's formula; its weights are its own, or drawn from the seed."""
    images, targets = pictures(20) * 0.5, pictures(20, seed=1)
    dump = dump_of(tmp_path, image=images, target=targets)
    monkeypatch.setitem(sys.modules, "halves_of_tests", SimpleNamespace(Halves=Halves, __name__="halves_of_tests"))

    def value(distance: type[SetScore], loads: bool, seed: int = 0) -> float:
        extractor = Declaration(type="halves_of_tests.Halves", loads=loads)
        score = distance(mode="m", image="image", target="target", extractor=extractor, seed=seed)
        return score(dump, BOOTSTRAP)["value"]

    a, b = (
        3 * torch.cat([half.mean((2, 3)) for half in x.chunk(2, dim=3)], dim=1).double().numpy()
        for x in (images, targets)
    )
    assert value(FrechetDistance, loads=True) == pytest.approx(by_scipy(a, b), rel=1e-5)
    assert value(KernelDistance, loads=True) == pytest.approx(by_loops(a, b), rel=1e-4)
    drawn = [value(FrechetDistance, loads=False, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_extractors_that_do_not_fit_say_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"extractor\.type: unknown network 'torch\.nn\.Nothing'"):
        FrechetDistance(mode="m", target="target", image="image", extractor=Declaration(type="torch.nn.Nothing"))
    score = FrechetDistance("m", "target", Declaration(type="torch.nn.Flatten", start_dim=0), image="image")
    with pytest.raises(UserError, match=r"the extractor returns \(384,\) for images \(2, 3, 8, 8\); expected a tensor"):
        score(dump_of(tmp_path, image=pictures(2), target=pictures(2)), BOOTSTRAP)


@pytest.mark.parametrize("distance", [FrechetDistance, KernelDistance])
def test_pictures_of_one_row_are_too_small_for_random_features(distance: type[SetScore], tmp_path: Path) -> None:
    dump = dump_of(tmp_path, image=pictures(2)[..., :1, :], target=pictures(2)[..., :1, :])
    with pytest.raises(UserError, match=r"random halves images; found \(3, 1, 8\), 2 x 2 px are needed"):
        distance("m", "target", "random", image="image")(dump, BOOTSTRAP)


def test_bad_declarations_and_dumps(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="either image or average"):
        FrechetDistance(mode="m", target="target", extractor="random")
    for extractor, weights in (("inception", None), ("random", "file")):
        with pytest.raises(ValueError, match="inception needs the path of a file, other extractors take none"):
            FrechetDistance(mode="m", target="target", image="image", extractor=extractor, weights=weights)  # type: ignore[arg-type]
    score = FrechetDistance(mode="m", image="image", target="target", extractor="random")
    with pytest.raises(NotApplicableError, match="needs 2 images, there is 1"):
        score(dump_of(tmp_path / "one", image=pictures(1), target=pictures(1)), BOOTSTRAP)
    with pytest.raises(UserError, match=r"image/0\.npy: 192 of 192 values are NaN or infinite"):
        score(dump_of(tmp_path / "nan", image=pictures(2) * float("nan"), target=pictures(2)), BOOTSTRAP)
    score = KernelDistance(mode="m", image="image", target="target", extractor="random")
    with pytest.raises(UserError, match=r"2 different images and 2 different targets, there are 2 and 1"):
        score(dump_of(tmp_path / "same", image=pictures(2), target=pictures(1), repeat=2), BOOTSTRAP)


# --- the kernel distance ---


def by_loops(a: Array, b: Array) -> float:
    """Pairs one by one, as the definition counts them."""

    def kernel(x: Array, y: Array) -> float:
        return (sum(float(p) * float(q) for p, q in zip(x, y, strict=True)) / len(x) + 1) ** 3

    n, m = len(a), len(b)
    of_a = sum(kernel(a[i], a[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    of_b = sum(kernel(b[i], b[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return of_a + of_b - 2 * sum(kernel(x, y) for x in a for y in b) / (n * m)


def test_few_images_are_compared_once_all_of_them(tmp_path: Path) -> None:
    images, targets = pictures(12) * 0.5, pictures(12, seed=1)
    dump = dump_of(tmp_path, image=images, target=targets)
    network = vgg.load("random", seed=3)
    a, b = (random_features(network, x) for x in (images, targets))
    found = KernelDistance(mode="m", image="image", target="target", extractor="random", seed=3)(dump, BOOTSTRAP)
    assert found.pop("value") == pytest.approx(by_loops(a, b), rel=1e-5)
    assert found == {"images": 12, "targets": 12, "subset_size": 12}
    baseline = KernelDistance(mode="m", average="mean", target="target", extractor="random", seed=3)
    centre = random_features(network, targets.mean(0, keepdim=True)).repeat(12, axis=0)
    assert baseline(dump, BOOTSTRAP)["value"] == pytest.approx(by_loops(centre, b), rel=1e-5)


def test_subsets_are_seeded_and_centre_on_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_distances, "SUBSET_SIZE", 10)
    images, targets = pictures(40, size=2), pictures(40, seed=1, size=2) * 0.5
    dump = dump_of(tmp_path, image=images, target=targets)

    def found(seed: int = 0) -> dict:
        return KernelDistance(mode="m", image="image", target="target", extractor="random", seed=seed)(dump, BOOTSTRAP)

    first = found()
    assert first == found()
    assert first != found(seed=1)
    assert first["subset_size"] == 10
    network = vgg.load("random", seed=0)
    whole = by_loops(*(random_features(network, x) for x in (images, targets)))
    assert abs(first["value"] - whole) < 4 * first["spread"] / np.sqrt(100)
    assert first["spread"] > 0


def test_a_file_of_several_rows_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = KernelDistance(mode="m", image="image", target="target", extractor="random")
    images, targets = pictures(12), pictures(4, seed=1)
    drawn = score(dump_of(tmp_path, image=images, target=targets, repeat=3), BOOTSTRAP)
    assert (drawn["images"], drawn["targets"], drawn["subset_size"]) == (12, 4, 4)
    monkeypatch.setattr(feature_distances, "MOST", 5)
    assert score(Dump(sealed(tmp_path)), BOOTSTRAP)["images"] == 5
