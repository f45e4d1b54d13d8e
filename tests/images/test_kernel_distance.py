"""The kernel distance against a double loop in NumPy float64, its expectation, and what it says of a dump."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from dumps_by_hand import sealed
from numpy.typing import NDArray
from torch import Tensor

from figura.base.errors import UserError
from figura.dump import Dump, write_value
from figura.report.interfaces import Bootstrap
from models.images import kernel_distance, vgg
from models.images.features import random_features
from models.images.kernel_distance import KernelDistance, squared_discrepancy

BOOTSTRAP = Bootstrap(10, 0.9, seed=0)


def by_loops(a: NDArray, b: NDArray) -> float:
    """Pairs one by one, as the definition counts them."""

    def kernel(x: NDArray, y: NDArray) -> float:
        return (sum(float(p) * float(q) for p, q in zip(x, y, strict=True)) / len(x) + 1) ** 3

    n, m = len(a), len(b)
    of_a = sum(kernel(a[i], a[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    of_b = sum(kernel(b[i], b[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return of_a + of_b - 2 * sum(kernel(x, y) for x in a for y in b) / (n * m)


def test_agrees_with_a_double_loop() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(9, 4)), random.normal(0.5, 2, size=(7, 4))
    assert squared_discrepancy(a, b) == pytest.approx(by_loops(a, b), rel=1e-12)
    assert squared_discrepancy(b, a) == pytest.approx(by_loops(a, b), rel=1e-12)


def test_its_expectation_is_that_of_the_distributions() -> None:
    """In one dimension E (xy + 1)^3 = E x^3 E y^3 + 3 E x^2 E y^2 + 3 E x E y + 1, whatever the number of samples."""
    random = np.random.default_rng(1)
    same = [squared_discrepancy(random.normal(size=(5, 1)), random.normal(size=(5, 1))) for _ in range(4000)]
    assert abs(np.mean(same)) < 4 * np.std(same) / np.sqrt(len(same))
    assert min(same) < 0 < max(same)
    moved = [squared_discrepancy(random.normal(size=(5, 1)), random.normal(1, 1, size=(5, 1))) for _ in range(4000)]
    moments = np.array([[0, 1, 0], [1, 2, 4]])  # E x, E x^2, E x^3 of N(0, 1) and of N(1, 1)
    expected = (np.array([3, 3, 1]) * (moments[0] - moments[1]) ** 2).sum()
    assert abs(np.mean(moved) - expected) < 4 * np.std(moved) / np.sqrt(len(moved))


def dump_of(folder: Path, images: Tensor, targets: Tensor, repeat: int = 1) -> Dump:
    """A dump whose mode `m` drew every instance `repeat` times, on one target file each."""
    rows = []
    for place, image in enumerate(images):
        files = {"image": f"m/{place}.npy", "target": f"inputs/{place // repeat}.npy"}
        write_value(folder / files["image"], image)
        write_value(folder / files["target"], targets[place // repeat])
        rows.append({"mode": "m", "index": place // repeat, **{f"file.{n}": path for n, path in files.items()}})
    pd.DataFrame(rows).to_csv(folder / "examples.csv", index=False)
    write_value(folder / "averages/mean.npy", targets.mean(0))
    return Dump(sealed(folder))


def pictures(count: int, seed: int = 0, size: int = 8) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_few_images_are_compared_once_all_of_them(tmp_path: Path) -> None:
    images, targets = pictures(12) * 0.5, pictures(12, seed=1)
    dump = dump_of(tmp_path, images, targets)
    network = vgg.load("random", seed=3)
    a, b = (random_features(network, x).double().numpy() for x in (images, targets))
    found = KernelDistance(mode="m", image="image", target="target", extractor="random", seed=3)(dump, BOOTSTRAP)
    assert found.pop("value") == pytest.approx(by_loops(a, b), rel=1e-5)
    assert found == {"images": 12, "targets": 12, "subset_size": 12}
    baseline = KernelDistance(mode="m", average="mean", target="target", extractor="random", seed=3)
    centre = random_features(network, targets.mean(0, keepdim=True)).double().numpy().repeat(12, axis=0)
    assert baseline(dump, BOOTSTRAP)["value"] == pytest.approx(by_loops(centre, b), rel=1e-5)


def test_subsets_are_seeded_and_centre_on_the_whole(tmp_path: Path) -> None:
    """Saved features: maps, of which the means over the pixels are taken."""
    random = torch.Generator().manual_seed(0)
    maps, others = torch.randn(40, 4, 2, 2, generator=random) * 2, torch.randn(40, 4, 2, 2, generator=random) + 0.5
    dump = dump_of(tmp_path, maps, others)

    def found(**changes: int) -> dict:
        settings = {"subsets": 200, "subset_size": 10} | changes
        return KernelDistance(mode="m", image="image", target="target", extractor="saved", **settings)(dump, BOOTSTRAP)

    first = found()
    assert first == found()
    assert first != found(seed=1)
    assert first["subset_size"] == 10
    whole = by_loops(maps.mean((2, 3)).double().numpy(), others.mean((2, 3)).double().numpy())
    assert abs(first["value"] - whole) < 4 * first["spread"] / np.sqrt(200)
    assert first["spread"] > 0


def test_a_file_of_several_rows_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = KernelDistance(mode="m", image="image", target="target", extractor="saved")
    drawn = score(dump_of(tmp_path, torch.arange(36.0).view(12, 3), torch.arange(12.0).view(4, 3), repeat=3), BOOTSTRAP)
    assert (drawn["images"], drawn["targets"], drawn["subset_size"]) == (12, 4, 4)
    monkeypatch.setattr(kernel_distance, "MOST", 5)
    assert score(Dump(sealed(tmp_path)), BOOTSTRAP)["images"] == 5


def test_vgg_with_weights_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deep features are 512 means; the weights are those that the file has."""
    network, asked = vgg.load("random", seed=9), []
    monkeypatch.setattr(vgg, "load", lambda source, **_: asked.append(source) or network)
    images, targets = pictures(3, size=16), pictures(3, seed=1, size=16)
    score = KernelDistance(mode="m", image="image", target="target", extractor="vgg", weights="some/file")
    deep = [
        network.features(x, {"relu5_2"})["relu5_2"].mean((2, 3)).double().numpy().reshape(3, 512)
        for x in (images, targets)
    ]
    found = score(dump_of(tmp_path, images, targets), BOOTSTRAP)
    assert found["value"] == pytest.approx(by_loops(*deep), rel=1e-4)
    assert asked == ["some/file"]


def test_bad_declarations_and_dumps(tmp_path: Path) -> None:
    for arguments, message in (
        ({}, "either image or average"),
        ({"image": "i", "subsets": 0}, "subsets 0: at least 1"),
        ({"image": "i", "subset_size": 1}, "subset_size 1: at least 2"),
        ({"image": "i", "weights": "file"}, "random and saved take none"),
    ):
        with pytest.raises(ValueError, match=message):
            KernelDistance(mode="m", target="target", extractor="random", **arguments)  # type: ignore[arg-type]
    score = KernelDistance(mode="m", image="image", target="target", extractor="random")
    with pytest.raises(UserError, match=r"2 different images and 2 different targets, there are 2 and 1"):
        score(dump_of(tmp_path / "one", pictures(2), pictures(1), repeat=2), BOOTSTRAP)
    with pytest.raises(UserError, match=r"m/0\.npy: 192 of 192 values are NaN or infinite"):
        score(dump_of(tmp_path / "nan", pictures(2) * float("nan"), pictures(2)), BOOTSTRAP)
    with pytest.raises(UserError, match="nothing named 'other' was saved"):
        KernelDistance(mode="m", image="other", target="target", extractor="random")(
            Dump(sealed(tmp_path / "one")), BOOTSTRAP
        )
