"""The keys that bring each recipe to its paper's size (widths, batches, optimizers), and to a small one."""

from dataclasses import dataclass
from pathlib import Path

BOTH = ("train", "validation")


@dataclass(frozen=True)
class Case:
    """A recipe, the keys that make it the paper's, and those that then make it small."""

    recipe: Path
    paper: list[str]
    small: list[str]


def of_both(key: str, value: object) -> list[str]:
    """Return the assignments of a key of the only dataset, in both splits."""
    dataset, name = key.split(".", 1)
    return [f"data.{split}.{dataset}.{name}={value}" for split in BOTH]


def pix2pix(batch: int) -> Case:
    """Isola et al., CVPR 2017: 256 px of 286, U-Net of 8 levels, patches of 70 px."""
    adam = "{type: torch.optim.Adam, lr: 2.0e-4, betas: [0.5, 0.999], fused: true}"
    return Case(
        Path("recipes/pix2pix.yaml"),
        [
            "data.train.pairs.load_size=286", "data.common.crop_size=256",
            f"data.batch_size={batch}", "networks.generator.features=64",
            "networks.generator.n_downs=6", "networks.generator.dropout_layers=3", "networks.discriminator.features=64",
            "networks.discriminator.n_layers=4", f"steps.D.optimizer={adam}", f"steps.G.optimizer={adam}",
        ],
        [
            "data.train.pairs.load_size=36", "data.common.crop_size=32",
            f"data.batch_size={min(batch, 2)}", "networks.generator.features=8",
            "networks.generator.n_downs=3", "networks.generator.dropout_layers=1", "networks.discriminator.features=8",
            "networks.discriminator.n_layers=2",
        ],
    )  # fmt: skip


HEADS = [
    assignment
    for head in ("cif", "caf", "cifdet")
    for assignment in (f"networks.network.heads.{head}.upsample=2", *of_both(f"scenes.heads.{head}.stride", 8))
]
CASES = {
    # Esser, Sutter and Ommer, CVPR 2018: 256 px, widths 64 to 128, batch 8, perceptual loss
    "vunet": Case(
        Path("params.yaml"),
        [
            "data.common.image_size=256", "data.batch_size=8", "networks.generator.nf_start=64",
            "networks.generator.nf_max=128", "losses.perceptual.weight=1.0",
            "steps.generator.optimizer={type: torch.optim.Adam, lr: 1.0e-3, betas: [0.5, 0.9], fused: true}",
        ],
        [
            "data.common.image_size=32", "data.batch_size=2", "networks.generator.nf_start=8",
            "networks.generator.nf_max=8", "losses.perceptual.weight=0.0",
        ],
    ),
    "pix2pix, batch 1": pix2pix(1),
    "pix2pix, batch 16": pix2pix(16),
    # Wang et al., ECCVW 2018: 4 x to 128 px, 23 blocks of width 64 and growth 32, batch 16; its adversarial phase
    "super_resolution": Case(
        Path("recipes/super_resolution.yaml"),
        [
            "data.common.size=128", "data.common.scale=4", "data.batch_size=16", "networks.generator.features=64",
            "networks.generator.blocks=23", "networks.generator.growth=32", "networks.generator.bicubic_skip=false",
            "networks.generator.initial_scale=0.1",
            "networks.discriminator={type: super_resolution.VGGDiscriminator}",
            "losses.G_pixel.weight=0.01", "losses.G_feature.weight=1.0", "losses.G_feature.layers={relu5_2: 1.0}",
            *(f"losses.G_{name}.after=0" for name in ("feature", "fake", "real")),
            "steps.G.injectors.judge.after=0", "steps.D.after=0",
            *(
                f"steps.{step}.optimizer={{type: torch.optim.Adam, lr: 1.0e-4, betas: [0.9, 0.999], fused: true}}"
                for step in "GD"
            ),
        ],
        [
            "data.common.size=32", "data.batch_size=2", "networks.generator.features=8",
            "networks.generator.blocks=1", "networks.generator.growth=4", "networks.discriminator.features=4",
            "losses.G_feature.weight=0.0",
        ],
    ),
    # Kreiss, Bertoni and Alahi, 2021: 385 px, batch 32, fields at an eighth of the pixels
    "pose": Case(
        Path("recipes/pose.yaml"),
        [
            *of_both("scenes.side", 385), "data.validation.scenes.multiple=16", *HEADS, "data.batch_size=32",
            "networks.network.backbone={name: shufflenetv2k16}",
            "steps.network.optimizer={type: torch.optim.SGD, lr: 3.0e-4, momentum: 0.95, nesterov: true}",
        ],
        [
            *of_both("scenes.side", 97), "data.batch_size=2", "networks.network.backbone={name: small}",
        ],
    ),
}  # fmt: skip
