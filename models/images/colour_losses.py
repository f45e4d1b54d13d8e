"""Losses in a colour space in which distances are those that people see."""

from typing import Literal

import torch
from torch import Tensor

from figura.interfaces import Loss
from models.images.example_means import at_least_float32, example_means

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
    """Mean absolute difference in Oklab, over all three axes or those of `chroma` alone: (N, 3, H, W) -> (N,)."""

    def __init__(self, *, axes: Literal["all", "chroma"] = "all") -> None:
        super().__init__()
        self.first = 0 if axes == "all" else 1

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Images (N, 3, H, W) in [-1, 1], sRGB -> (N,). Raises ValueError for other shapes."""
        if image.shape != target.shape or image.shape[1] != 3:
            raise ValueError(f"image of shape {tuple(image.shape)} against {tuple(target.shape)}; colours are needed")
        ours, theirs = (oklab(at_least_float32(one))[:, self.first :] for one in (image, target))
        return example_means((ours - theirs).abs())
