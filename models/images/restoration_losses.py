"""Losses of restored pictures: differences of colours as people see them, and against artefacts that GANs invent."""

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.interfaces import Loss

from .example_means import at_least_float32, example_means

WINDOW = 7  # pixels, of `LocalDiscrimination`
DARKEST = 1e-6  # of linear light: the cube root's slope is infinite at 0
CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
AXES = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def oklab(images: Tensor) -> Tensor:
    """Convert sRGB images (N, 3, H, W) in [-1, 1], clipped there, to lightness in [0, 1], green-red and blue-yellow.

    Ottosson, *A perceptual color space for image processing*, 2020: linear light, the responses of three cones, their
    cube roots, three axes. The gradient is 0 outside [-1, 1].
    """
    values = (images.clamp(-1, 1) + 1) / 2
    linear = torch.where(values <= 0.04045, values / 12.92, ((values.clamp_min(0.04045) + 0.055) / 1.055) ** 2.4)
    cones = torch.einsum("cd,ndhw->nchw", linear.new_tensor(CONES), linear)
    return torch.einsum("cd,ndhw->nchw", linear.new_tensor(AXES), cones.clamp_min(DARKEST) ** (1 / 3))


class Oklab(Loss):
    """Mean absolute difference in Oklab, over all three axes: (N, 3, H, W) -> (N,)."""

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Images (N, 3, H, W) in [-1, 1], sRGB -> (N,). Raises ValueError for other shapes."""
        if image.shape != target.shape or image.shape[1] != 3:
            raise ValueError(f"image of shape {tuple(image.shape)} against {tuple(target.shape)}; colours are needed")
        ours, theirs = (oklab(at_least_float32(one)) for one in (image, target))
        return example_means((ours - theirs).abs())


class LocalDiscrimination(Loss):
    """Absolute differences, weighted by how much they vary around a pixel (LDL; Liang, Zeng and Zhang, CVPR 2022).

    With images in [0, 1] and the residual r, the sum over channels of absolute differences, the weight of a pixel is
    the variance of r in a window of 7 x 7 pixels around it, times the variance of r in the whole image to the power of
    1/5; r is reflected at borders. It is 0 where the residual is smaller than that of `average`, the output of the
    averaged weights (`weights: ema` of `Forward`): there, the training is on its way. Weights have no gradient.
    """

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
        margin, count = WINDOW // 2, WINDOW**2
        padded = F.pad(residual, (margin,) * 4, mode="reflect")
        mean = F.avg_pool2d(padded, WINDOW, stride=1)
        square = F.avg_pool2d(padded.square(), WINDOW, stride=1)
        local = (square - mean.square()).clamp_min(0) * count / (count - 1)
        return local * residual.flatten(1).var(dim=1).view(-1, 1, 1, 1) ** 0.2


def _distance(image: Tensor, target: Tensor) -> Tensor:
    """Images (N, C, H, W) in [-1, 1] -> absolute differences in [0, 1]."""
    return ((at_least_float32(image) - at_least_float32(target)) / 2).abs()
