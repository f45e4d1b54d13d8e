"""The figures of super-resolution papers: PSNR and SSIM of the luma, dataset by dataset."""

from typing import ClassVar

import numpy as np
from torch import Tensor

from figura.dump import Dump
from figura.report.interfaces import Bootstrap, Estimate, groups_of

from ..images.argument_types import Count
from ..images.scores import PictureScore, luma, psnr, ssim


class Benchmark(PictureScore):
    """`<dataset>_psnr_y` and `<dataset>_ssim_y` of each dataset in the dump, with bootstrap intervals over its images.

    Luma is BT.601's, not rounded, of 16 to 235 for a peak of 255; a border of `scale` pixels does not count. A figure
    is the mean over images. An image whose file is grey (Set14's bridge) is scored by its levels, 0 to 255, as the
    MATLAB scripts from SRCNN to EDSR do; with `grey_as_luma` by its luma, as in BasicSR, where it has 1.32 dB more.
    """

    from_data: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(self, mode: str, target: str, image: str, scale: Count, grey_as_luma: bool = False) -> None:
        super().__init__(mode, target, image, None)
        self.scale, self.grey_as_luma = scale, grey_as_luma

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        metrics: dict[str, Estimate | float | int] = {}
        for dataset, table in rows.table.groupby("dataset", sort=False):
            grey = [False] * len(table) if self.grey_as_luma or "grey" not in table else table["grey"] == 1
            own = rows.rows(table)
            pairs, owners = self.pairs(own, 1), groups_of(own, self.mode, None)
            values = np.array([self._scores(rows, pair, levels=one) for pair, one in zip(pairs, grey, strict=True)])
            metrics[f"{dataset}_psnr_y"] = bootstrap.estimate(values[:, 0], groups=owners)
            metrics[f"{dataset}_ssim_y"] = bootstrap.estimate(values[:, 1], groups=owners)
            metrics[f"{dataset}_images"] = len(table)
        return metrics

    def _scores(self, rows: Dump, pair: list[Tensor], *, levels: bool) -> tuple[float, float]:
        """Return PSNR and SSIM of an image and its target, (1, 3, H, W) in [-1, 1]."""
        image, target = self.cropped(rows, [x[:, :1] + 1 if levels else luma(x) for x in pair], self.scale)
        return psnr(image, target).item(), ssim(image, target).item()
