"""The recipes that benchmarks train, and their iterations on one fixed batch."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from figura.base.yaml12 import read_yaml
from figura.engine.weights import to_device
from figura.recipe.assignments import overridden
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe
from figura.training.trainer import Trainer

ROOT = Path(__file__).absolute().parents[1]
SECTIONS = tuple(Recipe.model_fields)
QUIET = (
    "train.try=false", "runtime.trackers=[]", "runtime.progress=false", "runtime.workers=0", "runtime.samples=null",
    "runtime.scores=null",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A recipe, the keys that let it run on the synthetic data without a connection, and those that make it small."""

    file: Path
    keys: tuple[str, ...] = ()
    small: tuple[str, ...] = field(default=(), repr=False)

    def recipe(self, *more: str, checkout: Path = ROOT) -> Recipe:
        """Return the checked recipe of a checkout (this one), which records only its losses, with more keys changed.

        Raises:
            UserError: the code that is loaded does not take it.
        """
        path = checkout / self.file
        return check_recipe(overridden(read_yaml(path), [*self.keys, *QUIET, *more], SECTIONS, path), path)

    def changed(self, *more: str) -> "Case":
        """Return the case with more keys changed."""
        return replace(self, keys=(*self.keys, *more))


def published(name: str, keys: str, small: str) -> Case:
    """Return a published recipe, with keys separated by blanks."""
    return Case(Path(f"recipes/published/{name}.yaml"), tuple(keys.split()), tuple(small.split()))


def pix2pix(batch: int) -> Case:
    """Return the recipe of facades, whose paper has batches of 1."""
    small = "data.train.pairs.load_size=36 data.common.crop_size=32 networks.generator.features=8"
    small += " networks.generator.n_downs=3 networks.generator.dropout_layers=1"
    small += " networks.discriminator.features=8 networks.discriminator.n_layers=2"
    keys = f"losses.G_VGG.source=random data.batch_size={batch}"
    return published("pix2pix_facades", keys, f"{small} data.batch_size={min(batch, 2)}")


PUBLISHED = {
    "vunet": published(
        "vunet_deepfashion",
        "losses.perceptual.source=random evaluate.data={}",
        'data.common.image_size=32 data.batch_size=2 losses.perceptual.layers={"image":127.5}'
        " networks.generator.nf_start=8 networks.generator.nf_max=8",
    ),
    "pix2pix, batch 1": pix2pix(1),
    "pix2pix, batch 16": pix2pix(16),
    "super_resolution": published(
        "esrgan_x4_gan",
        "data.common.root=data/prepared/people losses.G_feature.source=random train.init_from=null",
        "data.common.size=32 data.batch_size=2 losses.G_feature.weight=0.0 networks.discriminator.features=4"
        " networks.generator.features=8 networks.generator.blocks=1 networks.generator.growth=4",
    ),
    "pose": published(
        "openpifpaf_shufflenetv2k16", "", "data.common.side=97 data.batch_size=2 networks.network.backbone.name=small"
    ),
}
DEFAULTS = {
    "vunet": Case(Path("params.yaml")),
    "pix2pix": Case(Path("recipes/pix2pix.yaml")),
    "pose": Case(Path("recipes/pose.yaml")),
    "super_resolution": Case(Path("recipes/super_resolution.yaml")),
}
ON_A_CPU = DEFAULTS | {
    "published vunet": PUBLISHED["vunet"].changed("data.common.image_size=128", "data.batch_size=4"),
    "published pix2pix": PUBLISHED["pix2pix, batch 1"].changed("data.batch_size=2"),
    "published pose": PUBLISHED["pose"].changed("data.common.side=193", "data.batch_size=4"),
    "published super_resolution": PUBLISHED["super_resolution"].changed("data.batch_size=2"),
}
"""Sizes at which a step takes seconds at most on two cores."""


class Training(NamedTuple):
    """A training on one fixed batch; `step` runs one iteration of `trainer`."""

    trainer: Trainer
    step: Callable[[], object]


class NoReports:
    """Replaces the reporter, so that iterations only train and record losses."""

    def advance(self) -> None:
        """Called after each iteration."""


def start(recipe: Recipe, folder: Path) -> Training:
    """Return a training in its last quarter, where every step of the recipe runs; it writes into `folder`."""
    trainer = Trainer(recipe, folder)
    trainer.reporter = NoReports()  # type: ignore[assignment]
    trainer._due = lambda every: False  # type: ignore[method-assign]  # cadences are not part of the step
    trainer.iteration = trainer.last * 3 // 4
    batch = to_device(next(iter(trainer.loaders.train(0))), trainer.accelerator.device)
    return Training(trainer, lambda: trainer.iterate(batch, 1))
