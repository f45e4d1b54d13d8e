"""The pose network: one backbone and composite heads on its feature map."""

from collections.abc import Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from figura.base.errors import nearest
from figura.formats.skeletons import Skeleton
from figura.recipe.types import checked_call

from .argument_types import Positive, categories_from, skeleton_of
from .heads import LAYOUTS, CompositeHead, form

Settings = Mapping[str, Any]

IMPORTED_FOR = {
    ".small_resnet": ("small",),
    ".resnet": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    ".shufflenet": ("shufflenetv2k16", "shufflenetv2k20", "shufflenetv2k30", "shufflenetv2k44", "shufflenetv2kx5"),
    ".efficientnet_lite": ("efficientnet_lite0",),
    ".timm_backbone": ("timm",),
}
"""The names of backbones by their module. A stage depends on those of its recipe (`figura.pipeline.syntax`)."""
BACKBONES = tuple(chain.from_iterable(IMPORTED_FOR.values()))

BATCH_EPS = 1e-3  # minimum of BatchNorm
OTHER_EPS = 1e-4
MOMENTUM = 0.01  # the weight of the new batch


class PoseNetwork(nn.Module):
    """Maps images to composite fields, one tensor per head.

    Parameters have the names of OpenPifPaf's published networks, except that heads are named: the published
    `head_nets.<h>.conv.weight` is `head_nets.<name>.conv.weight` here. All other names start with `base_net`.

    Args:
        backbone: `name`, one of `BACKBONES`, and options of that class.
        heads: name -> arguments of `CompositeHead`, each optional: `fields`, `upsample` (2), `dropout` (0),
            `log_scales` (shared) and `scale_law` (softplus). `kind` (cif, caf or cifdet) is by default the name.
            `fields` are by default the joints of `skeleton`, its connections (`connections`: standard, dense or
            kinematic_tree), or the `categories`.
        skeleton: as for the dataset; default COCO's.
        categories: as for the dataset, a list of `{id, name}`.
        batch_norm_eps: minimum eps of every BatchNorm. Published networks assume 1e-3.

    Attributes:
        stride: of the backbone in pixels, measured by a dry run.
        head_strides: name -> stride of the head's fields, `stride` // `upsample`.

    Raises:
        ValueError: unknown names or options, or contradictory options.
        UserError: a package is not installed.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton", "categories")

    def __init__(
        self,
        *,
        backbone: dict[str, Any],
        heads: Annotated[dict[str, dict[str, Any]], Field(min_length=1)],
        skeleton: dict[str, Any] | None = None,
        categories: list[dict[str, Any]] | None = None,
        batch_norm_eps: Positive = BATCH_EPS,
    ) -> None:
        super().__init__()
        self.base_net = _backbone(backbone)
        self.stride = grid_stride(self.base_net)
        channels = int(self.base_net.channels)  # type: ignore[arg-type]
        body, objects = skeleton_of(skeleton), len(categories_from(categories))
        self.head_nets = nn.ModuleDict(
            {
                name: _head(name, _with_fields(name, settings, body, objects), channels)
                for name, settings in heads.items()
            }
        )
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
        """Return head -> layout of its raw fields (`heads.form`) for these arguments; skips invalid heads."""
        heads = arguments.get("heads")
        layouts: dict[str, str] = {}
        for name, settings in heads.items() if isinstance(heads, Mapping) else ():
            if isinstance(settings, Mapping) and str(kind := settings.get("kind", name)) in LAYOUTS:
                layouts[name] = form(kind, settings.get("log_scales", "shared"), settings.get("scale_law", "softplus"))
        return layouts

    def load_pretrained(self) -> None:
        """Load the published weights selected by the backbone's options. Called by the engine when training starts.

        Raises:
            UserError: weights cannot be loaded.
        """
        if (load := getattr(self.base_net, "load_pretrained", None)) is not None:
            load()

    def forward(self, image: Tensor, decode: bool = False) -> dict[str, Tensor]:
        """Map normalised images (N, 3, H, W) to head -> (N, fields, components, (H - 1) // s + 1, (W - 1) // s + 1).

        s is the head's stride. With `upsample` above 1, the sizes hold for H and W that are a multiple of the
        backbone's stride plus one. Returns raw fields for the losses; with `decode`, float32 fields for the decoders
        (`heads.decoded`). `decode` is independent of train/eval mode.
        """
        features = self.base_net(image.contiguous(memory_format=torch.channels_last))
        return {name: head(features, decode) for name, head in self.head_nets.items()}


def grid_stride(backbone: nn.Module) -> int:
    """Measure the pixels between two cells of a backbone's feature map, by a dry run on the meta device.

    Raises:
        ValueError: the backbone does not map n pixels to (n - 1) / stride + 1 cells.
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
    if any((n - 1) // stride + 1 != count for n, count in zip(pixels, cells, strict=True)):
        raise ValueError(f"backbone: {pixels} pixels become {tuple(cells)} cells, not (n - 1) / stride + 1 of them")
    return stride


def settle_norms(network: nn.Module, batch_eps: float = BATCH_EPS) -> None:
    """Set eps and momentum of every normalisation layer in place; a BatchNorm keeps an eps above `batch_eps`.

    Source: `model_defaults` of openpifpaf/network/nets.py. A large eps bounds the gain of channels with little
    variance.
    """
    for module in network.modules():
        if isinstance(module, _InstanceNorm):
            module.eps, module.momentum = OTHER_EPS, MOMENTUM
        elif isinstance(module, _BatchNorm):
            module.eps, module.momentum = max(module.eps, batch_eps), MOMENTUM
        elif isinstance(module, nn.GroupNorm | nn.LayerNorm):
            module.eps = OTHER_EPS


def backbone_of(name: str) -> tuple[type[nn.Module], dict[str, int | str]]:
    """Return the class and the implied arguments of one of `BACKBONES`."""
    if name == "small":
        from .small_resnet import SmallResNet

        return SmallResNet, {}
    if name == "efficientnet_lite0":
        from .efficientnet_lite import EfficientNetLite

        return EfficientNetLite, {}
    if name == "timm":
        from .timm_backbone import TimmBackbone

        return TimmBackbone, {}
    if name.startswith("resnet"):
        from .resnet import ResNet

        return ResNet, {"depth": int(name.removeprefix("resnet"))}
    from .shufflenet import ShuffleNetV2K

    depth = name.removeprefix("shufflenetv2k")
    return ShuffleNetV2K, {"depth": int(depth) if depth.isdigit() else depth}


def _backbone(settings: Settings) -> nn.Module:
    name = settings.get("name")
    if name not in BACKBONES:
        allowed = ", ".join(BACKBONES)
        raise ValueError(f"backbone.name {name!r}{nearest(str(name), BACKBONES)}: one of {allowed} is needed")
    kind, implied = backbone_of(name)
    options = {key: value for key, value in settings.items() if key != "name"}
    return checked_call(kind, options, "backbone", **implied)


def _with_fields(name: str, settings: Settings, skeleton: Skeleton, categories: int) -> dict[str, Any]:
    """Return a head's settings with its number of fields, without `connections`, which only determines it."""
    kind, chosen = settings.get("kind", name), settings.get("connections", "standard")
    options = {key: value for key, value in settings.items() if key != "connections"}
    if "connections" in settings and kind != "caf":
        raise ValueError(f"heads.{name}.connections {chosen!r}: only the fields of a caf head stand for connections")
    if "connections" in settings and "fields" in settings:
        raise ValueError(
            f"heads.{name}: connections {chosen!r} and fields {settings['fields']!r}: one of them is needed, because "
            "the connections tell the number of fields"
        )
    if "fields" in settings or str(kind) not in LAYOUTS:
        return options
    try:
        connections = skeleton.connection_set(chosen)
    except ValueError as error:
        raise ValueError(f"heads.{name}.{error}") from error
    if kind == "caf" and not connections:
        raise ValueError(
            f"heads.{name}: the skeleton has no {chosen} connections; remove the head, or give the skeleton some"
        )
    fields = {"cif": len(skeleton.keypoints), "caf": len(connections), "cifdet": categories}[str(kind)]
    if not fields:
        raise ValueError(f"heads.{name}.fields: missing, and no categories are known from the data; write their number")
    return options | {"fields": fields}


def _head(name: str, settings: Settings, channels: int) -> nn.Module:
    if not name.isidentifier():
        raise ValueError(f"heads: {name!r} is no name of letters, digits and underscores")
    options = {"kind": name, **settings} if name in LAYOUTS else settings
    return checked_call(CompositeHead, options, f"heads.{name}", channels=channels)
