"""VGG's feature maps for comparing images (Simonyan and Zisserman, ICLR 2015): VGG19 to relu5_2, VGG16 to relu5_3.

Never trained.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.base.errors import UserError
from models.images import winograd
from models.images.weight_files import FILE, WeightFile

Layers = Mapping[str, tuple[str, int, int]]

BLOCKS = ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512, 512))  # a 2 x 2 max pool between blocks
BLOCKS_16 = ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3)
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's RGB in [0, 1]
STD = (0.229, 0.224, 0.225)
REPOSITORY, REPOSITORY_16 = "timm/vgg19.tv_in1k", "timm/vgg16.tv_in1k"


def _published(name: str, repository: str) -> WeightFile:
    remedy = (
        f"give `source` the path of {FILE} from https://huggingface.co/{repository}, or 'hub' to fetch it, "
        "or 'random' for fixed random weights"
    )
    return WeightFile(f"{name} weights", remedy, repository)


def _layers(blocks: Sequence[Sequence[int]]) -> Layers:
    """Return (state key, inputs, outputs) of each convolution, by name `relu<block>_<position>`, in order."""
    layers, index, inputs = {}, 0, 3
    for block, widths in enumerate(blocks, start=1):
        for position, outputs in enumerate(widths, start=1):
            layers[f"relu{block}_{position}"] = (f"features.{index}", inputs, outputs)
            index, inputs = index + 2, outputs  # a ReLU after each convolution
        index += 1  # the pool
    return layers


LAYERS = _layers(BLOCKS)  # by name: relu1_1, relu1_2, relu2_1, ... relu5_2
LAYERS_16 = _layers(BLOCKS_16)


def as_rgb(images: Tensor) -> Tensor:
    """(N, 1 or 3, H, W) -> (N, 3, H, W): a grey channel is expanded without a copy. Raises UserError otherwise."""
    if images.ndim != 4:
        raise UserError(f"a network of photographs judges images (channels, height, width); found {images.shape[1:]}")
    if images.shape[1] not in (1, 3):
        raise UserError(f"a network of photographs judges images of 1 or 3 channels; these have {images.shape[1]}")
    return images.expand(-1, 3, -1, -1)


class Stack:
    """VGG's convolutions as a function of images. The weights have no gradient and are not part of a module's state."""

    layers: ClassVar[Layers]
    published: ClassVar[WeightFile]

    def __init__(self, weights: dict[str, Tensor]) -> None:
        """`weights` have the published names: `features.<n>.weight` (K, C, 3, 3) and `features.<n>.bias` (K,)."""
        self.weights = weights

    def features(self, images: Tensor, names: AbstractSet[str]) -> dict[str, Tensor]:
        """Return the named feature maps, keys of `layers`, of images (N, 3 or 1, H, W) in [-1, 1]; values are clamped.

        A map of block b has that block's channels (`BLOCKS`) at H / 2^(b-1) pixels. Deeper layers are not computed.
        """
        images = as_rgb(images)
        like = images.new_tensor
        x = (((images + 1) / 2).clamp(0, 1) - like(MEAN).view(3, 1, 1)) / like(STD).view(3, 1, 1)
        x = x.contiguous(memory_format=torch.channels_last)
        features: dict[str, Tensor] = {}
        for name, (key, _, _) in self.layers.items():
            if len(features) == len(names):
                break
            if name.endswith("_1") and name != "relu1_1":
                x = F.max_pool2d(x, 2)
            x = self._convolve(x, key).relu_()
            if name in names:
                features[name] = x
        return features

    def _convolve(self, x: Tensor, key: str) -> Tensor:
        if self.weights[f"{key}.weight"].device != x.device:
            self.weights = {name: weight.to(x.device) for name, weight in self.weights.items()}
        weight, bias = (self.weights[f"{key}.{part}"] for part in ("weight", "bias"))
        # Autocast converts; otherwise use the input's precision.
        if x.is_meta or not torch.is_autocast_enabled(x.device.type):  # the query fails on the meta device
            weight, bias = weight.to(x.dtype), bias.to(x.dtype)
        return winograd.convolve(x, weight, bias)


class VGG19(Stack):
    """The first 14 of 16 convolutions, without the classifier."""

    layers = LAYERS
    published = _published("VGG19", REPOSITORY)


class VGG16(Stack):
    """All 13 convolutions, without the classifier."""

    layers = LAYERS_16
    published = _published("VGG16", REPOSITORY_16)


S = TypeVar("S", bound=Stack)


def load(source: str, *, seed: int = 0, sha256: str | None = None) -> VGG19:
    """Return VGG19 with the weights of `source`; see `load_stack`."""
    return load_stack(VGG19, source, seed=seed, sha256=sha256)


def load_stack(kind: type[S], source: str, *, seed: int = 0, sha256: str | None = None) -> S:
    """Return a stack with the weights of `source`: "random", "hub", or the path of a safetensors file.

    "random" draws normal weights of variance 2 / fan_in (He et al., ICCV 2015) from `seed`, with biases 0. "hub"
    fetches ImageNet weights, `timm/vgg19.tv_in1k` or `timm/vgg16.tv_in1k`. See `WeightFile.locate` for "hub" and
    `sha256`.
    """
    if source == "random":
        return kind(_random_weights(kind.layers, seed))
    return kind(kind.published.read(kind.published.locate(source, sha256), _shapes(kind.layers)))


def _random_weights(layers: Layers, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for key, inputs, outputs in layers.values():
        draw = torch.randn(outputs, inputs, 3, 3, generator=generator)
        weights[f"{key}.weight"] = draw * math.sqrt(2 / (9 * inputs))
        weights[f"{key}.bias"] = torch.zeros(outputs)
    return weights


def _shapes(layers: Layers) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for key, inputs, outputs in layers.values():
        shapes |= {f"{key}.weight": (outputs, inputs, 3, 3), f"{key}.bias": (outputs,)}
    return shapes
