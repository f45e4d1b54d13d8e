"""Building blocks of generator and discriminator: convolutions, and the U-Net's blocks."""

from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ..images.norms import Normalisation, normalise
from .convolutions import convolve, convolve_transposed

Direction = Literal["down", "up"]
Upsampling = Literal["transposed", "bilinear"]
Position = Literal["after_activation", "before_activation"]
Padding = Literal["reflect", "zeros"]
Biases = Literal["without_norm", "with_instance_norm"]


class Convolution(nn.Conv2d):
    """4 x 4 convolution, padded by one pixel, reflected or 0: (N, a, H, W) -> (N, b, H/2, W/2).

    With stride 1 the result has H - 1 x W - 1 pixels.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int = 2, bias: bool, padding: Padding = "reflect") -> None:
        super().__init__(inputs, outputs, 4, stride, padding=1, padding_mode=padding, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return convolve(x, self.weight, self.bias, self.stride[0], self.padding_mode)


class TransposedConvolution(nn.ConvTranspose2d):
    """4 x 4 transposed convolution of stride 2: (N, a, H, W) -> (N, b, 2H, 2W)."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__(inputs, outputs, 4, stride=2, padding=1, bias=bias)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        return convolve_transposed(x, self.weight, self.bias)


class ResizeConvolution(nn.Conv2d):
    """Bilinear upsampling, then a 3 x 3 convolution with reflection padding: (N, a, H, W) -> (N, b, 2H, 2W).

    Avoids checkerboard artefacts, and always has a bias, as in NectarGAN.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3)

    def forward(self, x: Tensor) -> Tensor:
        large = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return super().forward(F.pad(large, (1, 1, 1, 1), mode="reflect"))


def has_bias(biases: Biases, norm: Normalisation, own: Normalisation) -> bool:
    """Whether a convolution followed by the norm `own` has a bias, in a network whose blocks have the norm `norm`.

    `without_norm`: if no norm follows. `with_instance_norm`: everywhere if `norm` is instance, else nowhere.
    """
    return own == "none" if biases == "without_norm" else norm == "instance"


class Block(nn.Module):
    """One level of the U-Net, half (`down`) or twice (`up`) the size: convolution, norm, activation, dropout.

    `before_activation` puts dropout between norm and activation, as in the paper.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        direction: Direction,
        upsampling: Upsampling,
        norm: Normalisation,
        bias: bool,
        activation: nn.Module,
        padding: Padding = "reflect",
        dropout: float = 0.0,
        dropout_position: Position = "after_activation",
    ) -> None:
        super().__init__()
        self.convolution: nn.Module
        if direction == "down":
            self.convolution = Convolution(inputs, outputs, bias=bias, padding=padding)
        elif upsampling == "transposed":
            self.convolution = TransposedConvolution(inputs, outputs, bias=bias)
        else:
            self.convolution = ResizeConvolution(inputs, outputs)
        self.norm = normalise(norm, outputs)
        self.activation = activation
        self.dropout = dropout
        self.early = dropout_position == "before_activation"

    def forward(self, x: Tensor, drop: bool) -> Tensor:
        y = F.dropout(self.norm(self.convolution(x)), self.dropout, drop and self.early)
        return F.dropout(self.join(y, x), self.dropout, drop and not self.early)

    def join(self, y: Tensor, x: Tensor) -> Tensor:
        """Return the block's output, given its input `x` and the normalised convolution `y` of it."""
        return self.activation(y)


class ResidualBlock(Block):
    """A block with a shortcut, a 1 x 1 convolution of stride 2: `act(norm(conv(x))) + relu(shortcut(x))`.

    In an up block, the transposed shortcut reaches only the even rows and columns; the other pixels get relu(bias). If
    an up block keeps its width, the shortcut is the input, upsampled by nearest neighbour. With tanh, in the output
    block, the activation is applied to the sum, so that images stay in [-1, 1], unless `bounded` is false.
    """

    def __init__(self, inputs: int, outputs: int, *, direction: Direction, bounded: bool = True, **more: Any) -> None:
        super().__init__(inputs, outputs, direction=direction, **more)
        self.bounded = bounded
        self.shortcut: nn.Module
        if direction == "down":
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=2), nn.ReLU())
        elif inputs != outputs:
            enlarge = nn.ConvTranspose2d(inputs, outputs, 1, stride=2, output_padding=1)
            self.shortcut = nn.Sequential(enlarge, nn.ReLU())
        else:
            self.shortcut = nn.Upsample(scale_factor=2, mode="nearest")

    def join(self, y: Tensor, x: Tensor) -> Tensor:
        if self.bounded and isinstance(self.activation, nn.Tanh):
            return self.activation(y + self.shortcut(x))
        return self.activation(y) + self.shortcut(x)
