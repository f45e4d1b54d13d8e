"""Loads a trained model folder, and evaluates it as a recipe asks."""

import shutil
from pathlib import Path

from torch import nn

from models.base.errors import UserError
from models.base.yaml12 import read_yaml
from models.dump import EXAMPLES, unfinished
from models.engine.build import build_networks, make_accelerator
from models.engine.weights import load_weights
from models.evaluation.evaluate import Evaluation
from models.recipe.load import check_recipe
from models.recipe.schema import Recipe


def load_trained(model: Path, evaluation: Recipe) -> tuple[Recipe, dict[str, nn.Module]]:
    """Return recipe and networks of a model folder, with the sections `evaluate`, `metrics`, `runtime` of `evaluation`.

    Raises:
        UserError: a file is missing, truncated, or does not fit, which also happens while the folder is being written.
    """
    path = model / "recipe.yaml"
    sections = evaluation.model_dump(include={"evaluate", "metrics", "runtime"}, by_alias=True)
    recipe = check_recipe(read_yaml(path) | sections, path, ["evaluate"])
    networks = build_networks(recipe)
    for name, network in networks.items():
        load_weights(network, model / f"{name}.safetensors")
    return recipe, networks


def with_split(recipe: Recipe, split: str) -> Recipe:
    """Return the recipe with `split: <split>` in every dataset of `data.validation`.

    Raises:
        UserError: a dataset has no such argument.
    """
    content = recipe.model_dump(by_alias=True)
    for entry in content["data"]["validation"].values():
        entry["split"] = split
    return check_recipe(content, Path(f"--split {split}"), ["evaluate"])


def refuse_foreign(folder: Path) -> None:
    """Raise UserError if the folder is neither missing, nor empty, nor a dump (complete or not)."""
    empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not empty and not any(path.is_file() for path in (folder / EXAMPLES, unfinished(folder / EXAMPLES))):
        raise UserError(f"{folder}: holds something else than a dump, which would be lost; remove it or choose another")


def write_dump(recipe: Recipe, networks: dict[str, nn.Module], folder: Path) -> None:
    """Evaluate on all ranks and replace `folder` by the dump.

    Raises:
        UserError: a dataset or an injector raised it, on all ranks if it happened on one.
    """
    accelerator = make_accelerator(recipe)
    if accelerator.is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
    evaluation = Evaluation(recipe, networks, folder, accelerator)
    evaluation.write()
    accelerator.end_training()
    if accelerator.is_main_process:  # `accelerator.print` would print once on every machine
        for mode, times in evaluation.times.items():
            line = ", ".join(f"{injector} {spent:.2f}" for injector, spent in times.items())
            print(f"{mode}: ms an image: {line}")
