"""Pixel losses against NumPy and SciPy in float64."""

import numpy as np
import pytest
import torch
from scipy.ndimage import correlate

from models.images.pixel_losses import L1, L2, Cosine, Direct, FocalFrequency, Gradient, Laplacian, Sobel

RANDOM = np.random.default_rng(8)
IMAGE, TARGET = RANDOM.uniform(-1, 1, (2, 3, 4, 5, 6))
MASK = RANDOM.uniform(0, 1, (3, 1, 5, 6))


def t(array):
    return torch.from_numpy(np.asarray(array))


def cosine(a, b):
    return 1 - (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


DISTANCES = {
    "l1": (L1(), np.abs(IMAGE - TARGET)),
    "l2": (L2(), (IMAGE - TARGET) ** 2),
    "cosine": (Cosine(), cosine(IMAGE, TARGET)[:, None]),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_values(name):
    loss, expected = DISTANCES[name]
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        found = loss(image=t(IMAGE).to(dtype), target=t(TARGET).to(dtype))
        assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2}[dtype]
        np.testing.assert_allclose(found, expected.mean(axis=(1, 2, 3)), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", DISTANCES)
def test_masks(name):
    loss, distance = DISTANCES[name]
    loss.background = 0.2
    expected = (distance * (MASK + 0.2 * (1 - MASK))).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(loss(image=t(IMAGE), target=t(TARGET), mask=t(MASK)), expected, rtol=1e-12)
    loss.background = 1.0
    for shape in [(3, 5, 6), (3, 1, 1, 5), (3, 2, 5, 6)]:
        with pytest.raises(ValueError, match="mask of shape"):
            loss(image=t(IMAGE), target=t(TARGET), mask=torch.ones(shape))


@pytest.mark.parametrize("loss", [Cosine(), FocalFrequency(alpha=0.0)])
def test_slopes_by_finite_differences(loss):
    image, target = t(IMAGE[:, :, :2, :3].copy()).requires_grad_(), t(TARGET[:, :, :2, :3].copy())
    assert torch.autograd.gradcheck(lambda x: loss(image=x, target=target), (image,))


def test_ends_of_the_shapes():
    same = t(IMAGE)
    np.testing.assert_allclose(Cosine()(image=same, target=3 * same), 0, atol=1e-12)
    np.testing.assert_allclose(Cosine()(image=same, target=-same), 2, atol=1e-12)
    zeros = torch.zeros(2, 4, 1, 1, requires_grad=True)
    found = Cosine()(image=zeros, target=torch.ones(2, 4, 1, 1))
    found.sum().backward()
    assert torch.equal(found.detach(), torch.ones(2))
    assert zeros.grad.isfinite().all()


MAPS = {
    name: RANDOM.normal(size=shape) for name, shape in {"a": (2, 3, 8, 8), "b.1": (2, 6, 4, 4), "c": (2, 9)}.items()
}
OTHERS = {name: RANDOM.normal(size=values.shape) for name, values in MAPS.items()}


@pytest.mark.parametrize("weights", [None, {"b.1": 0.5, "a": 1.0, "c": 0.0}])
def test_a_dictionary_is_added_up_by_its_weights(weights):
    image, target = ({name: t(values) for name, values in maps.items()} for maps in (MAPS, OTHERS))
    expected = sum(
        (weights or {}).get(name, 1.0) * np.abs(MAPS[name] - OTHERS[name]).reshape(2, -1).mean(axis=1) for name in MAPS
    )
    np.testing.assert_allclose(L1(leaf_weights=weights)(image=image, target=target), expected, rtol=1e-12)
    row = torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)
    found = L1(background=0.0)(image={"a": image["a"]}, target={"a": target["a"]}, mask=row)
    np.testing.assert_allclose(found, np.abs(MAPS["a"] - OTHERS["a"]).mean(axis=(1, 2, 3)) * [1, 0], rtol=1e-12)


def test_direct_is_a_mean_of_each_instance():
    values = RANDOM.normal(size=(3, 2, 4))
    np.testing.assert_allclose(Direct()(value=t(values)), values.mean(axis=(1, 2)), rtol=1e-12)
    assert torch.equal(Direct()(value=t(values[:, 0, 0])), t(values[:, 0, 0]))
    assert Direct()(value=torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.float32
    with pytest.raises(ValueError, match="one number for the batch"):
        Direct()(value=torch.tensor(1.0))


def test_focal_frequency_against_a_transform_by_hand():
    rows, columns = np.arange(5), np.arange(6)
    left = np.exp(-2j * np.pi * np.outer(rows, rows) / 5)
    right = np.exp(-2j * np.pi * np.outer(columns, columns) / 6)
    for alpha in (0.5, 1.0, 2.0):
        expected = []
        for a, b in zip(IMAGE, TARGET, strict=True):
            parts = []
            for x, y in zip(a, b, strict=True):
                size = np.abs(left @ x @ right - left @ y @ right) / np.sqrt(30)
                parts.append((size**alpha / (size**alpha).max() * size**2).mean())
            expected.append(np.mean(parts))
        np.testing.assert_allclose(FocalFrequency(alpha=alpha)(image=t(IMAGE), target=t(TARGET)), expected, rtol=1e-10)


def test_focal_frequency_of_no_exponent_is_l2_and_of_no_difference_0():
    plain = FocalFrequency(alpha=0.0)(image=t(IMAGE), target=t(TARGET))
    np.testing.assert_allclose(plain, ((IMAGE - TARGET) ** 2).mean(axis=(1, 2, 3)), rtol=1e-12)
    image = t(IMAGE).requires_grad_()
    found = FocalFrequency(alpha=1.0)(image=image, target=t(IMAGE))
    found.sum().backward()
    assert (found == 0).all()
    assert (image.grad == 0).all()


def test_weights_of_frequencies_carry_no_gradient():
    """With one wave of two amplitudes, all weights are 1: the slope is that of the power alone."""
    wave = torch.cos(2 * torch.pi * torch.arange(8) / 8).expand(1, 1, 8, 8).double()
    a = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    FocalFrequency(alpha=1.0)(image=a * wave, target=torch.zeros_like(wave)).sum().backward()
    assert a.grad.item() == pytest.approx(2 * 0.3 * 0.5)  # d/da of a^2 mean(cos^2)


# --- differences of neighbours ---


@pytest.mark.parametrize("signed", [False, True])
def test_gradient_of_pictures(signed):
    parts = []
    for axis in (3, 2):
        da, db = np.diff(IMAGE, axis=axis), np.diff(TARGET, axis=axis)
        difference = np.abs(da - db) if signed else np.abs(np.abs(da) - np.abs(db))
        parts.append(difference.mean(axis=(1, 2, 3)))
    found = Gradient(signed=signed)(image=t(IMAGE), target=t(TARGET))
    np.testing.assert_allclose(found, sum(parts), rtol=1e-12)
    negative = Gradient(signed=signed)(image=t(IMAGE), target=-t(IMAGE))
    assert (negative > 0.5).all() if signed else not negative.any()


@pytest.mark.parametrize("loss", [Gradient(signed=True), Sobel(), Laplacian()])
def test_half_precision_and_autocast_compute_in_float32(loss):
    image, target = torch.rand(2, 2, 3, 32, 32, generator=torch.Generator().manual_seed(3)).bfloat16()
    expected = loss(image=image.double(), target=target.double()).float()
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(image=image, target=target)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, rtol=1e-5)


KX = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], dtype=np.float64)
LAPLACE = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=np.float64)


