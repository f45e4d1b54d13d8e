"""Injectors for the colours of pictures (N, C, H, W), and DiffAugment for discriminators."""

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.injectors.spatial import height_and_width, windows
from figura.interfaces import Operation

# Statistics of ImageNet that torchvision's networks expect, converted from pixels in [0, 1] to [-1, 1].
IMAGENET_MEAN = (2 * 0.485 - 1, 2 * 0.456 - 1, 2 * 0.406 - 1)
IMAGENET_STD = (2 * 0.229, 2 * 0.224, 2 * 0.225)
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


class Normalise(Operation):
    """Adds `(picture - mean) / std` of each channel; by default, from [-1, 1] to the input of ImageNet networks.

    Args:
        names: name read, (N, C, H, W) -> name added.
        mean: per channel, or one number for all; default: ImageNet's, for pixels in [-1, 1].
        std: like `mean`, above 0.
        inverse: compute `picture * std + mean` instead.
    """

    def __init__(
        self,
        names: dict[str, str],
        mean: tuple[float, ...] = IMAGENET_MEAN,
        std: tuple[float, ...] = IMAGENET_STD,
        inverse: bool = False,
    ) -> None:
        super().__init__(list(names), list(names.values()))
        if len(mean) != len(std) or not mean or min(std) <= 0:
            raise ValueError(f"mean {list(mean)}, std {list(std)}: as many of each, std above 0, are needed")
        self.mean, self.std, self.inverse = mean, std, inverse

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [self._normalised(picture) for picture in tensors]

    def _normalised(self, picture: Tensor) -> Tensor:
        height_and_width(picture)
        if len(self.mean) not in (1, picture.shape[1]):
            raise ValueError(f"{len(self.mean)} channels are needed")
        mean, std = (picture.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return picture * std + mean if self.inverse else (picture - mean) / std


class Grey(Operation):
    """Adds grey pictures: the weighted sum of the channels.

    Args:
        names: name read, (N, C, H, W) -> name added, (N, channels, H, W).
        weights: one per channel; default: the luma of ITU-R BT.601.
        channels: number of copies of the grey channel.
    """

    def __init__(self, names: dict[str, str], weights: tuple[float, ...] = LUMA, channels: int = 3) -> None:
        super().__init__(list(names), list(names.values()))
        if not weights or channels < 1:
            raise ValueError(f"weights {list(weights)}, channels {channels}: a weight and a channel are needed")
        self.weights, self.channels = weights, channels

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [self._grey(picture) for picture in tensors]

    def _grey(self, picture: Tensor) -> Tensor:
        height_and_width(picture)
        if picture.shape[1] != len(self.weights):
            raise ValueError(f"{len(self.weights)} channels are needed")
        weights = picture.new_tensor(self.weights)[:, None, None]
        return (picture * weights).sum(dim=1, keepdim=True).expand(-1, self.channels, -1, -1)


class Augment(Operation):
    """Adds randomly changed pictures, so a discriminator cannot memorise a small dataset (DiffAugment).

    The policies of Zhao et al. 2020 (*Differentiable Augmentation for Data-Efficient GAN Training*, section 3.3), in
    this order; gradients pass through. All names of an example are changed equally. The paper draws separately for real
    and fake: declare two injectors.

    - colour: brightness (b in [-0.5, 0.5] is added), saturation (the distance from the mean over channels times
      s in [0, 2]), contrast (the distance from the mean over channels and pixels times c in [0.5, 1.5]);
    - translation: by integer pixels, at most this fraction of each side; the border is filled with 0;
    - cutout: a rectangle with this fraction of each side becomes 0; its centre is anywhere, so it may extend beyond the
    picture.

    Args:
        names: name read, (N, C, H, W) in [-1, 1] -> name added; not clamped.
        colour: whether to change colours.
        translation: fraction of a side, 0 <= translation < 1; 0: none.
        cutout: fraction of a side, 0 to 1; 0: none.
    """

    def __init__(
        self, names: dict[str, str], colour: bool = True, translation: float = 0.125, cutout: float = 0.5
    ) -> None:
        super().__init__(list(names), list(names.values()))
        if not (0 <= translation < 1 and 0 <= cutout <= 1):
            raise ValueError(f"translation {translation}, cutout {cutout}: shares of a side are needed")
        if not (colour or translation or cutout):
            raise ValueError("colour, translation, cutout: all are off; at least one is needed")
        self.colour, self.translation, self.cutout = colour, translation, cutout

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        # always 7 numbers, so that policies do not change each other's draws
        draws = torch.rand(len(tensors[0]), 7, device="cpu")
        return [self._augmented(picture, draws) for picture in tensors]

    def _augmented(self, picture: Tensor, draws: Tensor) -> Tensor:
        height_and_width(picture)
        if len(picture) != len(draws):
            raise ValueError("equal numbers of examples are needed")
        if self.colour:
            picture = recoloured(picture, *(draws[:, :3] - 0.5).to(picture).unbind(1))
        if self.translation:
            picture = translated(picture, draws[:, 3:5], self.translation)
        return cut_out(picture, draws[:, 5:], self.cutout) if self.cutout else picture


def recoloured(picture: Tensor, brightness: Tensor, saturation: Tensor, contrast: Tensor) -> Tensor:
    """Change the colours of pictures (N, C, H, W) by amounts (N,) in [-0.5, 0.5]; 0 has no effect."""
    brightness, saturation, contrast = (x[:, None, None, None] for x in (brightness, saturation, contrast))
    picture = picture + brightness
    mean = picture.mean(dim=1, keepdim=True)
    picture = (picture - mean) * (1 + 2 * saturation) + mean
    mean = picture.mean(dim=(1, 2, 3), keepdim=True)
    return (picture - mean) * (1 + contrast) + mean


def translated(picture: Tensor, draws: Tensor, share: float) -> Tensor:
    """Shift pictures (N, C, H, W) by integer pixels, at most `share` of each side; `draws` (N, 2) in [0, 1), (y, x)."""
    reach = [round(side * share) for side in height_and_width(picture)]
    moves = [(drawn * (2 * most + 1)).long() for drawn, most in zip(draws.unbind(1), reach, strict=True)]  # 0: farthest
    places = list(zip(*((2 * most - move).tolist() for move, most in zip(moves, reach, strict=True)), strict=True))
    framed = F.pad(picture, (reach[1], reach[1], reach[0], reach[0]))
    return windows(framed, places, height_and_width(picture))


def cut_out(picture: Tensor, draws: Tensor, share: float) -> Tensor:
    """Zero a rectangle of pictures (N, C, H, W), `share` of each side long; `draws` (N, 2) in [0, 1): its centre."""
    inside = []
    for drawn, side in zip(draws.unbind(1), height_and_width(picture), strict=True):
        length = round(side * share)
        # an even length is centred between pixels: side + 1 positions, both borders included
        first = (drawn * (side + 1 - length % 2)).long() - length // 2
        place = torch.arange(side, device=drawn.device) - first[:, None]
        inside.append((place >= 0) & (place < length))
    hole = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return picture.masked_fill(hole.to(picture.device), 0)
