"""The perceptual loss: images compared by what VGG19 makes of them."""

import torch
from torch import Tensor

from models.engine.losses import Loss
from models.images import vgg
from models.images.losses import at_least_float32


class Perceptual(Loss):
    """`sum_i w_i · mean over (C, H, W) of |F_i(image) - F_i(target)|`, i = 0..5, per instance.

    F_0 is the image itself, F_1..F_5 are VGG19's relu1_2, relu2_2, relu3_2, relu4_2 and relu5_2 (as Esser, Sutter and
    Ommer, CVPR 2018, section 3.3). `source`, `seed` and `sha256` say where VGG19's weights come from: see `vgg.load`;
    they are loaded when first used. Gradients pass through every layer to `image`; `target` gets none.
    """

    def __init__(self, *, source: str, weights: list[float], seed: int = 0, sha256: str | None = None) -> None:
        super().__init__()
        if len(weights) != 6:
            raise ValueError(f"Perceptual takes 6 weights (the image and five layers), got {len(weights)}")
        self.source, self.seed, self.sha256 = source, seed, sha256
        self.weights = list(weights)
        self.vgg: vgg.VGG19 | None = None

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Images (N, 3, H, W) in [-1, 1], H and W at least 16 for all layers; returns (N,)."""
        ours = self._features(image)
        with torch.no_grad():
            theirs = self._features(target)
        loss = image.new_zeros(len(image), dtype=torch.promote_types(image.dtype, torch.float32))
        for weight, a, b in zip(self.weights, ours, theirs, strict=False):
            if weight:
                loss = loss + weight * (at_least_float32(a) - at_least_float32(b)).abs().mean(dim=(1, 2, 3))
        return loss

    def _features(self, images: Tensor) -> list[Tensor]:
        """F_0 .. F_d, where d is the last one that counts."""
        images = at_least_float32(images)
        depth = max((i for i, weight in enumerate(self.weights) if weight), default=0)
        if not depth:
            return [images]
        if self.vgg is None:
            self.vgg = vgg.load(self.source, seed=self.seed, sha256=self.sha256)
        return [images, *self.vgg.features(images, depth)]
