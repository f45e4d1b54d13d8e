"""Scores of generated images against their targets, and of losses in a dump.

- `l1`: mean absolute difference of images in [-1, 1]: 2 is black against white, and 1 / 127.5 a level of 255.
- `psnr`: in dB, of images in [-1, 1].
- `l1_person`, `psnr_person`: the same over the pixels of a mask, as a constant background flatters the whole picture.
- `ssim` (Wang et al. 2004): Gaussian window of sigma 1.5 and 11 px, population covariance, data range 2; the mean over
  colour channels and over positions where the window is inside the image. This is scikit-image's protocol, except for
  the range [-1, 1]: there, black is 0, which changes the luminance term.
- `ms_ssim` (Wang, Simoncelli and Bovik 2003, equation 7): at every scale the mean over positions where the window is
inside; each scale averages 2 x 2 pixels of the previous one. If the window does not fit in all five scales, the
exponents of the others are renormalised to sum 1, and `ms_ssim_scales` is their number: below 5, values are not
comparable with papers.
- `psnr_y`, `ssim_y` and so on: of BT.601's luma only, with black at 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Annotated, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from figura.base.errors import UserError
from figura.dump import Array, Dump
from figura.report.interfaces import Bootstrap, Estimate, NotApplicableError, Score, Values, groups_of, rows_where

MS_SSIM_EXPONENTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
SCALES = "ms_ssim_scales"
MASKED = ("l1_person", "psnr_person")
WINDOW = 11
BATCH = 64  # images in memory at a time
LUMA = (65.481, 128.553, 24.966)  # of R, G, B in [0, 1]; with the offset, black is 16 and white 235 of 255
LUMA_OFFSET = 16.0


def l1(image: Tensor, target: Tensor) -> Tensor:
    """Mean absolute difference; (N, C, H, W) in [-1, 1] -> (N,)."""
    return (image - target).abs().mean(dim=(1, 2, 3))


def psnr(image: Tensor, target: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, peak to peak 2; (N, C, H, W) in [-1, 1] -> (N,)."""
    return decibels((image - target).square().mean(dim=(1, 2, 3)))


def decibels(squares: Tensor) -> Tensor:
    """The PSNR of mean squared differences of images in [-1, 1]."""
    return 10 * torch.log10(4 / squares.clamp_min(1e-12))


def masked(differences: Tensor, mask: Tensor) -> Tensor:
    """Mean of (N, C, H, W) weighted by a mask (N, 1, H, W) in [0, 1] -> (N,); NaN where the mask is empty."""
    return (differences.mean(dim=1, keepdim=True) * mask).sum(dim=(1, 2, 3)) / mask.sum(dim=(1, 2, 3))


def ssim(image: Tensor, target: Tensor) -> Tensor:
    """Structural similarity; (N, C, H, W) in [-1, 1] -> (N,)."""
    similarity = _similarity(image, target, return_full_image=True)
    border = WINDOW // 2
    return similarity[..., border:-border, border:-border].mean(dim=(1, 2, 3))


def _similarity(image: Tensor, target: Tensor, **wanted: bool) -> Tensor:
    """The second result of torchmetrics' SSIM: the map of similarities, or the mean contrast and structure inside."""
    from torchmetrics.functional.image import structural_similarity_index_measure  # slow import

    results = structural_similarity_index_measure(
        image, target, sigma=1.5, kernel_size=WINDOW, data_range=2.0, reduction="none", **wanted
    )
    return cast(Tensor, results[1])


def scales_of(size: int) -> int:
    """Return the number of MS-SSIM's five scales at which the window fits in an image of `size` pixels."""
    return sum(size >= WINDOW * 2**scale for scale in range(len(MS_SSIM_EXPONENTS)))


