import math

import pytest
import torch

from models.images.dropout import dropout


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_elements_are_dropped_with_probability_p_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(3, 7, 101, 99)
    y = dropout(x, p, True)
    share = (y == 0).float().mean().item()
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / x.numel())
    assert y[y != 0].unique().tolist() == pytest.approx([1 / (1 - p)], rel=2e-4)  # p is a multiple of 1 / 65,536
    for before, after in ((y[:, :-1], y[:, 1:]), (y[..., :-1], y[..., 1:]), (y[:-1], y[1:])):  # neighbours
        agree = p**2 + (1 - p) ** 2  # of independent ones
        alike = ((before == 0) == (after == 0)).float().mean().item()
        assert abs(alike - agree) < 5 * math.sqrt(agree * (1 - agree) / before.numel())


def test_a_probability_below_the_resolution_is_dropped_too() -> None:
    torch.manual_seed(0)
    y = dropout(torch.ones(1, 10, 1000, 1000), 1e-6, True)
    assert 1 <= (y == 0).sum().item() <= 30


def test_the_gradient_passes_through_the_mask() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 3, 5, 7).add_(0.5).requires_grad_()
    y = dropout(x, 0.25, True)
    y.backward(torch.full_like(y, 3.0))
    assert x.grad is not None
    assert torch.allclose(x.grad, 3 * y.detach() / x.detach())
    assert sorted(x.grad.unique().tolist()) == [0.0, 4.0]


def test_the_mask_depends_on_the_seed_and_not_on_the_memory_layout() -> None:
    x = torch.rand(2, 3, 5, 7) + 0.5
    torch.manual_seed(0)
    y = dropout(x, 0.5, True)
    torch.manual_seed(0)
    assert torch.equal(dropout(x.contiguous(memory_format=torch.channels_last), 0.5, True), y)
    assert not torch.equal(dropout(x, 0.5, True), y)


def test_nothing_is_dropped_without_training_or_at_zero() -> None:
    x = torch.rand(2, 3, 5, 7)
    assert torch.equal(dropout(x, 0.5, False), x)
    assert torch.equal(dropout(x, 0.0, True), x)
