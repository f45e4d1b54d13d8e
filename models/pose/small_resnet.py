"""A small ResNet, and the blocks of every ResNet (He et al., CVPR 2016).

Modules have the names of OpenPifPaf's published networks: `input_block.0`, `conv1`, `downsample.0` and so on.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from .argument_types import Count

Counts = Annotated[tuple[Count, ...], Field(min_length=1)]


class Residual(nn.Module):
    """relu(F(x) + x), where F is two 3 x 3 convolutions: (N, inputs, h, w) -> (N, width, h', w').

    As a bottleneck, F has convolutions of 1 x 1, 3 x 3 (with the stride) and 1 x 1, and 4 `width` outputs. If size or
    width change, a 1 x 1 convolution and norm of x is added.
    """

    def __init__(
        self, inputs: int, width: int, stride: int = 1, dilation: int = 1, *, bottleneck: bool = False
    ) -> None:
        super().__init__()
        sizes, outputs = ((1, 3, 1), 4 * width) if bottleneck else ((3, 3), width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )  # fmt: skip
        widths = [inputs, *[width] * (len(sizes) - 1), outputs]
        self.depth = len(sizes)
        for index, size in enumerate(sizes):
            first, spread = (stride if index == sizes.index(3) else 1), (dilation if size > 1 else 1)
            convolution = nn.Conv2d(
                widths[index], widths[index + 1], size, first, spread * (size // 2), spread, bias=False
            )  # fmt: skip
            self.add_module(f"conv{index + 1}", convolution)
            self.add_module(f"bn{index + 1}", nn.BatchNorm2d(widths[index + 1]))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        for index in range(1, self.depth + 1):
            convolution, norm = (self.get_submodule(f"{kind}{index}") for kind in ("conv", "bn"))
            x = norm(convolution(x))
            x = self.relu(x if index < self.depth else x + shortcut)
        return x


def convolution(inputs: int, outputs: int, size: int, stride: int) -> list[nn.Module]:
    """Convolution padded by half its size, norm, ReLU."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def initialise(network: nn.Module) -> None:
    """Initialise convolutions from He et al.'s normal distribution with fan-out (ICCV 2015)."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class SmallResNet(nn.Module):
    """A ResNet of basic blocks for small images, trained from scratch: stride 16, 1.0 M parameters at the defaults.

    Maps images (N, 3, H, W) to features (N, widths[-1], ceil(H / s), ceil(W / s)) with s = 2^(number of stages). The
    input block and every stage but the first halve the size.

    Args:
        widths: channels of each stage; the input block has as many as the first.
        blocks: number of blocks in each stage.

    Raises:
        ValueError: lists of different lengths.
    """

    def __init__(self, *, widths: Counts = (16, 32, 64, 128), blocks: Counts = (2, 2, 2, 3)) -> None:
        super().__init__()
        if len(widths) != len(blocks):
            raise ValueError(f"widths {list(widths)}, blocks {list(blocks)}: as many of one as of the other are needed")
        self.input_block = nn.Sequential(*convolution(3, widths[0], 3, 2))
        self.stages = nn.Sequential()
        inputs = widths[0]
        for index, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            first = Residual(inputs, width, stride=1 if index == 0 else 2)
            self.stages.append(nn.Sequential(first, *(Residual(width, width) for _ in range(count - 1))))
            inputs = width
        self.channels = inputs
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.stages(self.input_block(x))
