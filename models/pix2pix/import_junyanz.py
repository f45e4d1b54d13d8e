"""pytorch-CycleGAN-and-pix2pix: generators `unet_*` and `resnet_*`, discriminators `basic` and `n_layers`.

Files are `<epoch>_net_G.pth`, `latest_net_D.pth` and so on: state dictionaries. Batch norm has weights, instance norm
does not; convolutions before a norm have biases only with instance norm.
"""

import re

import torch
from torch import Tensor

from figura.base.errors import UserError
from figura.commands.import_weights.plan import Plan, Tensors, convolutions, norms, numbers, shape

RECIPE = "recipes/published/pix2pix_facades.yaml"
BATCH = (
    "batch norm: that program tests with the statistics of the batch, unless told --eval; figura evaluates with the "
    "running statistics, which were imported"
)
DROPOUT = (
    "dropout: there from the second deepest block on, in figura from the deepest; this matters in training, in a mode "
    "with `dropout: true`, and in that program's tests, which drop unless told --eval"
)


def plan(tensors: Tensors) -> Plan:
    """Plan the network in the checkpoint."""
    if "model.model.0.weight" in tensors:
        return _unet(tensors)
    if any(".conv_block." in name for name in tensors):
        return _resnet(tensors)
    if "net.0.weight" in tensors:
        raise UserError("this is a PixelDiscriminator (--netD pixel), which figura has no network for")
    if "model.0.weight" in tensors:
        return _discriminator(tensors)
    raise UserError(
        "there is no tensor model.model.0.weight (U-Net), model.*.conv_block.* (ResNet) or model.0.weight "
        "(discriminator)"
    )


def _norm(tensors: Tensors, convolution: str, norm: str) -> str:
    """Infer the norm from the tensors of a convolution and of the norm that follows it."""
    if f"{norm}.weight" in tensors:
        return "batch"
    return "instance" if f"{convolution}.bias" in tensors else "none"


def _unet(tensors: Tensors) -> Plan:
    levels = _levels(tensors)
    depth = len(levels)
    if depth < 5:
        raise UserError(f"its U-Net has {depth} levels; at least 5 are needed")
    features, in_channels, _, _ = shape(tensors, f"{levels[0]}.0.weight")
    kind = _norm(tensors, f"{levels[1]}.1", f"{levels[1]}.2")
    settings = {
        "in_channels": in_channels,
        "out_channels": shape(tensors, f"{levels[0]}.3.weight")[1],
        "features": features,
        "n_downs": depth - 2,
        "block": "standard",
        "upsampling": "transposed",
        "norm": kind,
        "padding": "zeros",
        "biases": "with_instance_norm",
        "relu_skips": True,
        "dropout_position": "before_activation",
        "dropout_layers": depth - 5,
    }
    ends = {f"{levels[0]}.0": "first", f"{levels[-1]}.1": "bottleneck", f"{levels[-1]}.3": "ups.0"}
    ends[f"{levels[0]}.3"] = "last"
    modules = {there: f"{here}.convolution" for there, here in ends.items()}
    normed = {f"{levels[-1]}.4": "ups.0.norm"}
    for i, level in enumerate(levels[1:-1]):
        modules |= {f"{level}.1": f"downs.{i}.convolution", f"{level}.5": f"ups.{depth - 2 - i}.convolution"}
        normed |= {f"{level}.2": f"downs.{i}.norm", f"{level}.6": f"ups.{depth - 2 - i}.norm"}
    places, ignored = norms(normed, kind)
    # They concatenate a level's input first, then the deeper level's output; here, the order is reversed.
    joined = [f"ups.{i}.convolution.weight" for i in range(1, depth - 1)] + ["last.convolution.weight"]
    return Plan(
        "pix2pix.UNetGenerator", settings, convolutions(modules) | places, (RECIPE, "generator"),
        guesses=frozenset({"dropout_position", "dropout_layers"}), ignored=ignored,
        changes=dict.fromkeys(joined, swapped_halves),
        remark=f"{BATCH}\n{DROPOUT}" if kind == "batch" else DROPOUT,
    )  # fmt: skip


