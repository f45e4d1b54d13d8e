"""Distances between predicted and true pictures."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from figura.prediction.comparison import Comparison

from .scores import WINDOW, l1, psnr, ssim


class PictureComparison(Comparison):
    """L1, PSNR and SSIM per picture, as in `images.Fidelity`; SSIM is NaN below its window of 11 pixels."""

    names: ClassVar[tuple[str, ...]] = ("l1", "psnr", "ssim")

    def __call__(self, image: Tensor, target: Tensor) -> Mapping[str, Tensor]:
        scores = {"l1": l1(image, target), "psnr": psnr(image, target)}
        small = min(image.shape[-2:]) < WINDOW
        return {**scores, "ssim": scores["l1"] * float("nan") if small else ssim(image, target)}
