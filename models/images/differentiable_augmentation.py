"""Random changes of pictures that a discriminator sees, through which gradients reach the generator."""

from typing import Literal

import torch
from torch import Tensor

from figura.interfaces import Operation

Change = Literal["color", "translation", "cutout"]


class DifferentiableAugmentation(Operation):
    """Changes real and fake pictures alike before a discriminator sees them, in its step and in the generator's.

    With few pictures, the discriminator otherwise learns them by heart. Each example has random numbers of its own, the
    same for all names. Values are in [-1, 1]; what moves in, or is cut out, is 0. Source: Zhao et al., *Differentiable
    Augmentation for Data-Efficient GAN Training*, NeurIPS 2020, section 3 and appendix.

    Args:
        names: name read, (N, C, H, W) -> name added; all have the same height and width.
        policy: the changes, in this order: `color` adds U(-0.5, 0.5), multiplies the distance from the pixel's mean
            over channels by U(0, 2), and that from the picture's mean by U(0.5, 1.5); `translation` moves by up to
            `shift` of each side; `cutout` sets a rectangle of `cut` of each side to 0, whose centre is anywhere.
        keep_color: names read whose colours stay, as labels.
        shift: share of each side, at most 1.
        cut: share of each side, at most 1.
    """

    def __init__(
        self,
        names: dict[str, str],
        policy: list[Change] | None = None,
        keep_color: list[str] | None = None,
        shift: float = 0.125,
        cut: float = 0.5,
    ) -> None:
        super().__init__(list(names), list(names.values()))
        if unknown := [name for name in keep_color or () if name not in names]:
            raise ValueError(f"keep_color {unknown[0]}: it is none of names")
        if not (0 <= shift <= 1 and 0 <= cut <= 1):
            raise ValueError(f"shift {shift}, cut {cut}: shares from 0 to 1 are needed")
        self.policy: list[Change] = ["color", "translation", "cutout"] if policy is None else policy
        self.keep_color, self.shift, self.cut = keep_color or [], shift, cut

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        if not self.policy:
            return tensors
        first = tensors[0]
        if first.ndim != 4 or any(one.ndim != 4 or one.shape[2:] != first.shape[2:] for one in tensors):
            raise ValueError("pictures (N, C, H, W) of one height and width are needed")
        drawn = torch.rand(len(first), 7, device=first.device)  # per example, whatever the policy
        results = list(tensors)
        for change in self.policy:
            results = [
                self._changed(change, one, drawn) if change != "color" or name not in self.keep_color else one
                for name, one in zip(self.reads, results, strict=True)
            ]
        return results

    def _changed(self, change: Change, pictures: Tensor, drawn: Tensor) -> Tensor:
        if change == "color":
            return recolored(pictures, drawn[:, :3])
        return (translated(pictures, drawn[:, 3:5], self.shift) if change == "translation"
                else cut_out(pictures, drawn[:, 5:], self.cut))  # fmt: skip


def recolored(pictures: Tensor, drawn: Tensor) -> Tensor:
    """Return (N, C, H, W) with other brightness, saturation and contrast; `drawn` is (N, 3), of U(0, 1)."""
    brightness, saturation, contrast = drawn.to(pictures.dtype)[..., None, None, None].unbind(1)
    pictures = pictures + (brightness - 0.5)
    grey = pictures.mean(dim=1, keepdim=True)
    pictures = grey + 2 * saturation * (pictures - grey)
    mean = pictures.mean(dim=(1, 2, 3), keepdim=True)
    return mean + (0.5 + contrast) * (pictures - mean)


def translated(pictures: Tensor, drawn: Tensor, share: float) -> Tensor:
    """Return (N, C, H, W), moved by whole pixels, at most `share` of each side; `drawn` is (N, 2), of U(0, 1)."""
    for dim, numbers in zip((2, 3), drawn.unbind(1), strict=True):
        side = pictures.shape[dim]
        most = int(side * share + 0.5)
        moved = (numbers * (2 * most + 1)).floor().clamp(max=2 * most).long() - most
        source = torch.arange(side, device=pictures.device) - moved[:, None]  # (N, side)
        shape = (len(pictures), 1, *(side if d == dim else 1 for d in (2, 3)))
        inside = ((source >= 0) & (source < side)).view(shape)
        index = source.clamp(0, side - 1).view(shape).expand_as(pictures)
        pictures = pictures.gather(dim, index) * inside
    return pictures


def cut_out(pictures: Tensor, drawn: Tensor, share: float) -> Tensor:
    """Return (N, C, H, W) with a rectangle of 0; its centre is a pixel by `drawn`, (N, 2), of U(0, 1)."""
    cut = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=pictures.device)
    for dim, numbers in zip((2, 3), drawn.unbind(1), strict=True):
        side = pictures.shape[dim]
        length = int(side * share + 0.5)
        start = (numbers * side).floor().clamp(max=side - 1).long() - length // 2
        place = torch.arange(side, device=pictures.device) - start[:, None]
        shape = (len(pictures), 1, *(side if d == dim else 1 for d in (2, 3)))
        cut = cut & ((place >= 0) & (place < length)).view(shape)
    return pictures * ~cut
