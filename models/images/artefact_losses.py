"""A loss against the artefacts that adversarial training invents in super-resolution."""

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.interfaces import Loss
from models.images.example_means import at_least_float32, example_means


class LocalDiscrimination(Loss):
    """Absolute differences, weighted by how much they vary around a pixel (LDL; Liang, Zeng and Zhang, CVPR 2022).

    With images in [0, 1] and the residual r, the sum over channels of absolute differences, the weight of a pixel is
    the variance of r in a window around it, times the variance of r in the whole image to the power of 1/5; r is
    reflected at borders. It is 0 where the residual is smaller than that of `average`, the output of the averaged
    weights (`weights: ema` of `Forward`): there, the training is on its way. Weights have no gradient.

    Args:
        window: side in pixels, odd; 7 in the paper.

    Raises:
        ValueError: the window is even or below 3.
    """

    def __init__(self, *, window: int = 7) -> None:
        super().__init__()
        if window < 3 or window % 2 == 0:
            raise ValueError(f"window {window}: an odd number from 3 is needed")
        self.window = window

    def forward(  # type: ignore[override]
        self, *, image: Tensor, target: Tensor, average: Tensor | None = None
    ) -> Tensor:
        """Images (N, C, H, W) in [-1, 1], of one shape, sides above half the window -> (N,)."""
        distance = _distance(image, target)
        with torch.no_grad():
            residual = distance.sum(dim=1, keepdim=True)
            weights = self.weights(residual)
            if average is not None:
                weights = weights * (residual >= _distance(average, target).sum(dim=1, keepdim=True))
        return example_means(weights * distance)

    def weights(self, residual: Tensor) -> Tensor:
        """(N, 1, H, W) -> (N, 1, H, W); variances divide by one less than the number of pixels."""
        margin, count = self.window // 2, self.window**2
        padded = F.pad(residual, (margin,) * 4, mode="reflect")
        mean = F.avg_pool2d(padded, self.window, stride=1)
        square = F.avg_pool2d(padded.square(), self.window, stride=1)
        local = (square - mean.square()).clamp_min(0) * count / (count - 1)
        return local * residual.flatten(1).var(dim=1).view(-1, 1, 1, 1) ** 0.2


def _distance(image: Tensor, target: Tensor) -> Tensor:
    """Images (N, C, H, W) in [-1, 1] -> absolute differences in [0, 1]."""
    return ((at_least_float32(image) - at_least_float32(target)) / 2).abs()
