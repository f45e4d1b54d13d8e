"""The discriminators: a U-Net with one logit per pixel, and a VGG-like classifier with one logit per image."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from figura.base.errors import UserError

from ..images.argument_types import Count
from .rrdb import SLOPE, Pixels, activated

Normalisation = Literal["batch", "none"]

SMALLEST = 4  # side of the maps before the classifier's linear layers
WIDEST = 8  # times `features`
HIDDEN = 100  # units of the hidden linear layer


def _judged(judge: Callable[[Tensor], Tensor], pixels: Pixels, image: Tensor, fake: Tensor | None) -> dict[str, Tensor]:
    """Return the logits of `image` and, from the same pass, of `fake`, both in [-1, 1]; `judge` takes `pixels`."""
    x = image if fake is None else torch.cat([image, fake])
    both = judge(x if pixels == "signed" else (x + 1) / 2)
    if fake is None:
        return {"logits": both}
    return {"logits": both[: len(image)], "fake_logits": both[len(image) :]}


class UNetDiscriminator(nn.Module):
    """One logit per pixel (Wang et al., *Real-ESRGAN*, ICCVW 2021, section 3.3; Schönfeld et al., CVPR 2020).

    The size is halved three times, to 8 `features` channels, and doubled back; skip connections add the maps of equal
    size. All convolutions except the first and the last have spectral normalisation (Miyato et al., ICLR 2018) and no
    bias. Activations are leaky ReLU of slope 0.2. 4,376,897 parameters at the defaults.

    Args:
        in_channels: channels of the images.
        features: width at full size.
        pixels: range of the values inside: `signed`, [-1, 1], like images; or `unit`, [0, 1], as in BasicSR's networks.
            Zero padding is grey in the former, black in the latter.
    """

    outputs: ClassVar[tuple[str, ...]] = ("logits", "fake_logits")

    def __init__(self, *, in_channels: Count = 3, features: Count = 64, pixels: Pixels = "signed") -> None:
        super().__init__()
        self.pixels = pixels
        widths = [features, 2 * features, 4 * features, 8 * features]

        def normed(inputs: int, outputs: int, side: int = 3, stride: int = 1) -> nn.Module:
            return spectral_norm(nn.Conv2d(inputs, outputs, side, stride, padding=1, bias=False))

        self.first = nn.Conv2d(in_channels, features, 3, padding=1)
        self.downs = nn.ModuleList(normed(widths[i], widths[i + 1], 4, 2) for i in range(3))
        self.ups = nn.ModuleList(normed(widths[i + 1], widths[i]) for i in reversed(range(3)))
        self.judging = nn.ModuleList(normed(features, features) for _ in range(2))
        self.last = nn.Conv2d(features, 1, 3, padding=1)

    def forward(self, image: Tensor, fake: Tensor | None = None) -> dict[str, Tensor]:
        """(N, in_channels, H, W) in [-1, 1] and, in the same pass, `fake` -> `logits` (N, 1, H, W), `fake_logits`.

        Raises:
            UserError: sides are not multiples of 8.
        """
        if image.shape[2] % 8 or image.shape[3] % 8:
            raise UserError(
                f"images for UNetDiscriminator: found {image.shape[2]} x {image.shape[3]} pixels; multiples of 8 are "
                "needed"
            )
        return _judged(self._judge, self.pixels, image, fake)

    def _judge(self, x: Tensor) -> Tensor:
        x = activated(self.first(x.contiguous(memory_format=torch.channels_last)))
        skips = []
        for layer in self.downs:
            skips.append(x)
            x = activated(layer(x))
        for layer in self.ups:
            large = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = activated(layer(large)) + skips.pop()
        for layer in self.judging:
            x = activated(layer(x))
        return self.last(x)


class VGGDiscriminator(nn.Module):
    """One logit for an image of a fixed size: ESRGAN's discriminator (Wang et al., ECCVW 2018), a VGG-like network.

    Each halving down to 4 x 4 pixels is a 3 x 3 convolution and a 4 x 4 convolution of stride 2, with widths doubling
    from `features` to 8 `features`. Two linear layers follow. Activations are leaky ReLU of slope 0.2. 14,499,401
    parameters at 128 pixels.

    Args:
        image_size: side in pixels; a power of 2, 8 or more. A recipe takes it from the training data.
        in_channels: channels of the images.
        features: width at full size.
        norm: `batch` is ESRGAN's, after all convolutions except the first; logits then depend on the rest of the batch.
            With `none` they do not.
        pixels: range of the values inside, as in `UNetDiscriminator`.

    Raises:
        ValueError: `image_size` is no such power.
    """

    outputs: ClassVar[tuple[str, ...]] = ("logits", "fake_logits")
    from_data: ClassVar[tuple[str, ...]] = ("image_size",)

    def __init__(
        self,
        *,
        image_size: int = 128,
        in_channels: Count = 3,
        features: Count = 64,
        norm: Normalisation = "batch",
        pixels: Pixels = "signed",
    ) -> None:
        super().__init__()
        if image_size < 2 * SMALLEST or image_size & (image_size - 1):
            raise ValueError(f"image_size {image_size}: a power of 2, {2 * SMALLEST} or more, is needed")
        self.image_size, self.pixels = image_size, pixels
        layers: list[nn.Module] = []
        inputs = in_channels
        for stage in range((image_size // SMALLEST).bit_length() - 1):
            width = min(2**stage, WIDEST) * features
            layers += _layer(inputs, width, 3, 1, norm if stage else "none")
            layers += _layer(width, width, 4, 2, norm)
            inputs = width
        self.layers = nn.Sequential(*layers)
        self.hidden = nn.Linear(inputs * SMALLEST**2, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, image: Tensor, fake: Tensor | None = None) -> dict[str, Tensor]:
        """Discriminate (N, in_channels, image_size, image_size) in [-1, 1] and, in the same pass, `fake`.

        Returns `logits` (N, 1) and, with a fake, `fake_logits`.

        Raises:
            UserError: sides are not `image_size`.
        """
        if image.shape[2:] != (self.image_size, self.image_size):
            raise UserError(
                f"images for VGGDiscriminator: found {image.shape[2]} x {image.shape[3]} pixels; image_size is "
                f"{self.image_size}"
            )
        return _judged(self._judge, self.pixels, image, fake)

    def _judge(self, x: Tensor) -> Tensor:
        maps = self.layers(x.contiguous(memory_format=torch.channels_last))
        return self.last(activated(self.hidden(maps.flatten(1))))


def _layer(inputs: int, outputs: int, side: int, stride: int, norm: Normalisation) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, side, stride, padding=1, bias=norm != "batch")
    normed = [nn.BatchNorm2d(outputs)] if norm == "batch" else []
    return [convolution, *normed, nn.LeakyReLU(SLOPE, inplace=True)]
