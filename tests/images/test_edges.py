"""Sobel and Laplacian losses against SciPy's correlation in float64 and values recorded from the reference."""

import numpy as np
import pytest
import torch
from scipy.ndimage import correlate

from models.images.pixel_losses import Laplacian, Sobel

KX = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], dtype=np.float64)
LAPLACE = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=np.float64)


def magnitude(grey):
    gx, gy = (correlate(grey, kernel, mode="constant") for kernel in (KX, KX.T))
    return np.sqrt(gx**2 + gy**2 + 1e-6)


def laplacian(grey):
    return correlate(grey, LAPLACE, mode="constant")


@pytest.mark.parametrize(("loss", "edges"), [(Sobel(), magnitude), (Laplacian(), laplacian)])
@pytest.mark.parametrize("shape", [(3, 3, 7, 5), (1, 1, 1, 4), (2, 4, 16, 16)])
def test_agree_with_scipy(loss, edges, shape):
    image, target = np.random.default_rng(1).uniform(-1, 1, (2, *shape))
    pairs = zip(image.mean(axis=1), target.mean(axis=1), strict=True)
    expected = [np.abs(edges(a) - edges(b)).mean() for a, b in pairs]
    found = loss(image=torch.from_numpy(image), target=torch.from_numpy(target))
    assert found.shape == (shape[0],)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    single = loss(image=torch.from_numpy(image).float(), target=torch.from_numpy(target).float())
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, expected, atol=1e-6)


RAMP = (torch.arange(16) / 16).view(4, 4)
POINT = torch.zeros(5, 5)
POINT[2, 2] = 1


@pytest.mark.parametrize(
    ("picture", "sobel", "laplace"),
    [(RAMP, 2.1060905, 0.546875), (POINT, 0.5459543, 0.32), (torch.ones(5, 5), 2.5981827, 0.8)],
)
def test_recorded_values_against_zeros(picture, sobel, laplace):
    image = picture.expand(1, 3, -1, -1)
    assert Sobel()(image=image, target=torch.zeros_like(image)).item() == pytest.approx(sobel, abs=1e-6)
    assert Laplacian()(image=image, target=torch.zeros_like(image)).item() == pytest.approx(laplace, abs=1e-6)


def test_blind_to_colour_that_cancels_in_grey():
    image = torch.stack([RAMP, torch.full((4, 4), 0.5), -RAMP])[None]
    assert (image - image.flip(-1)).abs().mean().item() == pytest.approx(0.0833333, abs=1e-6)
    assert Sobel()(image=image, target=image.flip(-1)).item() == 0
    assert Laplacian()(image=image, target=image.flip(-1)).item() == 0


@pytest.mark.parametrize("loss", [Sobel(), Laplacian()])
def test_gradients_are_right_and_finite_on_flat_images(loss):
    random = torch.Generator().manual_seed(2)
    image = torch.rand(1, 2, 5, 4, dtype=torch.float64, generator=random, requires_grad=True)
    target = torch.rand(1, 2, 5, 4, dtype=torch.float64, generator=random)
    assert torch.autograd.gradcheck(lambda x: loss(image=x, target=target), image)
    flat = torch.zeros(1, 3, 6, 6, requires_grad=True)
    loss(image=flat, target=torch.ones(1, 3, 6, 6)).sum().backward()
    assert flat.grad.isfinite().all()


@pytest.mark.parametrize("loss", [Sobel(), Laplacian()])
def test_half_precision_and_autocast_compute_in_float32(loss):
    image, target = torch.rand(2, 2, 3, 32, 32, generator=torch.Generator().manual_seed(3)).bfloat16()
    expected = loss(image=image.double(), target=target.double()).float()
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(image=image, target=target)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, rtol=1e-5)
    assert list(loss.parameters()) == []
