"""Perceptual distance of images to their targets, between the feature maps of a network (Zhang et al. 2018).

The maps of each layer l are normalised to length 1 along the channels at each pixel; then

    d(x, y) = sum over l of mean over pixels of sum over channels c of w_lc (x_lc - y_lc)^2

(equation 1). The layers are the last of each of VGG16's five blocks. LPIPS is this distance with ImageNet's weights and
w learned from human judgements; without learned w, w is 1. Random weights give a distance of the same form, which works
offline. Any other network may give the maps, with w = 1. The metric's name identifies the variant: `lpips_vgg16`,
`vgg16` (ImageNet's weights, w = 1), `random_vgg16`, or `features` of another network. Values are comparable within a
variant only.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from figura.base.errors import UserError
from figura.dump import Dump
from figura.engine.weights import load_weights
from figura.recipe.schema import Declaration
from figura.recipe.types import NETWORK, build
from figura.report.interfaces import Bootstrap, Estimate, groups_of

from . import vgg
from .scores import PictureScore
from .weight_files import WeightFile

LAYERS = ("relu1_2", "relu2_2", "relu3_3", "relu4_3", "relu5_3")  # the last of each block
BATCH = 8  # images in memory at a time, with their maps
LEAST = 16  # pixels: the fifth block is at a sixteenth of the size
TINY = 1e-10  # added to lengths, which may be 0, as in LPIPS
REMEDY = (
    "give `linear` the path of LPIPS' weights for VGG in safetensors. They are published as lpips/weights/v0.1/vgg.pth "
    "at https://github.com/richzhang/PerceptualSimilarity; once, where that file lies, run\n"
    '  python -c "import torch, safetensors.torch as s; '
    "s.save_file(torch.load('vgg.pth', weights_only=True), 'lpips_vgg.safetensors')\""
)
LINEAR = WeightFile("LPIPS' linear weights", REMEDY)
IMPORTED = "give `source` the path of its weights in safetensors, such as `figura import` writes"
Maps = Callable[[Tensor], list[Tensor]]  # images (N, 3 or 1, H, W) in [-1, 1] to maps (N, C, h, w)


def unit_length(maps: Tensor) -> Tensor:
    """Normalise (N, C, H, W) to length 1 along C; zero vectors stay 0."""
    return maps / (maps.square().sum(dim=1, keepdim=True).sqrt() + TINY)


def perceptual_distance(image: Sequence[Tensor], target: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Maps (N, C_l, H_l, W_l) of each layer and their weights (C_l,) -> (N,)."""
    distance = image[0].new_zeros(len(image[0]))
    for ours, theirs, weight in zip(image, target, weights, strict=True):
        difference = (unit_length(ours) - unit_length(theirs)).square()
        distance = distance + torch.einsum("nchw,c->nhw", difference, weight).mean(dim=(1, 2))
    return distance


class PerceptualDistance(PictureScore):
    """Perceptual distance of a mode's images to their targets, with bootstrap intervals; 0 for equal images.

    For `image` and `average` see `PictureScore`. `source`, `seed` and `sha256` select VGG16's weights, see `vgg.load`.
    `linear` is the safetensors file of LPIPS' weights for VGG16, which needs images of 16 px or more. `groups` as in
    `Fidelity`.

    `network` declares another network, like an entry of `networks`; `source` is then the safetensors file of its
    weights. It is given images in [-1, 1], and all maps (N, C, H, W) that it returns count.
    """

    def __init__(
        self,
        mode: str,
        target: str,
        source: str,
        image: str | None = None,
        average: str | None = None,
        linear: str | None = None,
        seed: int = 0,
        sha256: str | None = None,
        groups: str | None = None,
        network: Declaration | None = None,
    ) -> None:
        super().__init__(mode, target, image, average)
        if linear is not None and (source == "random" or network is not None):
            raise ValueError(f"linear {linear!r}: LPIPS' weights belong to ImageNet's of VGG16; leave it out")
        self.source, self.linear, self.seed, self.sha256, self.groups = source, linear, seed, sha256, groups
        self.network = network

    @torch.no_grad()
    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        maps = self._of_vgg16() if self.network is None else self._of_network(self.network)
        distances, weights = [], list[Tensor]()
        for image, target in self.pairs(rows, BATCH):
            if self.network is None and min(target.shape[-2:]) < LEAST:
                size = " x ".join(map(str, target.shape[-2:]))
                raise UserError(f"{rows.folder}: mode {self.mode!r}: {size} px; {LEAST} or more are needed")
            ours, theirs = maps(image), maps(target)
            weights = weights or self._weights(theirs)
            distance = perceptual_distance(ours, theirs, weights)
            distances.append(distance.double().numpy())
        kind = "lpips_" if self.linear else "random_" if self.source == "random" else ""
        owners = groups_of(rows, self.mode, self.groups)
        estimate = bootstrap.estimate(np.concatenate(distances), groups=owners)
        return {f"{kind}vgg16" if self.network is None else "features": estimate, "images": len(rows)}

    def _of_vgg16(self) -> Maps:
        network = vgg.load(self.source, network="vgg16", seed=self.seed, sha256=self.sha256)

        def maps(images: Tensor) -> list[Tensor]:
            found = network.features(images, set(LAYERS))
            return [found[name] for name in LAYERS]

        return maps

    def _of_network(self, entry: Declaration) -> Maps:
        network = build(entry, NETWORK, "network", Path(type(self).__name__)).eval()
        load_weights(network, WeightFile(entry.type, IMPORTED).locate(self.source, self.sha256))

        def maps(images: Tensor) -> list[Tensor]:
            found = network(images)
            found = [found] if isinstance(found, Tensor) else list(found)
            if shapes := [tuple(one.shape) for one in found if one.ndim != 4]:
                raise UserError(f"{entry.type} gives shape {shapes[0]}; maps (N, C, H, W) are needed")
            return found

        return maps

    def _weights(self, maps: Sequence[Tensor]) -> list[Tensor]:
        channels = [one.shape[1] for one in maps]
        if self.linear is None:
            return [torch.ones(count) for count in channels]
        shapes = {f"lin{index}.model.1.weight": (1, count, 1, 1) for index, count in enumerate(channels)}
        return [weight.flatten() for weight in LINEAR.read(Path(self.linear), shapes).values()]
