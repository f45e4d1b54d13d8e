"""The perceptual loss: images compared by their feature maps in VGG19."""

import torch
from torch import Tensor

from figura.base.errors import nearest
from figura.interfaces import Loss

from . import vgg
from .argument_types import NonNegative
from .example_means import at_least_float32

IMAGE = "image"  # the layer before the first: the images themselves, in [-1, 1]


class Perceptual(Loss):
    """`sum over layers of weight · mean over (C, H, W) of |F(image) - F(target)|` for each example.

    `layers` maps names to weights: `image` for the images themselves, `relu1_1` .. `relu5_2` for VGG19's
    feature maps. Layers of weight 0 are not compared. VUNet uses image, relu1_2, relu2_2, relu3_2,
    relu4_2 and relu5_2 (Esser, Sutter and Ommer, CVPR 2018, section 3.3), NectarGAN's pix2pix relu1_2, relu2_2 and
    relu3_3. `source`, `seed` and `sha256` select VGG19's weights, see `vgg.load`; they are loaded on first use.
    Gradients pass through every layer to `image`; `target` gets none.
    """

    def __init__(
        self, *, source: str, layers: dict[str, NonNegative], seed: int = 0, sha256: str | None = None
    ) -> None:
        super().__init__()
        allowed = [IMAGE, *vgg.LAYERS["vgg19"]]
        for name in layers:
            if name not in allowed:
                raise ValueError(f"layers {name!r}{nearest(name, allowed)}: there are {', '.join(allowed)}")
        self.source, self.seed, self.sha256 = source, seed, sha256
        self.layers = {name: weight for name, weight in layers.items() if weight}
        self.vgg: vgg.VGG | None = None

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Images (N, 3 or 1, H, W) in [-1, 1], H and W at least 2^(b-1) for a layer of block b; returns (N,)."""
        ours = self._features(image)
        with torch.no_grad():
            theirs = self._features(target)
        loss = image.new_zeros(len(image), dtype=torch.promote_types(image.dtype, torch.float32))
        for name, weight in self.layers.items():
            difference = at_least_float32(ours[name]) - at_least_float32(theirs[name])
            # in VGG's memory format, so that gradients have it, too: ReLU's are then four times as fast
            loss = loss + weight * difference.permute(0, 2, 3, 1).abs().mean(dim=(1, 2, 3))
        return loss

    def _features(self, images: Tensor) -> dict[str, Tensor]:
        images = at_least_float32(images)
        names = self.layers.keys() - {IMAGE}
        if not names:
            return {IMAGE: images}
        if self.vgg is None:
            self.vgg = vgg.load(self.source, seed=self.seed, sha256=self.sha256)
        return {IMAGE: images, **self.vgg.features(images, names)}
