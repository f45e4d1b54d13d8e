"""The perceptual distance against its formula in NumPy float64, and what it says of a dump."""

from pathlib import Path

import numpy as np
import pytest
import torch
from dumps_by_hand import dump_of
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from figura.base.errors import UserError
from figura.dump import Dump
from figura.report.interfaces import Bootstrap
from models.images import vgg
from models.images.perceptual_distance import PerceptualDistance, last_layers, perceptual_distance

BOOTSTRAP = Bootstrap(20, 0.9, seed=0)
# VGG16 as its authors number the 31 layers of its features: where convolutions stand, where pools, where LPIPS listens.
CONVOLUTIONS = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
POOLS = (4, 9, 16, 23)
TAPS = (2, 7, 14, 21, 28)


@pytest.fixture(scope="module")
def network() -> vgg.VGG16:
    return vgg.load_stack(vgg.VGG16, "random", seed=2)


def numpy_distance(image: NDArray, target: NDArray, weights: NDArray) -> float:
    """One layer: (C, H, W), (C, H, W), (C,), pixel by pixel."""
    total = 0.0
    for row in range(image.shape[1]):
        for column in range(image.shape[2]):
            a, b = image[:, row, column], target[:, row, column]
            total += (weights * (a / np.linalg.norm(a) - b / np.linalg.norm(b)) ** 2).sum()
    return total / image.shape[1] / image.shape[2]


def maps_of(network: vgg.VGG16, images: Tensor) -> list[Tensor]:
    """The maps that LPIPS compares, by torch's own layers."""
    x = ((images + 1) / 2 - torch.tensor(vgg.MEAN).view(3, 1, 1)) / torch.tensor(vgg.STD).view(3, 1, 1)
    found = []
    for index in range(30):
        if index in POOLS:
            x = torch.nn.functional.max_pool2d(x, 2)
        if index in CONVOLUTIONS:
            weight, bias = network.weights[f"features.{index}.weight"], network.weights[f"features.{index}.bias"]
            x = torch.conv2d(x, weight, bias, padding=1).relu()
        if index in TAPS:
            found.append(x)
    return found


def pictures(count: int = 3, size: int = 32, seed: int = 0) -> Tensor:
    """Smooth images, so that blur and noise make a difference."""
    random = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, size // 4, size // 4, generator=random) * 2 - 1
    return torch.nn.functional.interpolate(coarse, scale_factor=4, mode="bilinear")


def test_the_formula() -> None:
    random = torch.Generator().manual_seed(0)
    shapes = ((5, 4, 6), (3, 2, 2))
    image, target = ([torch.rand(2, *s, generator=random, dtype=torch.float64) for s in shapes] for _ in range(2))
    weights = [torch.rand(s[0], generator=random, dtype=torch.float64) for s in shapes]
    expected = [
        sum(
            numpy_distance(a[n].numpy(), b[n].numpy(), w.numpy())
            for a, b, w in zip(image, target, weights, strict=True)
        )
        for n in range(2)
    ]
    np.testing.assert_allclose(perceptual_distance(image, target, weights), expected, rtol=1e-9)
    blank = [torch.zeros_like(maps) for maps in image]  # pixels that no channel answers to
    assert perceptual_distance(blank, blank, weights).tolist() == [0, 0]


def test_vgg16_is_that_of_its_authors(network: vgg.VGG16) -> None:
    layers = last_layers(vgg.VGG16)
    assert layers == ["relu1_2", "relu2_2", "relu3_3", "relu4_3", "relu5_3"]
    assert last_layers(vgg.VGG19) == ["relu1_2", "relu2_2", "relu3_4", "relu4_4", "relu5_2"]
    images = pictures(2)
    found = network.features(images, set(layers))
    for name, expected in zip(layers, maps_of(network, images), strict=True):
        torch.testing.assert_close(found[name], expected, rtol=1e-3, atol=1e-4)


