"""ResNet (He et al., CVPR 2016) without its max-pool, so that the stride is 16, and its ImageNet weights.

Source: openpifpaf/network/basenetworks.py. Modules have the names of OpenPifPaf's published networks: `input_block.0`,
`block2.0.conv1` and so on.
"""

from functools import partial
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from ..images.weight_files import FILE, UNCOUNTED, WeightFile
from .argument_types import Count
from .small_resnet import Residual, convolution, initialise

STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
WIDTHS = (64, 128, 256, 512)
BOTTLENECKS_FROM = 50  # depth


class ResNet(nn.Module):
    """Maps images (N, 3, H, W) to features (N, channels, ceil(H / stride), ceil(W / stride)); the default stride is 16.

    For `pool0_stride` 1 and `input_conv_stride` 1, OpenPifPaf records a stride that does not match its layers; the
    network itself is the same here.

    Args:
        depth: 18, 34, 50, 101 or 152.
        pool0_stride: stride of the stem's 3 x 3 max-pool; 0 removes the pool.
        input_conv_stride: stride of the first, 7 x 7 convolution; 1 halves the stride of the network.
        input_conv2: use a 3 x 3 convolution of stride 2 in place of the max-pool; it is never pretrained.
        block5_dilation: above 1, the last stage is dilated and keeps its input's size; halves the stride.
        remove_last_block: drop the last stage; halves channels and stride.
        pretrained: ImageNet weights for `load_pretrained`: a safetensors file, or `hub` (see `load_imagenet`).
        sha256: the expected checksum of this file.

    Raises:
        ValueError: contradictory options.
    """

    def __init__(
        self,
        *,
        depth: int,
        pool0_stride: Annotated[int, Field(ge=0)] = 0,
        input_conv_stride: Count = 2,
        input_conv2: bool = False,
        block5_dilation: Count = 1,
        remove_last_block: bool = False,
        pretrained: str | None = None,
        sha256: str | None = None,
    ) -> None:
        super().__init__()
        if pool0_stride and input_conv2:
            raise ValueError(f"input_conv2 replaces the max-pool: pool0_stride 0 is needed, not {pool0_stride}")
        if remove_last_block and block5_dilation != 1:
            raise ValueError(f"block5_dilation {block5_dilation}: there is no last block to dilate (remove_last_block)")
        self.input_block = nn.Sequential(*convolution(3, WIDTHS[0], 7, input_conv_stride))
        if pool0_stride:
            self.input_block.append(nn.MaxPool2d(3, pool0_stride, padding=1))
        if input_conv2:
            self.input_block.append(nn.Sequential(*convolution(WIDTHS[0], WIDTHS[0], 3, 2)))
        block = partial(Residual, bottleneck=depth >= BOTTLENECKS_FROM)
        expansion = 4 if depth >= BOTTLENECKS_FROM else 1

        def stage(inputs: int, place: int, *, stride: int, dilation: int = 1) -> nn.Sequential:
            width = WIDTHS[place]
            rest = [block(expansion * width, width, 1, dilation) for _ in range(STAGES[depth][place] - 1)]
            return nn.Sequential(block(inputs, width, stride, dilation), *rest)

        outputs = [expansion * width for width in WIDTHS]
        self.block2 = stage(WIDTHS[0], 0, stride=1)
        self.block3 = stage(outputs[0], 1, stride=2)
        self.block4 = stage(outputs[1], 2, stride=2)
        self.block5 = (
            nn.Identity()
            if remove_last_block
            else stage(outputs[2], 3, stride=2 if block5_dilation == 1 else 1, dilation=block5_dilation)
        )
        self.channels = outputs[2 if remove_last_block else 3]
        self.depth, self.pretrained, self.sha256 = depth, pretrained, sha256
        initialise(self)

    def load_pretrained(self) -> None:
        """Load the ImageNet weights selected by `pretrained`, if any. Raises like `load_imagenet`."""
        if self.pretrained is not None:
            load_imagenet(self, self.depth, self.pretrained, self.sha256)

    def forward(self, x: Tensor) -> Tensor:
        return self.block5(self.block4(self.block3(self.block2(self.input_block(x)))))


def load_imagenet(network: nn.Module, depth: int, source: str, sha256: str | None = None) -> None:
    """Fill a ResNet's input block and stages in place from `source`: `hub`, or the path of a safetensors file.

    The file has the tensor names of torchvision and timm (conv1, bn1, layer1.0.conv1, ...). Tensors of layers that the
    network lacks, such as the classifier, are ignored. A second input convolution keeps its weights. For `sha256` see
    `WeightFile.locate`.

    Raises:
        UserError: a missing file, a wrong checksum, or a tensor that is missing or has a wrong shape; with advice.
    """
    repository = f"timm/resnet{depth}.tv_in1k"  # torchvision's first weights, IMAGENET1K_V1
    remedy = (
        f"give `pretrained` the path of {FILE} from https://huggingface.co/{repository}, or 'hub' to fetch it, "
        "or leave it out to train from scratch"
    )
    published = WeightFile("ResNet weights", remedy, repository)
    path = published.locate(source, sha256)
    names = {name: published_name(name) for name in network.state_dict() if not name.endswith(UNCOUNTED)}
    shapes = {theirs: tuple(network.state_dict()[name].shape) for name, theirs in names.items() if theirs}
    weights = published.read(path, shapes)
    network.load_state_dict({name: weights[theirs] for name, theirs in names.items() if theirs}, strict=False)


def published_name(name: str) -> str | None:
    """Torchvision's and timm's name of one of our tensors, or None: block2.0.conv1.weight -> layer1.0.conv1.weight."""
    first, _, rest = name.partition(".")
    if first == "input_block":
        place, _, rest = rest.partition(".")
        stem = {"0": "conv1", "1": "bn1"}.get(place)
        return stem and f"{stem}.{rest}"
    return f"layer{int(first.removeprefix('block')) - 1}.{rest}"
