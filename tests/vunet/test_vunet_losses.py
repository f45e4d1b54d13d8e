"""The latent KL against float64 NumPy."""

import numpy as np
import pytest
import torch

from models.vunet.losses import LatentKL


def means(seed):
    rng = np.random.default_rng(seed)
    return {"s7": rng.normal(size=(3, 8, 1, 1)), "s6": rng.normal(size=(3, 32, 1, 1))}


def tensors(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def gaussian_kl(q, p):
    """KL of N(q, 1) from N(p, 1) per dimension, by the formula for general variances."""
    variance_q = variance_p = 1.0
    return 0.5 * (np.log(variance_p / variance_q) + (variance_q + (q - p) ** 2) / variance_p - 1)


def test_sums_all_levels_and_channels_in_nats():
    q, p = means(0), means(1)
    expected = [sum(gaussian_kl(q[name][n], p[name][n]).sum() for name in q) for n in range(3)]
    found = LatentKL()(posterior=tensors(q), prior=tensors(p))
    assert found.shape == (3,)
    assert np.allclose(found, expected, rtol=0, atol=1e-6)


def test_per_element_divides_by_the_images_elements():
    q, p = tensors(means(0)), tensors(means(1))
    image = torch.zeros(3, 3, 16, 16)
    nats = LatentKL()(posterior=q, prior=p)
    found = LatentKL(unit="nats_per_element")(posterior=q, prior=p, image=image)
    assert torch.allclose(found * (3 * 16 * 16), nats)
    with pytest.raises(ValueError, match="image"):
        LatentKL(unit="nats_per_element")(posterior=q, prior=p)


def test_gradient_reaches_both_sides():
    q, p = tensors(means(0)), tensors(means(1))
    for side in (q, p):
        for tensor in side.values():
            tensor.requires_grad_()
    LatentKL()(posterior=q, prior=p).sum().backward()
    for name in q:
        assert torch.allclose(q[name].grad, (q[name] - p[name]).detach())
        assert torch.allclose(p[name].grad, -q[name].grad)


def test_half_precision_is_summed_in_float32():
    q = {"a": torch.full((1, 4096, 1, 1), 1.0, dtype=torch.bfloat16)}
    p = {"a": torch.zeros(1, 4096, 1, 1, dtype=torch.bfloat16)}
    found = LatentKL()(posterior=q, prior=p)
    assert found.dtype == torch.float32
    assert found.item() == 2048
