"""Losses of colours in Oklab, and against artefacts, by published values and by hand."""

import numpy as np
import pytest
import torch

from models.images.restoration_losses import LocalDiscrimination, Oklab, oklab

RANDOM = np.random.default_rng(4)


def images(*shape: int) -> torch.Tensor:
    return torch.from_numpy(RANDOM.uniform(-1, 1, shape))


@pytest.mark.parametrize(
    ("colour", "expected"),
    [  # as published with the colour space, to three decimals
        ((1, 1, 1), (1.000, 0.000, 0.000)),
        ((1, 0, 0), (0.628, 0.225, 0.126)),
        ((0, 1, 0), (0.866, -0.234, 0.179)),
        ((0, 0, 1), (0.452, -0.032, -0.312)),
    ],
)
def test_oklab_of_known_colours(colour, expected):
    pixel = 2 * torch.tensor(colour, dtype=torch.float64).view(1, 3, 1, 1) - 1
    np.testing.assert_allclose(oklab(pixel).flatten(), expected, atol=6e-4)


def test_differences_in_oklab():
    image, target = images(2, 3, 4, 5).requires_grad_(), images(2, 3, 4, 5)
    expected = (oklab(image) - oklab(target)).abs().detach()
    np.testing.assert_allclose(Oklab()(image=image, target=target).detach(), expected.mean(dim=(1, 2, 3)))
    black = torch.full((1, 3, 2, 2), -1.0, requires_grad=True)
    Oklab()(image=black, target=torch.zeros(1, 3, 2, 2)).sum().backward()
    assert black.grad is not None
    assert black.grad.isfinite().all()
    with pytest.raises(ValueError, match="colours are needed"):
        Oklab()(image=images(1, 1, 2, 2), target=images(1, 1, 2, 2))


@pytest.mark.parametrize("averaged", [False, True])
def test_local_discrimination_by_hand(averaged):
    image, target, average = (images(2, 3, 9, 8) for _ in range(3))
    ours, truth, theirs = (((one + 1) / 2).numpy() for one in (image, target, average))
    residual, other = np.abs(ours - truth).sum(axis=1), np.abs(theirs - truth).sum(axis=1)
    margin, window = 3, 7
    padded = np.pad(residual, ((0, 0), (margin, margin), (margin, margin)), mode="reflect")
    expected = []
    for n in range(2):
        total = 0.0
        for y in range(9):
            for x in range(8):
                weight = padded[n, y : y + window, x : x + window].var(ddof=1) * residual[n].var(ddof=1) ** 0.2
                if not averaged or residual[n, y, x] >= other[n, y, x]:
                    total += weight * np.abs(ours - truth)[n, :, y, x].sum()
        expected.append(total / (3 * 9 * 8))
    image.requires_grad_()
    found = LocalDiscrimination()(image=image, target=target, average=average if averaged else None)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-9)
    found.sum().backward()
    assert image.grad is not None
    assert (image.grad != 0).double().mean() > 0.3
