"""Pixel losses against loops over float64 NumPy arrays."""

import numpy as np
import pytest
import torch

from models.images.pixel_losses import L1, L2, Gradient


@pytest.fixture
def pictures():
    rng = np.random.default_rng(3)
    image, target = rng.uniform(-1, 1, (2, 3, 3, 5, 7))
    return image, target, rng.uniform(0, 1, (3, 1, 5, 7))


def check(loss, expected, **arrays):
    found = loss(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    assert found.shape == (len(expected),)
    assert np.allclose(found, expected, rtol=0, atol=1e-6)
    single = loss(**{name: torch.from_numpy(array).float() for name, array in arrays.items()})
    assert single.dtype == torch.float32
    assert np.allclose(single, expected, rtol=0, atol=1e-6)


def test_l1_and_l2(pictures):
    image, target, _ = pictures
    check(L1(), [np.abs(a - b).sum() / a.size for a, b in zip(image, target, strict=True)], image=image, target=target)
    check(L2(), [((a - b) ** 2).sum() / a.size for a, b in zip(image, target, strict=True)], image=image, target=target)


@pytest.mark.parametrize(("loss", "power"), [(L1, 1), (L2, 2)])
@pytest.mark.parametrize("background", [0.0, 0.2, 1.0])
def test_mask_weighs_elements(pictures, loss, power, background):
    image, target, mask = pictures
    expected = []
    for a, b, m in zip(image, target, mask, strict=True):
        total = 0.0
        for channel, y, x in np.ndindex(a.shape):
            weight = m[0, y, x] + background * (1 - m[0, y, x])
            total += weight * abs(a[channel, y, x] - b[channel, y, x]) ** power
        expected.append(total / a.size)
    check(loss(background=background), expected, image=image, target=target, mask=mask)


@pytest.mark.parametrize("signed", [False, True])
def test_gradient(pictures, signed):
    image, target, _ = pictures
    expected = []
    for a, b in zip(image, target, strict=True):
        parts = []
        for axis in (2, 1):
            da, db = np.diff(a, axis=axis), np.diff(b, axis=axis)
            parts.append(np.abs(da - db).mean() if signed else np.abs(np.abs(da) - np.abs(db)).mean())
        expected.append(sum(parts))
    check(Gradient(signed=signed), expected, image=image, target=target)


def test_only_the_signed_gradient_tells_an_image_from_its_negative(pictures):
    image = torch.from_numpy(pictures[0])
    assert torch.equal(Gradient(signed=False)(image=image, target=-image), torch.zeros(3, dtype=torch.float64))
    assert (Gradient(signed=True)(image=image, target=-image) > 0.5).all()


@pytest.mark.parametrize("loss", [L1(), L2(), Gradient(signed=True)])
def test_half_precision_images_are_compared_in_float32(loss):
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = loss(image=image, target=torch.zeros_like(image))
    assert found.dtype == torch.float32
    assert torch.allclose(found, loss(image=image.double(), target=torch.zeros(1, 3, 64, 64)).float(), rtol=1e-5)
