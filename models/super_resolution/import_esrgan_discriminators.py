"""Discriminators of BasicSR and Real-ESRGAN: VGGStyleDiscriminator and UNetDiscriminatorSN, with pictures in [0, 1]."""

from figura.commands.import_weights.plan import Plan, Tensors, convolutions, norms, numbers, shape

RECIPE = "recipes/published/esrgan_x4_gan.yaml"
UNET = {
    "conv1": "downs.0", "conv2": "downs.1", "conv3": "downs.2", "conv4": "ups.0", "conv5": "ups.1", "conv6": "ups.2",
    "conv7": "judging.0", "conv8": "judging.1",
}  # fmt: skip
SPECTRAL = {  # PyTorch's older spectral norm there -> the parametrization here
    "weight_orig": "weight.original", "weight_u": "weight.0._u", "weight_v": "weight.0._v"
}  # fmt: skip


def vgg(tensors: Tensors) -> Plan:
    """Plan VGGStyleDiscriminator, named Discriminator_VGG_128 by ESRGAN's authors: `conv0_0` to `linear2`."""
    features, in_channels, _, _ = shape(tensors, "conv0_0.weight")
    stages = len(numbers(tensors, "conv", "_0."))
    settings = {
        "image_size": 4 * 2**stages,
        "in_channels": in_channels,
        "features": features,
        "norm": "batch",
        "pixels": "unit",
    }
    modules = {"conv0_0": "layers.0", "linear1": "hidden", "linear2": "last"}
    normed = {}
    place = 2  # after the first convolution, which has no norm, and its activation
    for there in [f"{stage}_{half}" for stage in range(stages) for half in (0, 1)][1:]:
        modules[f"conv{there}"], normed[f"bn{there}"] = f"layers.{place}", f"layers.{place + 1}"
        place += 3
    return Plan(
        "super_resolution.VGGDiscriminator", settings, convolutions(modules) | norms(normed, "batch")[0],
        (RECIPE, "discriminator"),
    )  # fmt: skip


def unet(tensors: Tensors) -> Plan:
    """Plan UNetDiscriminatorSN, `conv0` to `conv9`, with skip connections, which are not visible in the names."""
    features, in_channels, _, _ = shape(tensors, "conv0.weight")
    settings = {"in_channels": in_channels, "features": features, "pixels": "unit"}
    places = convolutions({"conv0": "first", "conv9": "last"})
    places |= {f"{a}.{x}": f"{b}.parametrizations.{y}" for a, b in UNET.items() for x, y in SPECTRAL.items()}
    return Plan("super_resolution.UNetDiscriminator", settings, places, (RECIPE, "discriminator"))
