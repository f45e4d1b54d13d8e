"""How near generated images are to their targets; protocols are part of the names.

`l1` mean absolute difference in [-1, 1] units; `l1_person` the same over the person's mask; `psnr` in dB of images in
[-1, 1]; `ssim` Gaussian window, sigma 1.5, 11 px, population covariance, colour channels averaged, data range 2, averaged
where the window lies inside the image, as scikit-image and the field's protocols do (Wang et al. 2004), but of values in
[-1, 1], where theirs have black at 0, which the luminance term sees; `ms_ssim` with as many of the five scales as the image
holds, their exponents renormalised to sum to one, borders reflected (Wang et al. 2003, by torchmetrics). `psnr_y`, `ssim_y`
and so on judge the luma of BT.601 alone, black at 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from models.base.errors import UserError
from models.dump import Array, Dump
from models.report.interfaces import Bootstrap, Estimate, Score, Values

MS_SSIM_EXPONENTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
WINDOW = 11
BATCH = 64  # images in memory at a time
LUMA = (65.481, 128.553, 24.966)  # of R, G, B in [0, 1]; with the offset, black is 16 and white 235 of 255
LUMA_OFFSET = 16.0


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
    """Return how many scales of MS-SSIM an image of `size` pixels holds: the window must fit the smallest.

    torchmetrics asks for a window in one ninth of the image, not one eighth, where there are four.
    """
    return max(1, sum(size // max(2**scale, scale**2) >= WINDOW for scale in range(len(MS_SSIM_EXPONENTS))))


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


def luma(images: Tensor) -> Tensor:
    """Y of YCbCr, BT.601 in video range, not rounded; RGB (N, 3, H, W) in [-1, 1] -> (N, 1, H, W) in [0.125, 1.844].

    2 stands for 255 levels and 0 for none, so that PSNR and SSIM are those of super-resolution papers, whose Y has 8 bits
    and a peak of 255 although white is 235 (ITU-R BT.601-7, section 2.5.3).
    """
    levels = LUMA_OFFSET + torch.einsum("nchw,c->nhw", (images + 1) / 2, images.new_tensor(LUMA))
    return (levels / 127.5)[:, None]


class Fidelity(Score):
    """L1, PSNR, SSIM and MS-SSIM of a mode's images against their targets, with bootstrap intervals.

    `image` names what is judged; for a baseline, `average` names a training mean to judge instead, or `image` an input
    (anything saved under `evaluate.inputs`). Super-resolution papers judge without `crop_border` pixels along each side
    and, with `channel: y`, the luma alone; figures are then called `psnr_y` and so on.
    """

    def __init__(
        self,
        mode: str,
        target: str,
        image: str | None = None,
        average: str | None = None,
        mask: str | None = None,
        crop_border: int = 0,
        channel: Literal["rgb", "y"] = "rgb",
    ) -> None:
        if (image is None) == (average is None):
            raise ValueError("write either image or average")
        if crop_border < 0:
            raise ValueError(f"crop_border {crop_border}: a number of pixels, 0 or more, is needed")
        if channel not in ("rgb", "y"):
            raise ValueError(f"channel {channel!r}: write rgb or y")
        self.mode, self.target, self.image, self.average, self.mask = mode, target, image, average, mask
        self.crop_border, self.channel = crop_border, channel

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        names = [name for name in (self.target, self.image, self.mask) if name is not None]
        parts = [self._batch(rows, dict(zip(names, batch, strict=True))) for batch in stacks(rows, names, BATCH)]
        values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        values = {name: column[np.isfinite(column)] for name, column in values.items()}
        if empty := [name for name, column in values.items() if not len(column)]:
            raise UserError(f"{dump.folder}: mode {self.mode!r}: nothing to average for {', '.join(empty)}")
        return {name: bootstrap.estimate(column) for name, column in values.items()} | {"images": len(rows)}

    def _batch(self, rows: Dump, files: dict[str, Tensor]) -> dict[str, Values]:
        target = files[self.target]
        if self.image is None:
            image = torch.from_numpy(rows.average(str(self.average))).expand_as(target)
        else:
            image = files[self.image]
        judged = [image, target] if self.mask is None else [image, target, files[self.mask]]
        image, target, *masks = self._cropped(rows, judged)
        if self.channel == "y":
            if (image.shape[1], target.shape[1]) != (3, 3):
                raise UserError(f"{rows.folder}: mode {self.mode!r}: channel y is made of three; there is a grey image")
            image, target = luma(image), luma(target)
        scores = {"l1": l1(image, target), "psnr": psnr(image, target)}
        scores |= {"ssim": ssim(image, target), "ms_ssim": ms_ssim(image, target)}
        for mask in masks:
            scores["l1_person"] = l1_masked(image, target, mask)
        suffix = "" if self.channel == "rgb" else f"_{self.channel}"
        return {f"{name}{suffix}": value.double().numpy() for name, value in scores.items()}

    def _cropped(self, rows: Dump, images: Sequence[Tensor]) -> list[Tensor]:
        sizes = {tuple(image.shape[-2:]) for image in images}
        where = f"{rows.folder}: mode {self.mode!r}"
        if len(sizes) > 1:
            found = " and ".join(f"{height} x {width}" for height, width in sorted(sizes))
            raise UserError(f"{where}: image and target are compared pixel by pixel; here they have {found}")
        if self.crop_border == 0:
            return list(images)
        border, size = self.crop_border, min(images[0].shape[-2:])
        if size - 2 * border < WINDOW:
            raise UserError(
                f"{where}: {size} px without crop_border {border} on both sides are fewer than the {WINDOW} of SSIM"
            )
        return [image[..., border:-border, border:-border] for image in images]


def stacks(
    rows: Dump, names: Sequence[str], size: int, places: Iterable[int] | None = None
) -> Iterator[tuple[Tensor, ...]]:
    """Yield the named files of the rows in batches, a tensor (N, ...) for each name; at most `size` rows of one shape.

    `places` are the rows to read, all unless given; a batch ends where the next row has another shape.
    """
    waiting: list[list[Array]] = []
    for place in range(len(rows)) if places is None else places:
        found = [rows.value(place, name) for name in names]
        if waiting and (
            len(waiting) == size or any(a.shape != b.shape for a, b in zip(found, waiting[0], strict=True))
        ):
            yield _stacked(waiting)
            waiting = []
        waiting.append(found)
    if waiting:
        yield _stacked(waiting)


def _stacked(waiting: Sequence[Sequence[Array]]) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(np.stack(column)) for column in zip(*waiting, strict=True))


class MeanLosses(Score):
    """The mean of every loss, and of its components, over the instances of a mode, with bootstrap intervals.

    Losses are raw, without their weights. One that the mode has not all names for is left out, and so are the instances
    for which a loss has no value (those of datasets that lack its target).
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        table = dump.mode(self.mode).table
        losses = {str(c).removeprefix("loss."): table[c].dropna() for c in table if str(c).startswith("loss.")}
        found = {name: bootstrap.estimate(values.to_numpy()) for name, values in losses.items() if len(values)}
        if not found:
            raise UserError(f"{dump.folder}: mode {self.mode!r} has no loss that all names were there for")
        return {**found, "instances": len(table)}


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