def _levels(tensors: Tensors) -> list[str]:
    """Return the prefixes of the nested blocks, from the outermost."""
    levels = ["model.model"]
    inner = "model.model.1.model"
    while any(name.startswith(f"{inner}.") for name in tensors):
        levels.append(inner)
        inner += ".3.model"
    return levels


def swapped_halves(weight: Tensor) -> Tensor:
    """Swap the first and the second half of the input channels of a transposed convolution (C, K, h, w)."""
    first, second = weight.chunk(2)
    return torch.cat([second, first])


def _resnet(tensors: Tensors) -> Plan:
    places_there = numbers(tensors, "model.", ".conv_block.", first=None)
    first, blocks = places_there.start, len(places_there)
    block = f"model.{first}.conv_block"
    second = 6 if f"{block}.6.weight" in tensors and tensors[f"{block}.6.weight"].ndim == 4 else 5
    if f"{block}.1.weight" not in tensors or tensors[f"{block}.1.weight"].ndim != 4:
        raise UserError(f"there is no convolution {block}.1; figura has reflection padding, not padding by zeros")
    if first != 10:
        raise UserError(f"the residual blocks begin at model.{first}, not model.10: there are not two halvings before")
    kind = _norm(tensors, "model.1", "model.2")
    after = first + blocks
    settings = {
        "in_channels": shape(tensors, "model.1.weight")[1],
        "out_channels": shape(tensors, f"model.{after + 7}.weight")[0],
        "features": shape(tensors, "model.1.weight")[0],
        "blocks": blocks,
        "norm": kind,
        "dropout": 0.5 if second == 6 else 0.0,
    }
    layers = {1: "first", 4: "downs.0", 7: "downs.1", after: "ups.0", after + 3: "ups.1"}
    modules = {f"model.{there}": f"{here}.convolution" for there, here in layers.items()}
    modules[f"model.{after + 7}"] = "last"
    normed = {f"model.{there + 1}": f"{here}.norm" for there, here in layers.items()}
    for i, number in enumerate(places_there):
        block, here = f"model.{number}.conv_block", f"blocks.{i}"
        modules |= {f"{block}.1": f"{here}.first", f"{block}.{second}": f"{here}.second"}
        normed |= {f"{block}.2": f"{here}.first_norm", f"{block}.{second + 1}": f"{here}.second_norm"}
    places, ignored = norms(normed, kind)
    return Plan(
        "images.ResNetGenerator", settings, convolutions(modules) | places, (RECIPE, "generator"),
        guesses=frozenset({"dropout"}), ignored=ignored, remark=BATCH if kind == "batch" else "",
    )  # fmt: skip


def _discriminator(tensors: Tensors) -> Plan:
    features, channels, _, _ = shape(tensors, "model.0.weight")
    alone = channels == 1 or channels == 3  # judges images without their inputs, as CycleGAN's
    last = max(int(found[1]) for name in tensors if (found := re.fullmatch(r"model\.(\d{1,9})\.weight", name)))
    if last < 2 or (last - 2) % 3:
        raise UserError(f"the last convolution is model.{last}, so this is another network")
    for i in range(2, last, 3):
        shape(tensors, f"model.{i}.weight")
    kind = _norm(tensors, "model.2", "model.3") if last > 2 else "none"
    settings = {
        "in_channels": 0 if alone else channels // 2,
        "out_channels": channels if alone else channels - channels // 2,
        "features": features,
        "n_layers": (last - 2) // 3 + 1,
        "max_features": 8 * features,
        "norm": kind,
        "padding": "zeros",
        "biases": "with_instance_norm",
    }
    places, ignored = norms({f"model.{i}": f"layers.{i}" for i in range(3, last, 3)}, kind)
    modules = {f"model.{i}": f"layers.{i}" for i in (0, *range(2, last + 1, 3))}
    return Plan(
        "pix2pix.PatchDiscriminator", settings, convolutions(modules) | places, (RECIPE, "discriminator"),
        guesses=frozenset({"in_channels", "out_channels", "max_features"}), ignored=ignored,
    )  # fmt: skip