def magnitude(grey):
    gx, gy = (correlate(grey, kernel, mode="constant") for kernel in (KX, KX.T))
    return np.sqrt(gx**2 + gy**2 + 1e-6)


def laplacian(grey):
    return correlate(grey, LAPLACE, mode="constant")


@pytest.mark.parametrize(("loss", "edges"), [(Sobel(), magnitude), (Laplacian(), laplacian)])
@pytest.mark.parametrize("shape", [(3, 3, 7, 5), (1, 1, 1, 4)])
def test_edges_agree_with_scipy(loss, edges, shape):
    image, target = np.random.default_rng(1).uniform(-1, 1, (2, *shape))
    pairs = zip(image.mean(axis=1), target.mean(axis=1), strict=True)
    expected = [np.abs(edges(a) - edges(b)).mean() for a, b in pairs]
    found = loss(image=torch.from_numpy(image), target=torch.from_numpy(target))
    assert found.shape == (shape[0],)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    single = loss(image=torch.from_numpy(image).float(), target=torch.from_numpy(target).float())
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, expected, atol=1e-6)


@pytest.mark.parametrize("loss", [Sobel(), Laplacian()])
def test_gradients_of_edges_are_right_and_finite_on_flat_images(loss):
    random = torch.Generator().manual_seed(2)
    image = torch.rand(1, 2, 5, 4, dtype=torch.float64, generator=random, requires_grad=True)
    target = torch.rand(1, 2, 5, 4, dtype=torch.float64, generator=random)
    assert torch.autograd.gradcheck(lambda x: loss(image=x, target=target), image)
    flat = torch.zeros(1, 3, 6, 6, requires_grad=True)
    loss(image=flat, target=torch.ones(1, 3, 6, 6)).sum().backward()
    assert flat.grad.isfinite().all()


MAP = {"a": t(IMAGE)}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: L1()(image={"relu1": t(IMAGE)}, target=MAP), "target has the names a, but image relu1"),
        (lambda: L1(leaf_weights={"a": 1.0, "b": 1.0})(image=MAP, target=MAP), "leaf_weights has the names a, b, but"),
        (lambda: L1()(image=t(IMAGE), target=MAP), "one of image and target is a tensor"),
        (lambda: L1()(image=t(IMAGE), target=t(IMAGE[:, :1])), r"shape \(3, 4, 5, 6\) against target of shape \(3, 1,"),
    ],
)
def test_what_does_not_fit(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()
