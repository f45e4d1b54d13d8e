"""How near generated images are to their targets; protocols are part of the names.

`l1` mean absolute difference in [-1, 1] units; `l1_person` the same over the person's mask; `psnr` in dB of images in
[-1, 1]; `ssim` Gaussian window, sigma 1.5, 11 px, population covariance, colour channels averaged, data range 2 (the same
as 255 for 8 bits), averaged where the window lies inside the image, as scikit-image and the field's protocols do (Wang et
al. 2004); `ms_ssim` with as many of the five scales as the image holds, their exponents renormalised to sum to one, borders
reflected (Wang et al. 2003, by torchmetrics).
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from models.engine.dump import Dump
from models.engine.errors import UserError
from models.engine.scores import Bootstrap, Estimate, Score, Values

MS_SSIM_EXPONENTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
WINDOW = 11
BATCH = 64  # images in memory at a time


def l1(image: Tensor, target: Tensor) -> Tensor:
    """Mean absolute difference; (N, C, H, W) in [-1, 1] -> (N,)."""
    return (image - target).abs().mean(dim=(1, 2, 3))


def l1_masked(image: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean absolute difference weighted by a mask (N, 1, H, W) in [0, 1] -> (N,); NaN where the mask is empty."""
    return ((image - target).abs().mean(dim=1, keepdim=True) * mask).sum(dim=(1, 2, 3)) / mask.sum(dim=(1, 2, 3))


def psnr(image: Tensor, target: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, peak to peak 2; (N, C, H, W) in [-1, 1] -> (N,)."""
    return 10 * torch.log10(4 / (image - target).square().mean(dim=(1, 2, 3)).clamp_min(1e-12))


def ssim(image: Tensor, target: Tensor) -> Tensor:
    """Structural similarity; (N, C, H, W) in [-1, 1] -> (N,)."""
    from torchmetrics.functional.image import structural_similarity_index_measure  # takes seconds to import

    _, similarity = structural_similarity_index_measure(
        image, target, sigma=1.5, kernel_size=WINDOW, data_range=2.0, reduction="none", return_full_image=True
    )
    border = WINDOW // 2
    return similarity[..., border:-border, border:-border].mean(dim=(1, 2, 3))


def scales_of(size: int) -> int:
    """Return how many scales of MS-SSIM an image of `size` pixels holds: the window must fit the smallest."""
    return max(1, sum(size // 2**scale >= WINDOW for scale in range(len(MS_SSIM_EXPONENTS))))


def ms_ssim(image: Tensor, target: Tensor) -> Tensor:
    """Multi-scale structural similarity; (N, C, H, W) in [-1, 1] -> (N,)."""
    from torchmetrics.functional.image import multiscale_structural_similarity_index_measure

    exponents = MS_SSIM_EXPONENTS[: scales_of(min(image.shape[-2:]))]
    betas = tuple(exponent / sum(exponents) for exponent in exponents)
    compute = partial(
        multiscale_structural_similarity_index_measure,
        sigma=1.5,
        kernel_size=WINDOW,
        data_range=2.0,
        betas=betas,
        normalize="relu",
    )
    return compute(image, target, reduction="none").reshape(-1)


class Fidelity(Score):
    """L1, PSNR, SSIM and MS-SSIM of a mode's images against their targets, with bootstrap intervals.

    `image` names what is judged; for a baseline, `average` names a training mean to judge instead, or `image` an input.
    """

    def __init__(
        self, mode: str, target: str, image: str | None = None, average: str | None = None, mask: str | None = None
    ) -> None:
        if (image is None) == (average is None):
            raise ValueError("write either image or average")
        self.mode, self.target, self.image, self.average, self.mask = mode, target, image, average, mask

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        parts = [self._batch(rows, range(first, min(first + BATCH, len(rows)))) for first in range(0, len(rows), BATCH)]
        values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        values = {name: column[np.isfinite(column)] for name, column in values.items()}
        if empty := [name for name, column in values.items() if not len(column)]:
            raise UserError(f"{dump.folder}: mode {self.mode!r}: nothing to average for {', '.join(empty)}")
        return {name: bootstrap.estimate(column) for name, column in values.items()} | {"images": len(rows)}

    def _batch(self, rows: Dump, places: range) -> dict[str, Values]:
        target = _stack(rows, places, self.target)
        if self.average is not None:
            image = torch.from_numpy(rows.average(self.average)).expand_as(target)
        else:
            image = _stack(rows, places, str(self.image))
        scores = {"l1": l1(image, target), "psnr": psnr(image, target)}
        scores |= {"ssim": ssim(image, target), "ms_ssim": ms_ssim(image, target)}
        if self.mask is not None:
            scores["l1_person"] = l1_masked(image, target, _stack(rows, places, self.mask))
        return {name: value.double().numpy() for name, value in scores.items()}


def _stack(rows: Dump, places: range, name: str) -> Tensor:
    return torch.from_numpy(np.stack([rows.value(place, name) for place in places]))


class Times(Score):
    """Milliseconds an image took, by injector of a mode: the mean and the 95th percentile.

    They are in a dump that was written with `evaluate.timing`; such a dump, and these figures, differ each time.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        table = dump.mode(self.mode).table
        times = [str(column) for column in table if str(column).startswith("ms.")]
        if not times:
            raise UserError(f"{dump.folder}: mode {self.mode!r} has no column of times; it needs evaluate.timing: true")
        figures: dict[str, Estimate | float | int] = {}
        for column in times:
            values, name = table[column].to_numpy(dtype=np.float64), column.removeprefix("ms.")
            figures |= {name: bootstrap.estimate(values), f"{name}_95": float(np.quantile(values, 0.95))}
        return figures