def ms_ssim(image: Tensor, target: Tensor) -> Tensor:
    """Multi-scale structural similarity; (N, C, H, W) in [-1, 1] -> (N,).

    Negative contrasts, which have no real power, are clamped to 0.
    """
    exponents = MS_SSIM_EXPONENTS[: scales_of(min(image.shape[-2:]))]
    factors = []
    for scale, exponent in enumerate(exponents, start=1):
        if scale < len(exponents):
            value = _similarity(image, target, return_contrast_sensitivity=True)
            image, target = _halved(image), _halved(target)
        else:
            value = ssim(image, target)
        factors.append(value.clamp_min(0) ** (exponent / sum(exponents)))
    return torch.stack(factors).prod(dim=0)


def _halved(images: Tensor) -> Tensor:
    """Means of 2 x 2 pixels; odd sides repeat their last row or column, as in the authors' code."""
    height, width = images.shape[-2:]
    return F.avg_pool2d(F.pad(images, (0, width % 2, 0, height % 2), mode="replicate"), 2)


def luma(images: Tensor) -> Tensor:
    """Y of YCbCr (BT.601, video range, not rounded): RGB (N, 3, H, W) in [-1, 1] -> (N, 1, H, W) in [0.125, 1.844].

    The result is levels / 127.5. PSNR and SSIM are then those of super-resolution papers, whose Y has 8 bits and a peak
    of 255, although white is 235 (ITU-R BT.601-7, section 2.5.3).
    """
    levels = LUMA_OFFSET + torch.einsum("nchw,c->nhw", (images + 1) / 2, images.new_tensor(LUMA))
    return (levels / 127.5)[:, None]


class PictureScore(Score):
    """Base of scores that compare a mode's images with their targets.

    `image` names the images to score. For a baseline, `image` may name an input (anything under `evaluate.inputs`), or
    `average` a training mean, used for every image.
    """

    def __init__(self, mode: str, target: str, image: str | None, average: str | None) -> None:
        if (image is None) == (average is None):
            raise ValueError("write either image or average")
        self.mode, self.target, self.image, self.average = mode, target, image, average

    def pairs(self, rows: Dump, size: int, beside: str | None = None) -> Iterator[list[Tensor]]:
        """Yield images and targets (N, C, H, W) of equal shape, and the files named `beside`, N at most `size`.

        Raises:
            UserError: images and targets differ in shape, or are no pictures.
        """
        names = [name for name in (self.target, self.image, beside) if name is not None]
        for batch in stacks(rows, names, size):
            files = dict(zip(names, batch, strict=True))
            target = files[self.target]
            image = files[self.image] if self.image is not None else self._average_as(rows, target)
            if image.shape != target.shape or target.ndim != 4:
                raise UserError(
                    f"{rows.folder}: mode {rows.part!r}: images have the shape {tuple(image.shape[1:])}, targets "
                    f"{tuple(target.shape[1:])}; they are compared pixel by pixel, so that both need (channels, "
                    "height, width), the same"
                )
            yield [image, target, *([] if beside is None else [files[beside]])]

    def _average_as(self, rows: Dump, target: Tensor) -> Tensor:
        average = torch.from_numpy(rows.average(str(self.average)))
        if average.shape != target.shape[1:]:
            raise UserError(
                f"{rows.folder}: mode {rows.part!r}: the average {self.average!r} has the shape "
                f"{tuple(average.shape)}, targets {tuple(target.shape[1:])}; only equal shapes are compared"
            )
        return average.expand_as(target)

    def cropped(self, rows: Dump, images: Sequence[Tensor], border: int) -> list[Tensor]:
        """Return images without a border. Raises UserError if SSIM's window does not fit in them."""
        if (size := min(images[0].shape[-2:])) - 2 * border < WINDOW:
            where = f"{rows.folder}: mode {self.mode!r}"
            cut = f" without a border of {border} on both sides" if border else ""
            raise UserError(f"{where}: {size} px{cut} are fewer than the {WINDOW} of SSIM's window")
        return [image[..., border:-border, border:-border] if border else image for image in images]