def test_a_score_of_a_dump(tmp_path: Path, network: vgg.VGG16) -> None:
    """Zero for equal images, as by hand for noisy ones; an average is a baseline."""
    target = pictures(10)  # more than a batch
    noise = torch.randn(target.shape, generator=torch.Generator().manual_seed(1))
    dump = dump_of(tmp_path, target=target, noisy=(target + 0.2 * noise).clamp(-1, 1))

    def value(image: str) -> float:
        found = PerceptualDistance(mode="m", image=image, target="target", source="random", seed=2)(dump, BOOTSTRAP)
        assert found.keys() == {"random_vgg16", "images"}
        assert found["images"] == 10
        estimate = found["random_vgg16"]
        assert estimate["low"] <= estimate["value"] <= estimate["high"]  # type: ignore[index]
        return estimate["value"]  # type: ignore[index]

    assert value("target") == 0
    noisy = value("noisy")
    theirs, ours = maps_of(network, target), maps_of(network, dump_values(dump, "noisy"))
    expected = [
        sum(
            numpy_distance(a[n].double().numpy(), b[n].double().numpy(), np.ones(a.shape[1]))
            for a, b in zip(ours, theirs, strict=True)
        )
        for n in range(10)
    ]
    assert noisy == pytest.approx(np.mean(expected), rel=1e-3)
    baseline = PerceptualDistance(mode="m", average="mean", target="target", source="random", network="vgg19")
    assert baseline(dump, BOOTSTRAP)["random_vgg19"]["value"] > noisy / 2  # type: ignore[index]


def dump_values(dump: Dump, name: str) -> Tensor:
    return torch.stack([torch.from_numpy(dump.value(place, name)) for place in range(len(dump))])


def test_lpips_reads_its_linear_weights(tmp_path: Path, network: vgg.VGG16) -> None:
    """Weights of one layer alone leave that layer's term."""
    target, image = pictures(2), pictures(2, seed=5)
    dump = dump_of(tmp_path, target=target, image=image)
    channels = (64, 128, 256, 512, 512)
    linear = {f"lin{n}.model.1.weight": torch.zeros(1, c, 1, 1) for n, c in enumerate(channels)}
    linear["lin2.model.1.weight"] = torch.rand(1, 256, 1, 1, generator=torch.Generator().manual_seed(3))
    save_file(linear, tmp_path / "lpips.safetensors")
    save_file(network.weights, tmp_path / "vgg16.safetensors")
    source = str(tmp_path / "vgg16.safetensors")
    settings = {"mode": "m", "image": "image", "target": "target", "source": source}
    found = PerceptualDistance(**settings, linear=str(tmp_path / "lpips.safetensors"))(dump, BOOTSTRAP)  # type: ignore[arg-type]
    a, b = (maps_of(network, x)[2].double().numpy() for x in (image, target))
    weights = linear["lin2.model.1.weight"].double().numpy().ravel()
    expected = np.mean([numpy_distance(a[n], b[n], weights) for n in range(2)])
    assert found["lpips_vgg16"]["value"] == pytest.approx(expected, rel=1e-3)  # type: ignore[index]
    assert "vgg16" in PerceptualDistance(**settings)(dump, BOOTSTRAP)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"LPIPS' linear weights: .* has no tensor 'lin0"):
        PerceptualDistance(**settings, linear=source)(dump, BOOTSTRAP)  # type: ignore[arg-type]
    save_file(vgg.load("random").weights, tmp_path / "vgg19.safetensors")
    with pytest.raises(UserError, match=r"VGG16 weights: .*features\.19\.weight has shape .*timm/vgg16"):
        PerceptualDistance(**settings | {"source": str(tmp_path / "vgg19.safetensors")})(dump, BOOTSTRAP)  # type: ignore[arg-type]


def test_bad_declarations_and_dumps(tmp_path: Path) -> None:
    for arguments, message in (
        ({"source": "random"}, "either image or average"),
        ({"source": "random", "image": "i", "network": "vgg11"}, "write vgg16 or vgg19"),
        ({"source": "random", "image": "i", "linear": "file"}, "belong to vgg16 with ImageNet's"),
    ):
        with pytest.raises(ValueError, match=message):
            PerceptualDistance(mode="m", target="target", **arguments)  # type: ignore[arg-type]
    dump = dump_of(tmp_path, target=pictures(1, 32), half=pictures(1, 16), tiny=pictures(1, 8))
    for image, target, message in (
        ("half", "target", r"images have the shape \(3, 16, 16\), targets \(3, 32, 32\)"),
        ("tiny", "tiny", "8 x 8 px; 16 or more are needed"),
    ):
        with pytest.raises(UserError, match=message):
            PerceptualDistance(mode="m", image=image, target=target, source="random")(dump, BOOTSTRAP)
