"""The published recipes that benchmarks take, the keys that let them run here, and those that make them small."""

from dataclasses import dataclass
from pathlib import Path

PUBLISHED = Path("recipes/published")


@dataclass(frozen=True)
class Case:
    """A recipe, the keys that let it run on the synthetic data without a connection, and those that make it small."""

    recipe: Path
    here: list[str]
    small: list[str]


def pix2pix(batch: int) -> Case:
    """The paper's facades have batches of 1."""
    return Case(
        PUBLISHED / "pix2pix_facades.yaml",
        ["losses.G_VGG.source=random", f"data.batch_size={batch}"],
        [
            "data.train.pairs.load_size=36", "data.common.crop_size=32",
            f"data.batch_size={min(batch, 2)}", "networks.generator.features=8",
            "networks.generator.n_downs=3", "networks.generator.dropout_layers=1", "networks.discriminator.features=8",
            "networks.discriminator.n_layers=2",
        ],
    )  # fmt: skip


CASES = {
    "vunet": Case(
        PUBLISHED / "vunet_deepfashion.yaml",
        ["losses.perceptual.source=random", "evaluate.data={}"],
        [
            "data.common.image_size=32", "data.batch_size=2", "networks.generator.nf_start=8",
            "networks.generator.nf_max=8", "losses.perceptual.layers={image: 127.5}",
        ],
    ),
    "pix2pix, batch 1": pix2pix(1),
    "pix2pix, batch 16": pix2pix(16),
    "super_resolution": Case(
        PUBLISHED / "esrgan_x4_gan.yaml",
        ["data.common.root=data/prepared/people", "losses.G_feature.source=random", "train.init_from=null"],
        [
            "data.common.size=32", "data.batch_size=2", "networks.generator.features=8",
            "networks.generator.blocks=1", "networks.generator.growth=4", "networks.discriminator.features=4",
            "losses.G_feature.weight=0.0",
        ],
    ),
    "pose": Case(
        PUBLISHED / "openpifpaf_shufflenetv2k16.yaml",
        [],
        ["data.common.side=97", "data.batch_size=2", "networks.network.backbone={name: small}"],
    ),
}  # fmt: skip
