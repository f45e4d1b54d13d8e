"""ESRGAN's networks: files from the authors' repository, BasicSR and Real-ESRGAN.

The generator RRDBNet has three sets of names: BasicSR's (`conv_first`, `body`, ...), those of the released ESRGAN
(`RRDB_trunk`, `HRconv`, ...), and the older ones, numbered (`model.1.sub.0.RDB1.conv1.0`). The discriminators are in
`import_esrgan_discriminators`. All use images in [0, 1].
"""

import re
from dataclasses import dataclass

from figura.base.errors import UserError
from figura.commands.import_weights.plan import Plan, Tensors, convolutions, numbers, shape
from models.super_resolution.import_esrgan_discriminators import unet, vgg

RECIPE = "recipes/published/esrgan_x4_psnr.yaml"
SCALES = {0: 1, 1: 2, 2: 4}  # number of doublings -> scale


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
        return vgg(tensors)
    if "conv0.weight" in tensors:
        return unet(tensors)
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
        "upsampling": "nearest",
        "pixels": "unit",
        "unshuffle": unshuffle,
        "bicubic_skip": False,
    }
    modules = {names.first: "first", names.trunk: f"trunk.{blocks}", names.painting: "painting", names.last: "last"}
    modules |= {up: f"ups.{i}" for i, up in enumerate(names.ups[:doublings])}
    modules |= {
        names.dense.format(b=b, r=r + 1, c=c + 1): f"trunk.{b}.blocks.{r}.convolutions.{c}"
        for b in range(blocks)
        for r in range(3)
        for c in range(5)
    }
    return Plan("super_resolution.RRDBGenerator", settings, convolutions(modules), (RECIPE, "generator"))


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
