"""Adversarial losses against NumPy float64, and the gradient penalty against slopes known in closed form."""

import numpy as np
import pytest
import torch

from models.images.adversarial_losses import Adversarial, GradientPenalty

RANDOM = np.random.default_rng(4)
LOGITS = RANDOM.normal(0, 3, (3, 1, 4, 5))
OPPOSITE = RANDOM.normal(1, 2, (2, 1, 4, 5))
AVERAGES = ["relativistic_average", "relativistic_average_lsgan", "relativistic_average_hinge"]
KINDS = ["vanilla", "lsgan", "hinge", "wgan", *AVERAGES]


def cross_entropy(z, t):
    """As the definition on probabilities; the logits here are small enough for it."""
    p = 1 / (1 + np.exp(-z))
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


EXPECTED = {
    ("vanilla", "real"): cross_entropy(LOGITS, 1),
    ("vanilla", "fake"): cross_entropy(LOGITS, 0),
    ("lsgan", "real"): (LOGITS - 1) ** 2,
    ("lsgan", "fake"): LOGITS**2,
    ("hinge", "real"): np.maximum(0, 1 - LOGITS),
    ("hinge", "fake"): np.maximum(0, 1 + LOGITS),
    ("relativistic_average", "real"): cross_entropy(LOGITS - OPPOSITE.mean(), 1),
    ("relativistic_average", "fake"): cross_entropy(LOGITS - OPPOSITE.mean(), 0),
    ("relativistic_average_lsgan", "real"): (LOGITS - OPPOSITE.mean() - 1) ** 2,
    ("relativistic_average_lsgan", "fake"): (LOGITS - OPPOSITE.mean() + 1) ** 2,
    ("relativistic_average_hinge", "real"): np.maximum(0, 1 - LOGITS + OPPOSITE.mean()),
    ("relativistic_average_hinge", "fake"): np.maximum(0, 1 + LOGITS - OPPOSITE.mean()),
    ("wgan", "real"): -LOGITS,
    ("wgan", "fake"): LOGITS,
}


def value_of(kind, role, target, dtype=torch.float64):
    inputs = {"logits": torch.from_numpy(LOGITS).to(dtype)}
    if kind in AVERAGES:
        inputs["opposite"] = torch.from_numpy(OPPOSITE).to(dtype)
    return Adversarial(kind=kind, role=role, target=target)(**inputs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["real", "fake"])
@pytest.mark.parametrize("role", ["discriminator", "generator"])
def test_values(kind, role, target):
    if (kind, role, target) == ("hinge", "generator", "fake"):
        with pytest.raises(ValueError, match="write target: real"):
            Adversarial(kind=kind, role=role, target=target)
        return
    expected = -LOGITS if (kind, role) == ("hinge", "generator") else EXPECTED[kind, target]
    found = value_of(kind, role, target)
    assert found.shape == (3,)
    np.testing.assert_allclose(found, expected.mean(axis=(1, 2, 3)), atol=1e-12)
    single = value_of(kind, role, target, torch.bfloat16)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, expected.mean(axis=(1, 2, 3)), rtol=0.02, atol=0.02)


def test_flat_logits_and_large_ones():
    loss = Adversarial(kind="vanilla", role="generator", target="real")
    logits = torch.tensor([[-1000.0, -1000.0], [1000.0, 0.0]], requires_grad=True)
    found = loss(logits=logits)
    np.testing.assert_allclose(found.detach(), [1000.0, np.log(2) / 2], rtol=1e-6)
    found.sum().backward()
    np.testing.assert_allclose(logits.grad, [[-0.5, -0.5], [0.0, -0.25]], atol=1e-7)


def test_relativistic_gradients_reach_both_batches():
    logits, opposite = (torch.from_numpy(x).requires_grad_() for x in (LOGITS, OPPOSITE))
    loss = Adversarial(kind="relativistic_average", role="discriminator", target="real")
    loss(logits=logits, opposite=opposite).sum().backward()
    slope = -1 / (1 + np.exp(LOGITS - OPPOSITE.mean())) / 20  # of each instance's mean over 20 elements
    np.testing.assert_allclose(logits.grad, slope, atol=1e-12)
    np.testing.assert_allclose(opposite.grad, np.full_like(OPPOSITE, -slope.sum() / OPPOSITE.size), atol=1e-12)


@pytest.mark.parametrize("centre", [0.0, 1.0])
def test_penalty_of_a_quadratic(centre):
    """A quadratic, z = a |x|^2 / 2, has slope a |x|; the penalty's own derivative by a is 2 (a |x| - centre) |x|."""
    points = torch.from_numpy(RANDOM.normal(size=(4, 3, 2, 2))).requires_grad_()
    a = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    penalty = GradientPenalty(centre=centre)(points=points, logits=a * points.square().sum(dim=(1, 2, 3))[:, None] / 2)
    norm = np.sqrt((points.detach().numpy() ** 2).sum(axis=(1, 2, 3)))
    assert penalty.shape == (4,)
    np.testing.assert_allclose(penalty.detach(), (0.7 * norm - centre) ** 2, atol=1e-12)
    penalty.sum().backward()
    assert a.grad.item() == pytest.approx((2 * (0.7 * norm - centre) * norm).sum(), abs=1e-10)


def test_penalty_averages_the_map():
    """Each of 6 patches sees one pixel with slope 3: the mean has slope 3/6 a pixel, a norm of 3/sqrt(6)."""
    points = torch.randn(2, 1, 2, 3, dtype=torch.float64, requires_grad=True)
    penalty = GradientPenalty()(points=points, logits=3 * points)
    np.testing.assert_allclose(penalty.detach(), [(3 / np.sqrt(6) - 1) ** 2] * 2, atol=1e-12)


def test_penalty_of_no_slope_is_finite_with_finite_gradients():
    points = torch.randn(2, 3, requires_grad=True)
    a = torch.tensor(0.0, requires_grad=True)
    penalty = GradientPenalty()(points=points, logits=a * points)
    penalty.sum().backward()
    assert torch.equal(penalty.detach(), torch.ones(2))
    assert a.grad.isfinite()


def test_penalty_is_differentiated_outside_of_autocast():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    points = torch.randn(4, 6, requires_grad=True)
    exact = GradientPenalty(centre=0.0)(points=points, logits=layers(points))
    with torch.autocast("cpu", torch.bfloat16):
        found = GradientPenalty(centre=0.0)(points=points, logits=layers(points))
    found.sum().backward()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=0.05, atol=1e-3)
    assert all(p.grad is None or p.grad.isfinite().all() for p in layers.parameters())
