"""The pix2pix recipe on pairs that are made on the spot, without baselines, with networks small enough for a test."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import toy

from figura.base.pictures import write_png
from figura.interfaces import Example
from figura.recipe.schema import Recipe

PIX2PIX = "recipes/pix2pix.yaml"


class Blobs(toy.Ramps):
    """`x` a smooth random picture (3, 32, 32), `y` its channels rotated and inverted."""

    names: ClassVar[tuple[str, ...]] = ("x", "y", "index", "name")

    def example(self, index: int, random: np.random.Generator) -> Example:
        coarse = np.random.default_rng(index).uniform(-1, 1, (3, 4, 4)).astype(np.float32)
        x = coarse.repeat(8, axis=1).repeat(8, axis=2)
        return {"x": x, "y": -np.roll(x, 1, axis=0), "index": index, "name": f"blob{index}"}


TINY: dict[str, Any] = {
    "data.common": ...,
    "data.train": {"pairs": {"type": "toy_pairs.Blobs", "length": 16}},
    "data.validation": {"pairs": {"type": "toy_pairs.Blobs", "length": 6}},
    "data.batch_size": 4,
    "evaluate.data": ...,
    "evaluate.inputs": {"x": "image", "y": "image"},
    "networks.generator.image_size": 32,
    "networks.generator.features": 4,
    "networks.discriminator.features": 4,
    "networks.discriminator.n_layers": 2,
    "steps.D.lr_schedule": {"type": "Linear", "start": 2, "end": 8, "from": 1.0, "to": 0.0},
    "steps.G.optimizer": {"type": "torch.optim.Adam", "lr": 2e-4, "betas": [0.5, 0.999]},
    "steps.G.lr_schedule": {"type": "Cosine", "start": 3, "end": 12, "from": 1.0, "to": 0.1},
    "train.steps": 8,
    "train.ema": None,
    "train.evaluate_every": 4,
    "train.record_every": 2,
    "evaluate.averages.mean_target.examples": 8,
    "metrics.scores.palette": ...,
    "metrics.scores.linear": ...,
    "metrics.scores.frechet_palette": ...,
    "metrics.scores.frechet_linear": ...,
    "metrics.scores.frechet_real": ...,
    "metrics.summary.psnr.beside": "mean_image.psnr",
    "metrics.summary.frechet.beside": "frechet_mean_image.value",
    "metrics.pictures.triptychs.columns": ["x", "fake", "y"],
    "runtime.log_every": 3,
    "runtime.resume_every": 3,
    "runtime.progress": False,
    "runtime.trackers": [],
}

# Adam divides a gradient by its own size: where it is rounding error and nothing else, so is the update
GRADIENT_DESCENT: dict[str, Any] = {
    f"steps.{step}.optimizer": {"type": "torch.optim.SGD", "lr": 0.002} for step in ("D", "G")
}


def content(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the shrunk recipe with values at dotted keys replaced."""
    return toy.changed(TINY | (changes or {}), toy.shipped(PIX2PIX))


def write_noise(root: Path, count: int, side: int = 16) -> None:
    """Write pictures A|B of noise into both splits, `pair0.png` and so on; A is red and B is green."""
    for split in ("train", "validation"):
        for index in range(count):
            pixels = np.random.default_rng(index).integers(0, 256, (side, 2 * side, 3), np.uint8)
            pixels[:, :side, 1:], pixels[:, side:, ::2] = 0, 0
            write_png(root / split / f"pair{index}.png", pixels)


def content_of_files(root: str, direction: str = "a_to_b") -> dict[str, Any]:
    """Return the shrunk recipe of such pictures, cropped to 12 pixels, in training at random."""
    return content(
        {
            "data.common": {"type": "images.ImagePairs", "root": root, "direction": direction, "crop_size": 12},
            "data.train": {"pairs": {"split": "train", "load_size": 16}},
            "data.validation": {"pairs": {"split": "validation"}},
        }
    )


def recipe(changes: dict[str, Any] | None = None) -> Recipe:
    """Return the shrunk recipe, checked."""
    return toy.checked(content=content(changes))
