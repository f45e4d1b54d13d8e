"""ESRGAN's generator RRDBNet: files of its authors' repository and of BasicSR, with the three sets of names that exist.

BasicSR's (`conv_first`, `body`, ...), those of the released ESRGAN (`RRDB_trunk`, `HRconv`, ...), and the older ones,
numbered (`model.1.sub.0.RDB1.conv1.0`). All have images in [0, 1].
"""

from dataclasses import dataclass

from models.base.errors import UserError
from tools.import_weights.plan import Plan, Tensors, convolutions, count, shape

RECIPE = "recipes/published/esrgan_x4_psnr.yaml"
SCALES = {0: 1, 1: 2, 2: 4}  # number of doublings -> scale


@dataclass(frozen=True)
class Names:
    """Modules of one set of names; `dense` is a convolution of RRDB b, dense block r (from 1), place c (from 1)."""

    first: str
    dense: str
    trunk: str
    ups: tuple[str, ...]
    painting: str
    last: str


BASICSR = Names(
    "conv_first", "body.{b}.rdb{r}.conv{c}", "conv_body", ("conv_up1", "conv_up2"), "conv_hr", "conv_last"
)  # fmt: skip
RELEASED = Names(
    "conv_first", "RRDB_trunk.{b}.RDB{r}.conv{c}", "trunk_conv", ("upconv1", "upconv2"), "HRconv", "conv_last"
)  # fmt: skip


def plan(tensors: Tensors) -> Plan:
    """Plan the network of a file: any width and depth, scales 1, 2 and 4."""
    names = _names(tensors)
    features, inputs, _, _ = shape(tensors, f"{names.first}.weight")
    blocks = count(tensors, f"{names.dense.replace('{b}', '{}').format('{}', r=1, c=1)}.weight")
    out_channels = shape(tensors, f"{names.last}.weight")[0]
    doublings = sum(f"{up}.weight" in tensors for up in names.ups)
    unshuffle = {4: 2, 16: 4}.get(inputs // out_channels, 1) if names is BASICSR else 1
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
        if f"{names.dense.format(b=0, r=1, c=1)}.weight" in tensors:
            return names
    if "model.1.sub.0.RDB1.conv1.0.weight" not in tensors:
        raise UserError(
            "there is no tensor body.0.rdb1.conv1.weight (BasicSR), RRDB_trunk.0.RDB1.conv1.weight (ESRGAN) or "
            "model.1.sub.0.RDB1.conv1.0.weight (older): no RRDBNet"
        )
    blocks = count(tensors, "model.1.sub.{}.RDB1.conv1.0.weight")
    after = sorted(int(name.split(".")[1]) for name in tensors if name.count(".") == 2 and name.endswith(".weight"))
    *ups, painting, last = [number for number in after if number > 1]
    if len(ups) not in SCALES:
        raise UserError(f"{len(ups)} convolutions double the size; figura has at most 2")
    return Names(
        "model.0", "model.1.sub.{b}.RDB{r}.conv{c}.0", f"model.1.sub.{blocks}", tuple(f"model.{up}" for up in ups),
        f"model.{painting}", f"model.{last}",
    )  # fmt: skip