def stacks(
    rows: Dump, names: Sequence[str], size: int, places: Iterable[int] | None = None
) -> Iterator[tuple[Tensor, ...]]:
    """Yield the named files of the rows in batches of at most `size`, one tensor (N, ...) per name.

    `places` are the row indices to read, by default all. A batch also ends if the next row has a different shape.
    """
    waiting: list[list[Array]] = []
    for place in range(len(rows)) if places is None else places:
        arrays = [rows.value(place, name) for name in names]
        if waiting and (
            len(waiting) == size or any(a.shape != b.shape for a, b in zip(arrays, waiting[0], strict=True))
        ):
            yield _stacked(waiting)
            waiting = []
        waiting.append(arrays)
    if waiting:
        yield _stacked(waiting)


def _stacked(waiting: Sequence[Sequence[Array]]) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(np.stack(column)) for column in zip(*waiting, strict=True))


class Fidelity(PictureScore):
    """L1, PSNR, SSIM and MS-SSIM of a mode's images against their targets, with bootstrap intervals.

    For `image` and `average` see `PictureScore`. Super-resolution papers crop `crop_border` pixels along each side and
    score only the luma, `channel: y`; the metrics are then named `psnr_y` and so on. With `where`, only examples whose
    column of this name is not 0 are scored; without any, the score is skipped. `groups` names a column of the dump,
    such as `person_id`: for intervals, examples of a dataset with equal values are resampled together. The draws of an
    example always are.

    `ms_ssim_scales` is added if some image is too small for all five scales of MS-SSIM.
    """

    def __init__(
        self,
        mode: str,
        target: str,
        image: str | None = None,
        average: str | None = None,
        mask: str | None = None,
        crop_border: Annotated[int, Field(ge=0)] = 0,
        channel: Literal["rgb", "y"] = "rgb",
        where: str | None = None,
        groups: str | None = None,
    ) -> None:
        super().__init__(mode, target, image, average)
        self.mask, self.crop_border, self.channel, self.where, self.groups = mask, crop_border, channel, where, groups

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = rows_where(dump.mode(self.mode), self.mode, self.where)
        parts = [self._batch(rows, *batch) for batch in self.pairs(rows, BATCH, self.mask)]
        values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        scales = {name: int(values.pop(name).min()) for name in list(values) if name.startswith(SCALES)}
        # NaN only where a mask is empty
        known = {n: ~np.isnan(v) if n.startswith(MASKED) else np.full(len(v), True) for n, v in values.items()}
        if empty := [name for name, those in known.items() if not those.any()]:
            raise UserError(f"{dump.folder}: mode {self.mode!r}: nothing to average for {', '.join(empty)}")
        owners = groups_of(rows, self.mode, self.groups)
        metrics: dict[str, Estimate | float | int] = {}
        for name, column in values.items():
            metrics[name] = bootstrap.estimate(column[known[name]], groups=owners[known[name]])
        metrics |= {name: count for name, count in scales.items() if count < len(MS_SSIM_EXPONENTS)}
        return metrics | {"images": len(rows)}

    def _batch(self, rows: Dump, image: Tensor, target: Tensor, *masks: Tensor) -> dict[str, Values]:
        for mask in masks:
            if mask.shape != (len(target), 1, *target.shape[2:]):
                raise UserError(
                    f"{rows.folder}: mode {self.mode!r}: mask {self.mask!r} has the shape {tuple(mask.shape[1:])}, the "
                    f"pictures {tuple(target.shape[1:])}; a mask is (1, height, width) of the same size"
                )
        image, target, *cropped = self.cropped(rows, [image, target, *masks], self.crop_border)
        if self.channel == "y":
            if target.shape[1] != 3:
                raise UserError(f"{rows.folder}: mode {self.mode!r}: channel y is made of three; there is a grey image")
            image, target = luma(image), luma(target)
        scores = {"l1": l1(image, target), "psnr": psnr(image, target)}
        scores |= {"ssim": ssim(image, target), "ms_ssim": ms_ssim(image, target)}
        scores[SCALES] = torch.full((len(image),), scales_of(min(image.shape[-2:])))
        for mask in cropped:
            scores["l1_person"] = masked((image - target).abs(), mask)
            scores["psnr_person"] = decibels(masked((image - target).square(), mask))
        suffix = "" if self.channel == "rgb" else f"_{self.channel}"
        return {f"{name}{suffix}": value.double().numpy() for name, value in scores.items()}


