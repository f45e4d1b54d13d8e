"""The residual generator of CycleGAN: image to image of the same size (Zhu et al., ICCV 2017, appendix 7.2).

It is the style-transfer network of Johnson et al. (ECCV 2016) with reflection padding.
"""

from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from figura.base.errors import UserError

from .argument_types import Count, Rate
from .norms import Initialisation, Normalisation, initialise, normalise

FACTOR = 4  # downsampling factor of the residual blocks
SMALLEST = 8  # side in pixels: reflection padding needs 4 of the image, and 2 of the maps


class Layer(nn.Module):
    """A convolution, its norm and ReLU: (N, a, H, W) -> (N, b, H', W')."""

    def __init__(self, convolution: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, norm

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.convolution(x)))


class ResidualBlock(nn.Module):
    """`x + norm(conv(D(relu(norm(conv(x))))))` with 3 x 3 convolutions; D is dropout. Keeps the shape."""

    def __init__(self, channels: int, norm: Normalisation, bias: bool, dropout: float) -> None:
        super().__init__()
        self.first = _convolution(channels, channels, 3, bias)
        self.first_norm = normalise(norm, channels)
        self.second = _convolution(channels, channels, 3, bias)
        self.second_norm = normalise(norm, channels)
        self.dropout = dropout

    def forward(self, x: Tensor, drop: bool) -> Tensor:
        h = F.relu(self.first_norm(self.first(x)))
        return x + self.second_norm(self.second(F.dropout(h, self.dropout, drop)))


class ResNetGenerator(nn.Module):
    """Two halvings, residual blocks at a quarter of the size, two doublings, tanh.

    A 7 x 7 convolution to `features` channels, two 3 x 3 convolutions of stride 2 that double them, `blocks` residual
    blocks of 4 `features` channels, two transposed convolutions and a 7 x 7 convolution. The 7 x 7 convolutions and the
    blocks pad by reflection. As in pytorch-CycleGAN-and-pix2pix, the last convolution always has a bias, the others
    only with the norm `instance`. Parameters at the defaults: 11,378,179; with 6 blocks 7,837,699.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the image.
        features: width at full size.
        blocks: number of residual blocks; 9 for images of 256 pixels, 6 for 128 in the paper.
        norm: `instance` has no parameters and no running statistics, `batch` has both.
        dropout: probability, in every block; CycleGAN has none, pix2pix with this generator 0.5.
        initialisation: `normal` is N(0, 0.02) with zero bias (the paper's); `default` is PyTorch's.
    """

    outputs: ClassVar[tuple[str, ...]] = ("image",)

    def __init__(
        self,
        *,
        in_channels: Count = 3,
        out_channels: Count = 3,
        features: Count = 64,
        blocks: Count = 9,
        norm: Normalisation = "instance",
        dropout: Rate = 0.0,
        initialisation: Initialisation = "normal",
    ) -> None:
        super().__init__()
        self.in_channels, self.factor, bias = in_channels, FACTOR, norm == "instance"
        widths = [features, 2 * features, 4 * features]
        halving = partial(nn.Conv2d, kernel_size=3, stride=2, padding=1, bias=bias)
        doubling = partial(nn.ConvTranspose2d, kernel_size=3, stride=2, padding=1, output_padding=1, bias=bias)
        self.pixels = nn.Identity()  # a module whose output is the input, for taps
        self.first = Layer(_convolution(in_channels, features, 7, bias), normalise(norm, features))
        self.downs = nn.ModuleList(Layer(halving(a, b), normalise(norm, b)) for a, b in pairwise(widths))
        self.blocks = nn.ModuleList(ResidualBlock(widths[2], norm, bias, dropout) for _ in range(blocks))
        self.ups = nn.ModuleList(Layer(doubling(a, b), normalise(norm, b)) for a, b in pairwise(reversed(widths)))
        self.last = _convolution(features, out_channels, 7, True)
        initialise(self, initialisation)

    def forward(self, x: Tensor, dropout: bool | None = None, depth: int | None = None) -> dict[str, Tensor]:
        """(N, in_channels, H, W) in [-1, 1] -> `image` (N, out_channels, H, W) in [-1, 1].

        With `dropout` None, dropout is active only in training mode; with True always, with False never. With `depth`,
        the network ends after so many residual blocks and returns no image: for a call that only taps its features.

        Raises:
            UserError: the channels differ, or sides are not multiples of 4, or smaller than 8.
        """
        sides = x.shape[2:]
        if x.shape[1] != self.in_channels or any(side % FACTOR or side < SMALLEST for side in sides):
            raise UserError(
                f"images for ResNetGenerator: found {x.shape[1]} channels and {x.shape[2]} x {x.shape[3]} pixels; "
                f"needed are {self.in_channels} channels (in_channels) and sides that are multiples of {FACTOR}, at "
                f"least {SMALLEST}"
            )
        drop = self.training if dropout is None else dropout
        x = self.first(self.pixels(x))
        for layer in self.downs:
            x = layer(x)
        for block in self.blocks[:depth]:
            x = block(x, drop)
        if depth is not None:
            return {}
        for layer in self.ups:
            x = layer(x)
        return {"image": torch.tanh(self.last(x))}


def _convolution(inputs: int, outputs: int, size: int, bias: bool) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, padding_mode="reflect", bias=bias)
