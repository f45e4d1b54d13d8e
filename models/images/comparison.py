"""How far predicted pictures are from the true ones."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from models.images.report.scores import WINDOW, l1, psnr, ssim
from models.prediction.comparison import Comparison


class PictureComparison(Comparison):
    """L1, PSNR and SSIM of each picture, as `images.Fidelity` has them; no SSIM (NaN) below its window of 11 pixels."""

    names: ClassVar[tuple[str, ...]] = ("l1", "psnr", "ssim")

    def __call__(self, image: Tensor, target: Tensor) -> Mapping[str, Tensor]:
        scores = {"l1": l1(image, target), "psnr": psnr(image, target)}
        small = min(image.shape[-2:]) < WINDOW
        return {**scores, "ssim": scores["l1"] * float("nan") if small else ssim(image, target)}
