"""VUNet's PyTorch port, run by edflow: checkpoints {model, optimizer} of github.com/jhaux/VUNet."""

from figura.commands.import_weights.plan import Plan, Tensors, convolutions, numbers, shape

NORMALISED = {  # tensors of a normalised convolution: there -> here
    "beta": "beta", "gamma": "gamma", "conv.bias": "bias", "conv.weight_g": "gain", "conv.weight_v": "weight"
}  # fmt: skip
REMARK = (
    "`autoregression: port` is the wiring that these weights were trained with; the recipe reads pictures of the size "
    "`image_size` or multiples of it"
)


def plan(tensors: Tensors) -> Plan:
    """Plan the network in a checkpoint: any size and width, plain or normalised convolutions."""
    normalised = "e_theta.in_op.conv.weight_v" in tensors
    end = "conv.weight_v" if normalised else "weight"
    stages = len(numbers(tensors, "e_theta.blocks.s", "_1.", first=1))
    nf_start, pose_channels, _, _ = shape(tensors, f"e_theta.in_op.{end}")
    nf_max = shape(tensors, f"zc.conv1x1.{end}")[0]
    settings = {
        "nf_start": nf_start,
        "nf_max": nf_max,
        "image_size": 2 ** (stages - 1),
        "image_channels": shape(tensors, f"decoder.final_layer.{end}")[0],
        "pose_channels": pose_channels,
        "appearance_channels": shape(tensors, f"f_phi.in_op.{end}")[1],
        "convolution": "normalised" if normalised else "plain",
        "output": "linear" if normalised else "tanh",
        "autoregression": "port",
    }
    modules = _encoder("e_theta", "shape_encoder", stages) | _encoder("f_phi", "appearance_encoder", stages)
    modules |= _posterior() | _bottleneck(stages) | _decoder(stages)
    places = convolutions(modules)
    if normalised:
        places = {f"{a}.{x}": f"{b}.{y}" for a, b in modules.items() for x, y in NORMALISED.items()}
    size = "deepfashion" if stages > 8 else "market"
    return Plan(
        "vunet.VUNet", settings, places, (f"recipes/published/vunet_{size}.yaml", "generator"), remark=REMARK
    )  # fmt: skip


def _skip(there: str, here: str) -> dict[str, str]:
    """The two convolutions of a residual block with a skip connection."""
    return {f"{there}.conv2d": f"{here}.conv", f"{there}.pre": f"{here}.skip"}


def _encoder(there: str, here: str, stages: int) -> dict[str, str]:
    modules = {f"{there}.in_op": f"{here}.stem"}
    for stage in range(1, stages + 1):
        if stage > 1:
            modules[f"{there}.downs.s{stage}.down"] = f"{here}.downs.{stage - 2}"
        for block, name in ((1, "first"), (2, "second")):
            modules[f"{there}.blocks.s{stage}_{block}.conv2d"] = f"{here}.{name}.{stage - 1}.conv"
    return modules


def _posterior() -> dict[str, str]:
    modules = {"conv1x1": "stem", "channel_norm": "merge", "up.up": "up.conv"}
    for block, name in enumerate(("top", "merged", "lower")):
        modules |= _skip(f"blocks.{block}", name)
    return {f"zc.{there}": f"posterior.{here}" for there, here in modules.items()}


def _bottleneck(stages: int) -> dict[str, str]:
    top, lower = f"s{stages}", f"s{stages - 1}"
    modules = {
        "conv1x1": "stem", "up.up": "up.conv", "param_converter": "auto_merge",
        f"channel_norm.{top}": "merge_top", f"channel_norm.{lower}": "merge_lower",
        "auto_blocks.0.conv2d": "auto_first.conv",
    }  # fmt: skip
    for stage, name in ((top, "top"), (lower, "lower")):
        modules |= _skip(f"blocks.{stage}_2", name) | _skip(f"blocks.{stage}_1", f"merged_{name}")
    for block in (1, 2, 3):
        modules |= _skip(f"auto_blocks.{block}", f"auto.{block - 1}")
    return {f"bottleneck.{there}": f"bottleneck.{here}" for there, here in modules.items()}


def _decoder(stages: int) -> dict[str, str]:
    modules = {"final_layer": "out"}
    for index, stage in enumerate(range(stages - 2, 0, -1)):
        modules[f"ups.s{stage + 1}.up"] = f"ups.{index}.conv"
        modules |= _skip(f"blocks.s{stage}_2", f"first.{index}") | _skip(f"blocks.s{stage}_1", f"second.{index}")
    return {f"decoder.{there}": f"decoder.{here}" for there, here in modules.items()}
