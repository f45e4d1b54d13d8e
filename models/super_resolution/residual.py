"""A generator of residual blocks at the small size (Lim et al., *EDSR*, CVPRW 2017)."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from figura.base.errors import UserError

from ..images.argument_types import Count
from .rrdb import Factor, convolution, enlarged


class ResidualBlock(nn.Module):
    """`x + f(x)`: two convolutions around a ReLU, without normalisation."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.second = convolution(features, features), convolution(features, features)

    def forward(self, x: Tensor) -> Tensor:
        """(N, features, H, W) -> the same."""
        return x + self.second(F.relu_(self.first(x)))


class ResidualGenerator(nn.Module):
    """Enlarge an image by any whole `scale`: bicubic interpolation, and details that residual blocks add.

    A convolution to `features` channels, `blocks` residual blocks and a convolution under one skip connection, and a
    convolution to `scale`^2 pixels for each input pixel, which a pixel shuffle arranges (Shi et al., *ESPCN*, CVPR
    2016). All layers work at the small size, so that a training step costs the same at every scale. At first the
    network computes the bicubic interpolation, because its last convolution is initialised to 0. It is fully
    convolutional. 636,492 parameters at the defaults.

    Args:
        scale: a recipe takes it from the training data.
        channels: of both images.
        features: width.
        blocks: number of residual blocks.
        initial_scale: factor on He's initialisation of the second convolution of each block.
    """

    outputs: ClassVar[tuple[str, ...]] = ("image",)
    from_data: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(
        self,
        *,
        scale: Count = 2,
        channels: Count = 3,
        features: Count = 64,
        blocks: Count = 8,
        initial_scale: Factor = 0.3,
    ) -> None:
        super().__init__()
        self.scale, self.channels = scale, channels
        self.first = convolution(channels, features)
        self.trunk = nn.Sequential(*(ResidualBlock(features) for _ in range(blocks)))
        self.merging = convolution(features, features)
        self.last = convolution(features, channels * scale**2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, ResidualBlock):
                    module.second.weight.mul_(initial_scale)
            self.last.weight.zero_()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """(N, channels, H, W) in [-1, 1] -> `image` (N, channels, scale H, scale W), about [-1, 1].

        Raises:
            UserError: the channels differ.
        """
        if x.shape[1] != self.channels:
            raise UserError(
                f"images for ResidualGenerator: found {x.shape[1]} channels; needed are {self.channels} (channels)"
            )
        small = self.first(x.contiguous(memory_format=torch.channels_last))  # faster on CPUs
        small = small + self.merging(self.trunk(small))
        return {"image": F.pixel_shuffle(self.last(small), self.scale) + enlarged(x, self.scale)}
