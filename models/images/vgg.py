"""VGG's feature maps for comparing images (Simonyan and Zisserman, ICLR 2015): VGG19 to relu5_2, VGG16 to relu5_3.

Never trained.
"""

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.base.errors import UserError

from .weight_files import FILE, WeightFile

Network = Literal["vgg16", "vgg19"]
Layers = Mapping[str, tuple[str, int, int]]

BLOCKS: dict[Network, tuple[tuple[int, ...], ...]] = {  # channels; a 2 x 2 max pool between blocks
    "vgg16": ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),  # all convolutions
    "vgg19": ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512, 512)),  # 14 of 16
}
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's RGB in [0, 1]
STD = (0.229, 0.224, 0.225)


def _layers(network: Network) -> Layers:
    """Return (state key, inputs, outputs) of each convolution, by name `relu<block>_<position>`, in order."""
    layers, index, inputs = {}, 0, 3
    for block, widths in enumerate(BLOCKS[network], start=1):
        for position, outputs in enumerate(widths, start=1):
            layers[f"relu{block}_{position}"] = (f"features.{index}", inputs, outputs)
            index, inputs = index + 2, outputs  # a ReLU after each convolution
        index += 1  # the pool
    return layers


LAYERS: dict[Network, Layers] = {network: _layers(network) for network in BLOCKS}


def as_rgb(images: Tensor) -> Tensor:
    """(N, 1 or 3, H, W) -> (N, 3, H, W): a grey channel is expanded without a copy. Raises UserError otherwise."""
    if images.ndim != 4:
        raise UserError(f"a network of photographs judges images (channels, height, width); found {images.shape[1:]}")
    if images.shape[1] not in (1, 3):
        raise UserError(f"a network of photographs judges images of 1 or 3 channels; these have {images.shape[1]}")
    return images.expand(-1, 3, -1, -1)


@cache
def of_channels(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return (C, 1, 1), a number a channel; kept, because a copy to a GPU waits until it has finished all its work."""
    return torch.tensor(values, dtype=dtype, device=device).view(-1, 1, 1)


class VGG:
    """VGG's convolutions as a function of images. The weights have no gradient and are not part of a module's state."""

    def __init__(self, layers: Layers, weights: dict[str, Tensor]) -> None:
        """`weights` have the published names: `features.<n>.weight` (K, C, 3, 3) and `features.<n>.bias` (K,)."""
        self.layers, self.weights = layers, weights

    def features(self, images: Tensor, names: AbstractSet[str]) -> dict[str, Tensor]:
        """Return the named feature maps, keys of `layers`, of images (N, 3 or 1, H, W) in [-1, 1]; values are clamped.

        A map of block b has that block's channels (`BLOCKS`) at H / 2^(b-1) pixels. Deeper layers are not computed.
        """
        images = as_rgb(images)
        mean, std = (of_channels(one, images.dtype, images.device) for one in (MEAN, STD))
        x = (((images + 1) / 2).clamp(0, 1) - mean) / std
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
        return F.conv2d(x, weight, bias, padding=1)


def load(source: str, *, network: Network = "vgg19", seed: int = 0, sha256: str | None = None) -> VGG:
    """Return a network with the weights of `source`: "random", "hub", or the path of a safetensors file.

    "random" draws normal weights of variance 2 / fan_in (He et al., ICCV 2015) from `seed`, with biases 0. "hub"
    fetches ImageNet weights, `timm/vgg19.tv_in1k` or `timm/vgg16.tv_in1k`. See `WeightFile.locate` for "hub" and
    `sha256`.
    """
    layers = LAYERS[network]
    if source == "random":
        return VGG(layers, _random_weights(layers, seed))
    repository = f"timm/{network}.tv_in1k"
    remedy = (
        f"give `source` the path of {FILE} from https://huggingface.co/{repository}, or 'hub' to fetch it, "
        "or 'random' for fixed random weights"
    )
    published = WeightFile(f"{network.upper()} weights", remedy, repository)
    shapes: dict[str, tuple[int, ...]] = {}
    for key, inputs, outputs in layers.values():
        shapes |= {f"{key}.weight": (outputs, inputs, 3, 3), f"{key}.bias": (outputs,)}
    return VGG(layers, published.read(published.locate(source, sha256), shapes))


def _random_weights(layers: Layers, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for key, inputs, outputs in layers.values():
        draw = torch.randn(outputs, inputs, 3, 3, generator=generator)
        weights[f"{key}.weight"] = draw * math.sqrt(2 / (9 * inputs))
        weights[f"{key}.bias"] = torch.zeros(outputs)
    return weights
