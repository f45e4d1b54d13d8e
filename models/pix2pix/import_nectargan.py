"""NectarGAN's generator and discriminator: `epoch<N>_netG.pth.tar` and `epoch<N>_netD.pth.tar`."""

from figura.base.errors import UserError
from figura.commands.import_weights.plan import Plan, Tensors, convolutions, norms, numbers, shape

RECIPE = "recipes/published/pix2pix_facades.yaml"


def plan(tensors: Tensors) -> Plan:
    """Plan the generator or the discriminator in the checkpoint."""
    if "initial_down.conv.0.weight" in tensors:
        return _generator(tensors)
    if "model.2.conv.0.weight" in tensors or "model.0.weight" in tensors:
        return _discriminator(tensors)
    raise UserError("there is no tensor initial_down.conv.0.weight (generator) or model.0.weight (discriminator)")


def _generator(tensors: Tensors) -> Plan:
    if "bottleneck.1.weight" in tensors:
        raise UserError(
            "the bottleneck is a 3 x 3 convolution, of NectarGAN's development after 0.2.3; its U-Net differs"
        )
    bilinear = "final_up.conv.2.weight" in tensors
    features, in_channels, _, _ = shape(tensors, "initial_down.conv.0.weight")
    n_downs = len(numbers(tensors, "downs."))
    last = shape(tensors, f"final_up.conv.{2 if bilinear else 0}.weight")
    residual = "initial_down.residual.0.weight" in tensors
    settings = {
        "in_channels": in_channels,
        "out_channels": last[0 if bilinear else 1],
        "features": features,
        "n_downs": n_downs,
        "block": "residual" if residual else "standard",
        "upsampling": "bilinear" if bilinear else "transposed",
        "norm": "instance",
        "padding": "reflect",
        "biases": "without_norm",
        "relu_skips": False,
        "residual_output": "unbounded",
        "dropout": 0.5,
        "dropout_layers": 3,
        "dropout_position": "after_activation",
    }
    blocks = {"initial_down": "first", "bottleneck": "bottleneck", "final_up": "last"}
    blocks |= {f"downs.{i}": f"downs.{i}" for i in range(n_downs)}
    blocks |= {f"ups.{i}": f"ups.{i}" for i in range(n_downs + 1)}
    modules = {}
    for there, here in blocks.items():
        place = 2 if bilinear and "up" in there else 0
        modules[f"{there}.conv.{place}"] = f"{here}.convolution"
        if residual:
            modules[f"{there}.residual.0"] = f"{here}.shortcut.0"
    guesses = {"dropout", "dropout_layers", "dropout_position"} | (set() if residual else {"residual_output"})
    return Plan(
        "pix2pix.UNetGenerator", settings, convolutions(modules), (RECIPE, "generator"), guesses=frozenset(guesses)
    )  # fmt: skip


def _discriminator(tensors: Tensors) -> Plan:
    features, channels, _, _ = shape(tensors, "model.0.weight")
    inner = len(numbers(tensors, "model.", ".conv.", first=2))
    if not inner and not all(name.startswith(("model.0.", "model.2.")) for name in tensors):
        raise UserError(
            "there is more than model.0 and model.2, but no model.2.conv: another network; discriminators of "
            "pytorch-CycleGAN-and-pix2pix are of kind junyanz"
        )
    widths = [features, *(shape(tensors, f"model.{i + 2}.conv.0.weight")[0] for i in range(inner))]
    settings = {
        "in_channels": channels // 2,
        "out_channels": channels - channels // 2,
        "features": features,
        "n_layers": inner + 1,
        "max_features": max(512, features) if widths == sorted(set(widths)) else max(widths),
        "norm": "instance",
        "padding": "reflect",
        "biases": "without_norm",
    }
    modules = {"model.0": "layers.0", f"model.{inner + 2}": f"layers.{3 * inner + 2}"}
    modules |= {f"model.{i + 2}.conv.0": f"layers.{3 * i + 2}" for i in range(inner)}
    _, ignored = norms({f"model.{i + 2}.conv.1": "" for i in range(inner)}, "instance")
    return Plan(
        "pix2pix.PatchDiscriminator", settings, convolutions(modules), (RECIPE, "discriminator"),
        guesses=frozenset({"max_features"}), ignored=ignored,
    )  # fmt: skip