class MeanLosses(Score):
    """The mean of every loss and of its components over the examples of a mode, with bootstrap intervals.

    Losses are unweighted. Losses whose inputs are missing in the mode are skipped. Examples without a value (from
    datasets without the loss's target) are ignored. `groups` as in `Fidelity`.
    """

    def __init__(self, mode: str, groups: str | None = None) -> None:
        self.mode, self.groups = mode, groups

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        table, owners = rows.table, groups_of(rows, self.mode, self.groups)
        losses = {str(c).removeprefix("loss."): table[c].notna() for c in table if str(c).startswith("loss.")}
        means = {
            name: bootstrap.estimate(table.loc[present, f"loss.{name}"].to_numpy(), groups=owners[present])
            for name, present in losses.items()
            if present.any()
        }
        if not means:
            raise UserError(f"{dump.folder}: mode {self.mode!r} has the inputs of no loss")
        return {**means, "instances": len(table)}


class Diversity(Score):
    """Mean absolute difference between the draws of an example, and between its draws and its target.

    A mode draws each example `repeat` times. `draws` is the mean over examples of the mean over pairs of their draws,
    `to_target` of the mean over their draws. If the target is as likely as any draw, as it should be, both are equal;
    draws that are too much alike are nearer to each other than to the target. Images are in [-1, 1]. With a `mask`,
    only its pixels count; examples whose mask is empty are left out. `groups` as in `Fidelity`.
    """

    def __init__(self, mode: str, image: str, target: str, mask: str | None = None, groups: str | None = None) -> None:
        self.mode, self.image, self.target, self.mask, self.groups = mode, image, target, mask, groups

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        owners = groups_of(rows, self.mode, self.groups)
        examples = [places for places in rows.table.groupby(rows.column("index")).indices.values() if len(places) > 1]
        if not examples:
            raise NotApplicableError(f"mode {self.mode!r} draws every example once; `repeat` says how often")
        between, away, groups = [], [], []
        for places in examples:
            target = rows.value(int(places[0]), self.target)
            weight = np.ones_like(target) if self.mask is None else rows.value(int(places[0]), self.mask)
            if not weight.any():
                continue
            draws = np.stack([rows.value(int(place), self.image) for place in places])
            if draws.shape[1:] != target.shape or weight.shape not in (target.shape, (1, *target.shape[1:])):
                mask = "" if self.mask is None else f", mask {self.mask!r} {weight.shape}"
                raise UserError(
                    f"{rows.folder}: mode {self.mode!r}: draws have the shape {draws.shape[1:]}, targets "
                    f"{target.shape}{mask}; all of one height and width are needed, a mask of one channel"
                )
            weight = np.broadcast_to(weight, target.shape)
            groups.append(owners[places[0]])
            pairs = [np.abs(a - b) for a, b in combinations(draws, 2)]
            between.append(np.average(np.mean(pairs, axis=0), weights=weight))
            away.append(np.average(np.abs(draws - target).mean(axis=0), weights=weight))
        if not groups:
            raise NotApplicableError(f"mode {self.mode!r}: the mask {self.mask!r} is empty in all examples")
        return {
            "draws": bootstrap.estimate(np.array(between), groups=groups),
            "to_target": bootstrap.estimate(np.array(away), groups=groups),
            "examples": len(groups),
        }
