"""The generator of residual-in-residual dense blocks, RRDB (Wang et al., *ESRGAN*, ECCVW 2018, section 3.1)."""

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from figura.base.errors import UserError

from ..images.argument_types import Count

Pixels = Literal["signed", "unit"]
Factor = Annotated[float, Field(gt=0.0, le=1.0)]

SLOPE = 0.2  # of every leaky ReLU
DENSE = 5  # convolutions in a dense block
BLOCKS = 3  # dense blocks in an RRDB


def convolution(inputs: int, outputs: int) -> nn.Conv2d:
    """Return a padded 3 x 3 convolution: (N, inputs, H, W) -> (N, outputs, H, W)."""
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def activated(x: Tensor) -> Tensor:
    """Leaky ReLU of slope 0.2, in place."""
    return F.leaky_relu_(x, SLOPE)


class DenseBlock(nn.Module):
    """`x + scaling f(x)`: five convolutions, each of x and all earlier outputs (Zhang et al., CVPR 2018).

    The first four have `growth` output channels and an activation, the last has as many channels as x.
    """

    def __init__(self, features: int, growth: int, scaling: float) -> None:
        super().__init__()
        self.scaling = scaling
        self.convolutions = nn.ModuleList(
            convolution(features + i * growth, growth if i < DENSE - 1 else features) for i in range(DENSE)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, features, H, W) -> the same."""
        maps = [x]
        for layer in self.convolutions[:-1]:
            maps.append(activated(layer(torch.cat(maps, dim=1))))
        return torch.add(x, self.convolutions[-1](torch.cat(maps, dim=1)), alpha=self.scaling)


class ResidualDenseBlocks(nn.Module):
    """`x + scaling f(x)`, where f is three dense blocks in sequence: the RRDB."""

    def __init__(self, features: int, growth: int, scaling: float) -> None:
        super().__init__()
        self.scaling = scaling
        self.blocks = nn.Sequential(*(DenseBlock(features, growth, scaling) for _ in range(BLOCKS)))

    def forward(self, x: Tensor) -> Tensor:
        """(N, features, H, W) -> the same."""
        return torch.add(x, self.blocks(x), alpha=self.scaling)


class RRDBGenerator(nn.Module):
    """Enlarges an image by `scale`. Without `bicubic_skip` it is ESRGAN's network.

    A convolution to `features` channels is followed by `blocks` RRDBs and a convolution under one skip connection, an
    upsampling by nearest neighbour and a convolution per doubling, and two final convolutions. It has 16,697,987
    parameters at the defaults, no normalisation, and no output activation. It is fully convolutional: images may have
    any size.

    Args:
        scale: 1, 2 or 4. A recipe takes it from the training data.
        in_channels: channels of the small image.
        out_channels: channels of the large image.
        features: width.
        blocks: number of RRDBs.
        growth: channels added by each convolution of a dense block.
        scaling: factor of every residual.
        pixels: range of the values inside: `signed`, [-1, 1], like images; or `unit`, [0, 1], as in BasicSR's networks:
            their input is (x + 1) / 2, and their output y is converted to 2 y - 1.
        unshuffle: 1, 2 or 4: squares of this side are first rearranged to channels, and one or two more doublings
            follow, as in BasicSR's networks for scales 2 and 1. `scale` x `unshuffle` is at most 4.
        bicubic_skip: add the bicubically upsampled input to the output. The network initially computes exactly that,
            because its last convolution is initialised to 0. Needs `in_channels` equal to `out_channels`.
        trunk_skip: what the convolution behind the blocks is added to: their `input`, as in the paper, or their
            `output`, as in DL-Art-School's network.
        initial_scale: factor on He's initialisation of the residual blocks (section 3.1: small values, here 0.1, make
            deep networks stable; shallow ones learn faster with 1).

    Raises:
        ValueError: arguments contradict each other.
    """

    outputs: ClassVar[tuple[str, ...]] = ("image",)
    from_data: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(
        self,
        *,
        scale: Literal[1, 2, 4] = 4,
        in_channels: Count = 3,
        out_channels: Count = 3,
        features: Count = 64,
        blocks: Count = 23,
        growth: Count = 32,
        scaling: Factor = 0.2,
        pixels: Pixels = "signed",
        unshuffle: Literal[1, 2, 4] = 1,
        bicubic_skip: bool = False,
        trunk_skip: Literal["input", "output"] = "input",
        initial_scale: Factor = 0.1,
    ) -> None:
        super().__init__()
        if scale * unshuffle > 4:
            raise ValueError(f"unshuffle {unshuffle}: at most 4 times that is needed with scale {scale}")
        if bicubic_skip and in_channels != out_channels:
            raise ValueError(
                f"bicubic_skip: in_channels {in_channels} and out_channels {out_channels} must be the same"
            )
        self.scale, self.in_channels, self.bicubic_skip = scale, in_channels, bicubic_skip
        self.pixels, self.unshuffle, self.trunk_skip = pixels, unshuffle, trunk_skip
        self.first = convolution(in_channels * unshuffle**2, features)
        self.trunk = nn.Sequential(
            *(ResidualDenseBlocks(features, growth, scaling) for _ in range(blocks)), convolution(features, features)
        )
        doublings = {1: 0, 2: 1, 4: 2}[scale * unshuffle]
        self.ups = nn.ModuleList(convolution(features, features) for _ in range(doublings))
        self.painting = convolution(features, features)
        self.last = convolution(features, out_channels)
        self._initialise(initial_scale)

    def _initialise(self, initial_scale: float) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, a=SLOPE)
                assert module.bias is not None
                nn.init.zeros_(module.bias)
                if ".blocks." in name:
                    with torch.no_grad():
                        module.weight.mul_(initial_scale)
        if self.bicubic_skip:
            nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """(N, in_channels, H, W) in [-1, 1] -> `image` (N, out_channels, scale H, scale W), about [-1, 1].

        Raises:
            UserError: the channels differ, or sides are not multiples of `unshuffle`.
        """
        if x.shape[1] != self.in_channels:
            raise UserError(
                f"images for RRDBGenerator: found {x.shape[1]} channels; needed are {self.in_channels} (in_channels)"
            )
        if x.shape[2] % self.unshuffle or x.shape[3] % self.unshuffle:
            raise UserError(
                f"images for RRDBGenerator: found {x.shape[2]} x {x.shape[3]} pixels; needed are multiples of "
                f"{self.unshuffle} (unshuffle)"
            )
        pixels = x if self.pixels == "signed" else (x + 1) / 2
        pixels = F.pixel_unshuffle(pixels, self.unshuffle) if self.unshuffle > 1 else pixels
        small = self.first(pixels.contiguous(memory_format=torch.channels_last))  # a fifth faster on CPUs
        if self.trunk_skip == "input":
            small = small + self.trunk(small)
        else:
            small = self.trunk[:-1](small)
            small = small + self.trunk[-1](small)
        for layer in self.ups:
            small = activated(layer(F.interpolate(small, scale_factor=2.0, mode="nearest")))
        image = self.last(activated(self.painting(small)))
        image = image if self.pixels == "signed" else 2 * image - 1
        if self.bicubic_skip:
            image = image + enlarged(x, self.scale)
        return {"image": image}


def enlarged(x: Tensor, scale: int) -> Tensor:
    """Upsample (N, C, H, W) bicubically by an integer factor: Keys' kernel with a = -0.75 (IEEE TASSP 29(6), 1981)."""
    if scale == 1:
        return x
    return F.interpolate(x, scale_factor=float(scale), mode="bicubic", align_corners=False)
