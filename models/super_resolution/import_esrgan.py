"""ESRGAN's networks: files from the authors' repository, BasicSR and Real-ESRGAN.

The generator RRDBNet has three sets of names: BasicSR's (`conv_first`, `body`, ...), those of the released ESRGAN
(`RRDB_trunk`, `HRconv`, ...), and the older ones, numbered (`model.1.sub.0.RDB1.conv1.0`). The discriminators are
BasicSR's VGGStyleDiscriminator and UNetDiscriminatorSN. All use images in [0, 1].
"""

import re
from dataclasses import dataclass

from figura.base.errors import UserError
from figura.commands.import_weights.plan import Plan, Tensors, convolutions, norms, numbers, shape

RECIPE, WITH_DISCRIMINATOR = "recipes/published/esrgan_x4_psnr.yaml", "recipes/published/esrgan_x4_gan.yaml"
SCALES = {0: 1, 1: 2, 2: 4}  # number of doublings -> scale
UNET = {
    "conv1": "downs.0", "conv2": "downs.1", "conv3": "downs.2", "conv4": "ups.0", "conv5": "ups.1", "conv6": "ups.2",
    "conv7": "judging.0", "conv8": "judging.1",
}  # fmt: skip
SPECTRAL = {  # PyTorch's older spectral norm there -> the parametrization here
    "weight_orig": "weight.original", "weight_u": "weight.0._u", "weight_v": "weight.0._v"
}  # fmt: skip


@dataclass(frozen=True)
class Names:
    """Modules of one set of names; `dense` is a convolution of RRDB b, dense block r (from 1), position c (from 1).

    A file may have fewer of `ups`, the convolutions of the doublings, unless `all_ups`.
    """

    first: str
    dense: str
    trunk: str
    ups: tuple[str, ...]
    painting: str
    last: str
    all_ups: bool = False

    @property
    def block(self) -> tuple[str, str]:
        """Prefix and suffix around the index b in the tensor names of RRDB b."""
        start, _, rest = self.dense.partition("{b}")
        return start, rest.partition("{r}")[0]


BASICSR = Names(
    "conv_first", "body.{b}.rdb{r}.conv{c}", "conv_body", ("conv_up1", "conv_up2"), "conv_hr", "conv_last", all_ups=True
)  # fmt: skip
RELEASED = Names(
    "conv_first", "RRDB_trunk.{b}.RDB{r}.conv{c}", "trunk_conv", ("upconv1", "upconv2"), "HRconv", "conv_last"
)  # fmt: skip


def plan(tensors: Tensors) -> Plan:
    """Plan the network of a file: a generator of any width and depth, scales 1, 2 and 4, or a discriminator."""
    if "conv0_0.weight" in tensors:
        return _vgg(tensors)
    if "conv0.weight" in tensors:
        return _unet(tensors)
    return _generator(tensors)


def _generator(tensors: Tensors) -> Plan:
    names = _names(tensors)
    blocks = len(numbers(tensors, *names.block))
    features, inputs, _, _ = shape(tensors, f"{names.first}.weight")
    out_channels = shape(tensors, f"{names.last}.weight")[0]
    doublings = len(names.ups) if names.all_ups else sum(f"{up}.weight" in tensors for up in names.ups)
    unshuffle = {4 * out_channels: 2, 16 * out_channels: 4}.get(inputs, 1) if names is BASICSR else 1
    settings = {
        "scale": SCALES[doublings] // unshuffle,
        "in_channels": inputs // unshuffle**2,
        "out_channels": out_channels,
        "features": features,
        "blocks": blocks,
        "growth": shape(tensors, f"{names.dense.format(b=0, r=1, c=1)}.weight")[0],
        "scaling": 0.2,
        "pixels": "unit",
        "unshuffle": unshuffle,
        "bicubic_skip": False,
    }
    places = places_of(names, blocks, doublings)
    return Plan("super_resolution.RRDBGenerator", settings, places, (RECIPE, "generator"))


def places_of(names: Names, blocks: int, doublings: int) -> dict[str, str]:
    """Return the names of the generator's tensors here, by those in a file."""
    modules = {names.first: "first", names.trunk: f"trunk.{blocks}", names.painting: "painting", names.last: "last"}
    modules |= {up: f"ups.{i}" for i, up in enumerate(names.ups[:doublings])}
    modules |= {
        names.dense.format(b=b, r=r + 1, c=c + 1): f"trunk.{b}.blocks.{r}.convolutions.{c}"
        for b in range(blocks)
        for r in range(3)
        for c in range(5)
    }
    return convolutions(modules)


def _names(tensors: Tensors) -> Names:
    for names in (BASICSR, RELEASED):
        start, end = map(re.escape, names.block)
        if any(re.match(rf"{start}\d+{end}", name) for name in tensors):
            return names
    start, end = "model.1.sub.", ".RDB"
    blocks = len(numbers(tensors, start, end))
    if not blocks:
        raise UserError(
            "there is no tensor body.0.rdb1.conv1.weight (BasicSR), RRDB_trunk.0.RDB1.conv1.weight (ESRGAN) or "
            "model.1.sub.0.RDB1.conv1.0.weight (older): no RRDBNet; nor conv0_0.weight or conv0.weight (discriminators)"
        )
    after = sorted(int(match[1]) for name in tensors if (match := re.fullmatch(r"model\.(\d{1,9})\.weight", name)))
    after = [number for number in after if number > 1]
    doublings = len(after) - 2
    ups, (painting, last) = [3 + 3 * i for i in range(doublings)], (2 + 3 * doublings, 4 + 3 * doublings)
    if doublings not in SCALES or after != [*ups, painting, last]:
        raise UserError(
            f"the convolutions behind model.1 are numbered {', '.join(map(str, after)) or 'nothing'}, not 2, 4 (scale "
            "1), 3, 5, 7 (2) or 3, 6, 8, 10 (4): the file is damaged, or holds another network"
        )
    return Names(
        "model.0", f"{start}{{b}}{end}{{r}}.conv{{c}}.0", f"{start}{blocks}", tuple(f"model.{up}" for up in ups),
        f"model.{painting}", f"model.{last}",
    )  # fmt: skip


def _vgg(tensors: Tensors) -> Plan:
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
        (WITH_DISCRIMINATOR, "discriminator"),
    )  # fmt: skip


def _unet(tensors: Tensors) -> Plan:
    """Plan UNetDiscriminatorSN, `conv0` to `conv9`, with skip connections, which are not visible in the names."""
    features, in_channels, _, _ = shape(tensors, "conv0.weight")
    settings = {"in_channels": in_channels, "features": features, "pixels": "unit"}
    places = convolutions({"conv0": "first", "conv9": "last"})
    places |= {f"{a}.{x}": f"{b}.parametrizations.{y}" for a, b in UNET.items() for x, y in SPECTRAL.items()}
    return Plan("super_resolution.UNetDiscriminator", settings, places, (WITH_DISCRIMINATOR, "discriminator"))
