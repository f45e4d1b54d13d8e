"""Images compared by their spectra."""

import math

import torch
from torch import Tensor

from models.engine.losses import Loss
from models.images.losses import at_least_float32, instance_means


class FocalFrequency(Loss):
    """`mean of w |F|^2`, F the spectrum of the difference, w high where it is far off (Jiang et al. 2021, eq. 6 to 8).

    F is the two-dimensional discrete Fourier transform of each channel, divided by sqrt(H W), so that with equal weights
    the value is that of L2 (Parseval). `w = |F|^alpha`, divided by its largest value in the channel, carries no gradient:
    what a network draws worst counts fully, the rest less.

    Args:
        alpha: how much it looks away from frequencies that are right already, 0 or more; 1 in the paper, 0 is L2.
    """

    def __init__(self, *, alpha: float) -> None:
        super().__init__()
        if not 0 <= alpha < math.inf:
            raise ValueError(f"alpha {alpha}: an exponent of 0 or more is needed")
        self.alpha = alpha

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Images (N, C, H, W) in [-1, 1], of one shape -> (N,)."""
        if image.shape != target.shape:
            raise ValueError(f"image of shape {tuple(image.shape)} against target of shape {tuple(target.shape)}")
        # the transform is linear: once, on the difference
        spectrum = torch.fft.fft2(at_least_float32(image) - at_least_float32(target), norm="ortho")
        power = spectrum.real.square() + spectrum.imag.square()
        weights = power.detach() ** (self.alpha / 2)
        largest = weights.amax(dim=(-2, -1), keepdim=True)
        return instance_means(power * weights / torch.where(largest == 0, 1, largest))
