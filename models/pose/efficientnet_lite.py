"""EfficientNet-Lite0, with a stride of 16 and ImageNet's weights.

EfficientNet (Tan and Le, ICML 2019) without squeeze-and-excitation and with ReLU6, as TensorFlow's repository `tpu`
published it in 2020. Modules have timm's names of `tf_efficientnet_lite0`: `blocks.1.0.conv_dw` and so on.
"""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from ..images.weight_files import UNCOUNTED, WeightFile

STEM = 32  # channels
# blocks, channels, kernel, stride, dilation of the first block and of the others; published, stage 6 has a stride of 2
# and none is dilated
STAGES = (
    (1, 16, 3, 1, 1, 1), (2, 24, 3, 2, 1, 1), (2, 40, 5, 2, 1, 1), (3, 80, 3, 2, 1, 1), (3, 112, 5, 1, 1, 1),
    (4, 192, 5, 1, 1, 2), (1, 320, 3, 1, 2, 2),
)  # fmt: skip
EXPANSION = 6  # of all stages but the first
REMEDY = "docs/recipes/pose.md says how to get the file"


class SeparableBlock(nn.Module):
    """Depthwise `kernel` x `kernel`, then 1 x 1: maps (N, inputs, h, w) to (N, outputs, h, w)."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.conv_dw = nn.Conv2d(inputs, inputs, kernel, padding=kernel // 2, groups=inputs, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv_pw = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.act = nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv_pw(self.act(self.bn1(self.conv_dw(x)))))


class InvertedResidual(nn.Module):
    """1 x 1 to more channels, depthwise, 1 x 1 (Sandler et al., CVPR 2018); x is added where its shape stays.

    Maps (N, inputs, h, w) to (N, outputs, h', w'); sides are divided by the stride and rounded up.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, dilation: int) -> None:
        super().__init__()
        width, padding = EXPANSION * inputs, kernel // 2 * dilation
        self.conv_pw = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv_dw = nn.Conv2d(width, width, kernel, stride, padding, dilation, groups=width, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv_pwl = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.act = nn.ReLU6(inplace=True)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn1(self.conv_pw(x)))
        y = self.bn3(self.conv_pwl(self.act(self.bn2(self.conv_dw(y)))))
        return x + y if self.adds else y


class EfficientNetLite(nn.Module):
    """Maps images (N, 3, H, W) to (N, channels, (H - 1) // 16 + 1, (W - 1) // 16 + 1).

    Images are in [-1, 1], as the published weights take them: mean and std of 0.5. Where all sides are a multiple of 16
    plus 1, values are those of the published network, whose padding otherwise depends on the size.

    Args:
        stages: 5, which end in 112 channels, or all 7, which end in 320; the last two are then dilated.
        pretrained: weights for `load_pretrained`, a safetensors file that `figura import efficientnet_lite` writes.
    """

    def __init__(self, *, stages: Literal[5, 7] = 5, pretrained: str | None = None) -> None:
        super().__init__()
        self.pretrained = pretrained
        self.conv_stem = nn.Conv2d(3, STEM, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM)
        self.act = nn.ReLU6(inplace=True)
        self.channels = STEM
        self.blocks = nn.Sequential(*(self._stage(*settings) for settings in STAGES[:stages]))

    def load_pretrained(self) -> None:
        """Load the weights selected by `pretrained`, if any. Tensors of stages that the network lacks are ignored.

        Raises:
            UserError: the file is missing, or a tensor is missing or has a wrong shape.
        """
        if self.pretrained:
            shapes = {n: tuple(t.shape) for n, t in self.state_dict().items() if not n.endswith(UNCOUNTED)}
            weights = WeightFile("EfficientNet-Lite0's weights", REMEDY).read(Path(self.pretrained), shapes)
            self.load_state_dict(weights, strict=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)  # a quarter faster to train on CPUs
        return self.blocks(self.act(self.bn1(self.conv_stem(x))))

    def _stage(self, count: int, width: int, kernel: int, stride: int, first: int, dilation: int) -> nn.Module:
        inputs, self.channels = self.channels, width
        if inputs == STEM:
            return nn.Sequential(SeparableBlock(inputs, width, kernel))
        others = (InvertedResidual(width, width, kernel, 1, dilation) for _ in range(count - 1))
        return nn.Sequential(InvertedResidual(inputs, width, kernel, stride, first), *others)
