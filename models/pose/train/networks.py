"""The pose network: one backbone and composite heads on its feature map (specification 1.1)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from models.base.errors import UserError, nearest
from models.pose.train.heads import LAYOUTS, CompositeHead, form
from models.pose.train.normalisation import BATCH_EPS, freeze_batch_norms, settle_norms
from models.pose.train.resnet import STAGES, ResNet, SmallResNet
from models.pose.train.shufflenet import DEPTHS, ShuffleNetV2K
from models.pose.train.timm_backbone import TimmBackbone
from models.recipe.types import checked_call

Settings = Mapping[str, Any]

# name in a recipe -> class, and the argument that the name stands for
BACKBONES: dict[str, tuple[type[nn.Module], dict[str, int]]] = {
    "small": (SmallResNet, {}),
    **{f"resnet{depth}": (ResNet, {"depth": depth}) for depth in STAGES},
    **{f"shufflenetv2k{depth}": (ShuffleNetV2K, {"depth": depth}) for depth in DEPTHS},
    "timm": (TimmBackbone, {}),
}


class PoseNetwork(nn.Module):
    """Images to composite fields, a tensor a head.

    Parameters are called as in OpenPifPaf's published networks, except that a head goes by its name: the published
    `head_nets.<h>.conv.weight` is `head_nets.<name>.conv.weight` of the h-th head; all else begins with `base_net`.

    Args:
        backbone: `name`, one of `BACKBONES`, and options of that class.
        heads: by name `fields`, and if wanted `upsample` (2), `dropout` (0), `spreads` (shared) and `scale_law` (softplus);
            `kind` too, cif, caf or cifdet, unless the name is one of these.
        batch_norm_eps: eps of every BatchNorm, at least. Published networks assume 1e-3.
        freeze_batch_norm: every BatchNorm uses, and keeps, its running statistics in training too.

    Attributes:
        stride: of the backbone, in pixels, measured by a dry run.
        head_strides: of each head's fields, `stride` // `upsample`.

    Raises:
        ValueError: for unknown names and options, and options that contradict each other.
        UserError: for a package that is not installed.
    """

    def __init__(
        self,
        *,
        backbone: dict[str, Any],
        heads: dict[str, dict[str, Any]],
        batch_norm_eps: float = BATCH_EPS,
        freeze_batch_norm: bool = False,
    ) -> None:
        super().__init__()
        if not heads:
            raise ValueError("heads {}: at least one is needed")
        if batch_norm_eps <= 0:
            raise ValueError(f"batch_norm_eps {batch_norm_eps}: a positive number is needed")
        self.freeze_batch_norm = freeze_batch_norm
        self.base_net = _backbone(backbone)
        self.stride = grid_stride(self.base_net)
        channels = int(self.base_net.channels)  # type: ignore[arg-type]
        self.head_nets = nn.ModuleDict({name: _head(name, heads[name], channels) for name in heads})
        self.head_strides: dict[str, int] = {}
        for name, head in self.head_nets.items():
            upsample = int(head.upsample)  # type: ignore[arg-type]
            if self.stride % upsample:
                raise ValueError(
                    f"heads.{name}.upsample {upsample}: a divisor of the backbone's stride {self.stride} is needed"
                )
            self.head_strides[name] = self.stride // upsample
        settle_norms(self, batch_norm_eps)
        self.train()

    @classmethod
    def forms(cls, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The form of each head's raw fields (`heads.form`), by these constructor arguments; what is wrong is left out."""
        heads = arguments.get("heads")
        found: dict[str, str] = {}
        for name, settings in heads.items() if isinstance(heads, Mapping) else ():
            if isinstance(settings, Mapping) and str(kind := settings.get("kind", name)) in LAYOUTS:
                found[name] = form(kind, settings.get("spreads", "shared"), settings.get("scale_law", "softplus"))
        return found

    def load_pretrained(self) -> None:
        """Read the published weights that the backbone's options ask for; the engine calls this where training starts.

        Raises:
            UserError: for weights that cannot be had.
        """
        if isinstance(self.base_net, ResNet | TimmBackbone):
            self.base_net.load_pretrained()

    def train(self, mode: bool = True) -> "PoseNetwork":
        """As usual, but that frozen BatchNorm stays in evaluation mode."""
        super().train(mode)
        if self.freeze_batch_norm:
            freeze_batch_norms(self)
        return self

    def forward(self, image: Tensor, decode: bool = False) -> dict[str, Tensor]:
        """Normalised images (N, 3, H, W) -> by head (N, fields, components, (H - 1) // s + 1, (W - 1) // s + 1).

        s is the head's stride; that holds for every H and W where `upsample` is 1, otherwise for multiples of the
        backbone's stride plus one. `decode` gives float32 fields as decoders want them (`heads.decoded`), whatever
        BatchNorm's mode; without it they are raw, for losses.

        Raises:
            UserError: for other than three channels.
        """
        if image.ndim != 4 or image.shape[1] != 3:
            raise UserError(
                f"images for PoseNetwork: found shape {tuple(image.shape)}; needed is (N, 3, height, width)"
            )
        features = self.base_net(image.contiguous(memory_format=torch.channels_last))
        return {name: head(features, decode) for name, head in self.head_nets.items()}


def grid_stride(backbone: nn.Module) -> int:
    """Pixels between the cells of a backbone's feature map, from a run on the meta device, which computes no values.

    Raises:
        ValueError: where n pixels do not become (n - 1) / stride + 1 cells.
    """
    state = {**dict(backbone.named_parameters()), **dict(backbone.named_buffers())}
    pixels = (129, 385)
    training = backbone.training
    with torch.no_grad():
        image = torch.empty(1, 3, *pixels, device="meta")
        features = functional_call(backbone.eval(), {k: v.to("meta") for k, v in state.items()}, (image,))
    backbone.train(training)
    cells = features.shape[-2:]
    stride = (pixels[1] - pixels[0]) // max(cells[1] - cells[0], 1)
    if any((n - 1) // stride + 1 != found for n, found in zip(pixels, cells, strict=True)):
        raise ValueError(f"backbone: {pixels} pixels become {tuple(cells)} cells, not (n - 1) / stride + 1 of them")
    return stride


def _backbone(settings: Settings) -> nn.Module:
    name = settings.get("name")
    if name not in BACKBONES:
        allowed = ", ".join(BACKBONES)
        raise ValueError(f"backbone.name {name!r}{nearest(str(name), BACKBONES)}: one of {allowed} is needed")
    kind, implied = BACKBONES[name]
    options = {key: value for key, value in settings.items() if key != "name"}
    return checked_call(kind, options, "backbone", **implied)


def _head(name: str, settings: Settings, channels: int) -> nn.Module:
    if not name.isidentifier():
        raise ValueError(f"heads: {name!r} is no name of letters, digits and underscores")
    options = {"kind": name, **settings} if name in LAYOUTS else settings
    return checked_call(CompositeHead, options, f"heads.{name}", channels=channels)
