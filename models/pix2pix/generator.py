"""The U-Net generator: input image to image of the same size (Isola et al., CVPR 2017, section 3.2.1)."""

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from figura.base.errors import UserError, missing

from ..images.argument_types import Count, Rate, Sides, sides
from ..images.norms import Initialisation, Normalisation, initialise
from .blocks import Biases, Block, Padding, Position, ResidualBlock, Upsampling, has_bias

WIDEST = 8  # times `features`


class UNetGenerator(nn.Module):
    """Encoder and decoder of `n_downs` + 2 levels with a skip connection at each size.

    Level i has min(2^i, 8) `features` channels and 1/2^(i+1) of the size; the bottleneck is the last level. Widths,
    norms and parameter counts are those of NectarGAN (54,404,675 parameters at the defaults). Two of its bugs are
    fixed: the residual output block ends in tanh, and the shortcut of equal width is upsampled, so that the bottleneck
    may have any size. With `padding` zeros, `biases` with_instance_norm and `relu_skips` it is the U-Net of
    pytorch-CycleGAN-and-pix2pix (54,413,955 parameters with batch norm).

    Args:
        image_size: (height, width), or one number for both; multiples of 2^(n_downs + 2). It only checks the training
            size, by default that of the training data: the network is fully convolutional.
        in_channels: channels of the input.
        out_channels: channels of the image.
        features: width of the first level.
        n_downs: the bottleneck has 8 `features` channels.
        block: `standard`, or `residual` with a shortcut in each block.
        upsampling: `transposed` convolution, or `bilinear` upsampling and a convolution.
        norm: norm of all blocks except the first, the bottleneck and the last.
        padding: of the down blocks' convolutions: one pixel, `reflect` or `zeros`.
        biases: `without_norm`: of blocks without a norm; `with_instance_norm`: of all blocks if `norm` is instance,
            else only of the last. Bilinear upsampling always has one.
        relu_skips: apply ReLU to the skip connections, which are leaky ReLU's outputs.
        residual_output: `bounded` adds the output block's shortcut before tanh, `unbounded` after it, as in NectarGAN.
        dropout: probability.
        dropout_layers: number of up blocks with dropout, counted from the deepest.
        dropout_position: `after_activation` as in NectarGAN, or `before_activation` as in the paper.
        initialisation: `normal` is N(0, 0.02) with zero bias (the paper's); `default` is PyTorch's.

    Raises:
        ValueError: `image_size` and `n_downs` contradict each other.
    """

    outputs: ClassVar[tuple[str, ...]] = ("image",)
    from_data: ClassVar[tuple[str, ...]] = ("image_size",)

    def __init__(
        self,
        *,
        image_size: Sides | None = None,
        in_channels: Count = 3,
        out_channels: Count = 3,
        features: Count = 64,
        n_downs: Annotated[int, Field(ge=3)] = 6,
        block: Literal["standard", "residual"] = "standard",
        upsampling: Upsampling = "transposed",
        norm: Normalisation = "instance",
        padding: Padding = "reflect",
        biases: Biases = "without_norm",
        relu_skips: bool = False,
        residual_output: Literal["bounded", "unbounded"] = "bounded",
        dropout: Rate = 0.5,
        dropout_layers: Annotated[int, Field(ge=0)] = 3,
        dropout_position: Position = "after_activation",
        initialisation: Initialisation = "normal",
    ) -> None:
        super().__init__()
        self.factor = 2 ** (n_downs + 2)
        if image_size is None:
            raise missing("image_size")
        if any(side % self.factor for side in sides(image_size)):
            raise ValueError(
                f"image_size {image_size}: multiples of {self.factor} are needed, 2^(n_downs + 2) with n_downs "
                f"{n_downs}; it is the crop_size of the training data unless the recipe says another"
            )
        if dropout_layers > n_downs + 1:
            raise ValueError(f"dropout_layers {dropout_layers}: at most {n_downs + 1} is needed, n_downs + 1")
        self.in_channels, self.relu_skips = in_channels, relu_skips
        widths = [min(2**i, WIDEST) * features for i in range(n_downs + 1)]
        kind = ResidualBlock if block == "residual" else Block

        def down(a: int, b: int, own: Normalisation, activation: nn.Module) -> Block:
            return kind(
                a, b, direction="down", upsampling=upsampling, norm=own, bias=has_bias(biases, norm, own),
                activation=activation, padding=padding,
            )  # fmt: skip

        def up(a: int, b: int, activation: nn.Module, rate: float = 0.0) -> Block:
            return kind(
                a, b, direction="up", upsampling=upsampling, norm=norm, bias=has_bias(biases, norm, norm),
                activation=activation, dropout=rate, dropout_position=dropout_position,
            )  # fmt: skip

        self.first = down(in_channels, widths[0], "none", nn.LeakyReLU(0.2, inplace=True))
        self.downs = nn.ModuleList(down(a, b, norm, nn.LeakyReLU(0.2, inplace=True)) for a, b in pairwise(widths))
        self.bottleneck = down(widths[-1], widths[-1], "none", nn.ReLU(inplace=True))
        inputs = [widths[-1], *(2 * width for width in reversed(widths[1:]))]
        outputs = [widths[-1], *reversed(widths[:-1])]
        self.ups = nn.ModuleList(
            up(a, b, nn.ReLU(inplace=True), dropout if j < dropout_layers else 0.0)
            for j, (a, b) in enumerate(zip(inputs, outputs, strict=True))
        )
        ending: dict[str, Any] = {"bounded": residual_output == "bounded"} if kind is ResidualBlock else {}
        self.last = kind(
            2 * widths[0], out_channels, direction="up", upsampling=upsampling, norm="none", bias=True,
            activation=nn.Tanh(), **ending,
        )  # fmt: skip
        initialise(self, initialisation)

    def forward(self, x: Tensor, dropout: bool | None = None) -> dict[str, Tensor]:
        """(N, in_channels, H, W) in [-1, 1] -> `image` (N, out_channels, H, W) in [-1, 1].

        With `dropout` None, dropout is active only in training mode; with True always (the paper's source of variety at
        test time), with False never.

        Raises:
            UserError: the channels differ, or sides are not multiples of 2^(n_downs + 2).
        """
        if x.shape[1] != self.in_channels or x.shape[2] % self.factor or x.shape[3] % self.factor:
            raise UserError(
                f"images for UNetGenerator: found {x.shape[1]} channels and {x.shape[2]} x {x.shape[3]} pixels; needed "
                f"are {self.in_channels} channels (in_channels) and sides that are multiples of {self.factor}, "
                "2^(n_downs + 2): resize or pad the images, or lower n_downs"
            )
        drop = self.training if dropout is None else dropout
        x = self.first(x, drop)
        skips = [x]
        for block in self.downs:
            x = block(x, drop)
            skips.append(x)
        x = self.ups[0](self.bottleneck(x, drop), drop)
        for block in self.ups[1:]:
            x = block(self._joined(x, skips.pop()), drop)
        return {"image": self.last(self._joined(x, skips.pop()), drop)}

    def _joined(self, x: Tensor, skip: Tensor) -> Tensor:
        return torch.cat([x, F.relu(skip) if self.relu_skips else skip], dim=1)
