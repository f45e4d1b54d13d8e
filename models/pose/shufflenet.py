"""ShuffleNetV2K: ShuffleNetV2 (Ma et al., ECCV 2018) with wide kernels and without max-pooling.

Source: openpifpaf/network/basenetworks.py. Modules have the names of OpenPifPaf's published networks:
`stage2.0.branch1.0` and so on.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .argument_types import Count

# units of stages 2, 3, 4; channels of the input block, stages 2, 3, 4
DEPTHS: dict[int | str, tuple[tuple[int, int, int], tuple[int, int, int, int]]] = {
    16: ((4, 8, 4), (24, 348, 696, 1392)),
    20: ((5, 10, 5), (32, 512, 1024, 2048)),
    30: ((8, 16, 6), (32, 512, 1024, 2048)),
    44: ((12, 24, 8), (32, 512, 1024, 2048)),
    "x5": ((6, 13, 6), (42, 640, 1280, 2560)),
}
Norm = Literal["batch", "instance", "group"]
Norms = Callable[[int], nn.Module]  # number of channels -> layer
Activations = Callable[[], nn.Module]


class Unit(nn.Module):
    """A ShuffleNetV2 unit: one half of the channels passes unchanged, the other half is convolved.

    The first unit of a stage convolves all channels in both branches. Maps (N, inputs, h, w) to (N, outputs, h', w');
    sides are divided by the stride and rounded up. Ends with a channel shuffle of two groups.
    """

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, stride: int, dilation: int, norm: Norms,
        activation: Activations, first: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        half = outputs // 2
        pointwise = partial(nn.Conv2d, out_channels=half, kernel_size=1, bias=False)

        def depthwise(width: int) -> nn.Conv2d:
            padding = kernel // 2 * dilation
            return nn.Conv2d(width, width, kernel, stride, padding, dilation, groups=width, bias=False)

        self.branch1: nn.Module | None = None
        if first:
            self.branch1 = nn.Sequential(
                depthwise(inputs), norm(inputs), pointwise(inputs), norm(half), activation()
            )  # fmt: skip
        self.branch2 = nn.Sequential(
            pointwise(inputs if first else half), norm(half), activation(),
            depthwise(half), norm(half), pointwise(half), norm(half), activation(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        if self.branch1 is None:
            first, second = x.chunk(2, dim=1)
        else:
            first, second = self.branch1(x), x
        return interleave(first, self.branch2(second))


class _Interleave(torch.autograd.Function):
    """Autograd's gradients would be strided by two in memory, which makes ReLU's slow. Differentiable once."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        pairs = torch.stack((a.permute(0, 2, 3, 1), b.permute(0, 2, 3, 1)), dim=-1)
        return pairs.flatten(-2).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        n, channels, h, w = grad.shape
        pairs = grad.permute(0, 2, 3, 1).reshape(n, h, w, channels // 2, 2)
        a, b = pairs.transpose(-1, -2).contiguous().permute(3, 0, 4, 1, 2)
        return a, b


def interleave(a: Tensor, b: Tensor) -> Tensor:
    """Shuffle the channels of a and b (N, n, h, w) to a_1, b_1, a_2, b_2, ...: (N, 2 n, h, w), channels-last."""
    return _Interleave.apply(a, b)


class ShuffleNetV2K(nn.Module):
    """Maps images (N, 3, H, W) to features (N, channels, ceil(H / stride), ceil(W / stride)); the default stride is 16.

    Args:
        depth: 16, 20, 30 or 44, or "x5", which is 25 % wider.
        input_conv2: add a second convolution of stride 2 after the input block; doubles the stride.
        input_conv2_channels: width of that convolution; default: that of the input block.
        stage4_dilation: above 1, stage 4 is dilated and keeps its input's size; halves the stride.
        kernel: width of the depthwise kernels, odd.
        conv5_as_stage: use two units in place of the last, 1 x 1 convolution.
        norm: `batch`, `instance` (affine, with running statistics) or `group`: 4 groups up to 100 channels, 32 or 29
            above, and the next smaller divisor of the width if these do not divide it.
        leaky_relu: use leaky ReLU (slope 0.01) in place of ReLU.

    Raises:
        ValueError: even kernels, or `group` with a width that has no such divisor.
    """

    def __init__(
        self,
        *,
        depth: int | str,
        input_conv2: bool = False,
        input_conv2_channels: Count | None = None,
        stage4_dilation: Count = 1,
        kernel: Count = 5,
        conv5_as_stage: bool = False,
        norm: Norm = "batch",
        leaky_relu: bool = False,
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"kernel {kernel}: an odd width is needed")
        if input_conv2_channels is not None and not input_conv2:
            raise ValueError(f"input_conv2_channels {input_conv2_channels}: needs input_conv2 true")
        units, (width, *widths) = DEPTHS[depth]
        normalise = partial(_norm, norm)
        activation = partial(nn.LeakyReLU, 0.01, inplace=True) if leaky_relu else partial(nn.ReLU, inplace=True)

        def convolution(a: int, b: int, size: int, stride: int) -> nn.Sequential:
            layer = nn.Conv2d(a, b, size, stride, padding=size // 2, bias=False)
            return nn.Sequential(layer, normalise(b), activation())

        def stage(a: int, b: int, count: int, *, stride: int = 1, dilation: int = 1) -> nn.Sequential:
            return nn.Sequential(*(
                Unit(
                    a if i == 0 else b, b, kernel=kernel, stride=stride if i == 0 else 1, dilation=dilation,
                    norm=normalise, activation=activation, first=i == 0 and (stride > 1 or a != b),
                )
                for i in range(count)
            ))  # fmt: skip

        self.input_block = nn.Sequential(convolution(3, width, 3, 2))
        if input_conv2:
            wide = input_conv2_channels or width
            self.input_block.append(convolution(width, wide, 3, 2))
            width = wide
        last = {"stride": 2} if stage4_dilation == 1 else {"dilation": stage4_dilation}
        self.stage2 = stage(width, widths[0], units[0], stride=2)
        self.stage3 = stage(widths[0], widths[1], units[1], stride=2)
        self.stage4 = stage(widths[1], widths[2], units[2], **last)
        self.channels = widths[2]
        self.conv5 = (
            stage(self.channels, self.channels, 2, dilation=stage4_dilation)
            if conv5_as_stage
            else convolution(self.channels, self.channels, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.conv5(self.stage4(self.stage3(self.stage2(self.input_block(x)))))


def _norm(kind: Norm, channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "instance":
        return nn.InstanceNorm2d(channels, affine=True, track_running_stats=True)
    return nn.GroupNorm(_groups(channels), channels)


def _groups(channels: int) -> int:
    """Return the first divisor of the width: OpenPifPaf's numbers of groups (4; 32, 29), then smaller ones above 1."""
    numbers = (4, 3, 2) if channels <= 100 else (32, 29, *range(31, 1, -1))
    groups = next((n for n in numbers if channels % n == 0), None)
    if groups is None:
        raise ValueError(f"norm group: {channels} channels are no multiple of {min(numbers)} to {max(numbers)} groups")
    return groups
