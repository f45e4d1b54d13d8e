"""Load a trained model folder, and evaluate it as defined by a recipe."""

import json
import shutil
from pathlib import Path

from torch import nn

from figura.base.dotted_keys import leaves
from figura.base.errors import UserError
from figura.base.lock import NAME
from figura.dump import EXAMPLES, FACTS, TRY
from figura.engine.build import build_networks, make_accelerator
from figura.engine.weights import load_weights
from figura.evaluation.evaluate import Evaluation
from figura.evaluation.model_folder import trained_content
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe
from figura.recipe.trial import EVALUATED, mark, short_evaluation


def load_trained(model: Path, evaluation: Recipe) -> tuple[Recipe, dict[str, nn.Module]]:
    """Return recipe and networks of a model folder, with `evaluate`, `metrics` and `runtime` of `evaluation`.

    `data.validation` is also that of `evaluation`: entries of `evaluate.data` inherit its keys.

    Raises:
        UserError: a file is missing, truncated, or does not match, which also happens while the folder is being
            written.
    """
    sections = evaluation.model_dump(include={"evaluate", "metrics", "runtime"}, by_alias=True)
    content, facts = trained_content(model)
    validation = evaluation.model_dump(include={"data": {"validation"}}, by_alias=True)["data"]
    sections["data"] = content.get("data", {}) | validation
    recipe = check_recipe(content | sections, model / "recipe.yaml", ["evaluate"], facts)
    networks = build_networks(recipe)
    for name, network in networks.items():
        load_weights(network, model / f"{name}.safetensors")
    return recipe.read_from(evaluation.path), networks


def ignored_settings(asked: Recipe, trained: Recipe) -> list[str]:
    """Return a line for each training setting that differs between the requested and the trained recipe.

    Evaluation uses those of the trained recipe.
    """
    sections = ("seed", "data", "networks", "losses", "steps", "train")
    wanted, used = (dict(leaves(one.model_dump(include=set(sections), by_alias=True))) for one in (asked, trained))
    written = dict(leaves(asked.model_dump(include=set(sections), exclude_unset=True, by_alias=True)))
    lines = [
        f"{key} is {wanted[key]!r} in the recipe; the model was trained with {used.get(key)!r}, which counts here"
        for key in written
        if not key.startswith("data.validation.") and wanted[key] != used.get(key)
    ]
    for section in ("networks", "losses", "steps"):
        lines += [
            f"{section}.{name} is not in the recipe; the model was trained with it, which counts here"
            for name in getattr(trained, section)
            if name not in getattr(asked, section)
        ]
    return lines


def with_split(recipe: Recipe, split: str) -> Recipe:
    """Return the recipe with `split: <split>` in every dataset of `evaluate.data`.

    Raises:
        UserError: a dataset has no such argument.
    """
    content = recipe.model_dump(by_alias=True)
    for entry in content["evaluate"]["data"].values():
        entry["split"] = split
    return check_recipe(content, Path(f"--split {split}"), ["evaluate"], recipe.facts)


def refuse_foreign(folder: Path) -> None:
    """Raise UserError unless the folder is missing, empty except for a lock, or a dump (complete or not)."""
    empty = not folder.exists() or (folder.is_dir() and all(path.name == NAME for path in folder.iterdir()))
    if not empty and not any(path.is_file() for path in (folder / EXAMPLES, *folder.glob(f"{EXAMPLES}.*.unfinished"))):
        raise UserError(f"{folder}: holds something else than a dump, which would be lost; remove it or choose another")


def write_dump(recipe: Recipe, networks: dict[str, nn.Module], folder: Path) -> None:
    """Evaluate on all ranks and replace the content of `folder`, except its lock, by the dump.

    The dump of a try is small (`recipe/trial.py`).

    Raises:
        UserError: raised by a dataset or an injector, a value is not finite, or the disk is full; on all ranks if on
            any.
    """
    accelerator = make_accelerator(recipe)
    if accelerator.is_main_process:
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != NAME:
                path.unlink()
    trial = mark(recipe)
    fewer = short_evaluation(recipe) if trial else recipe
    evaluation = Evaluation(fewer, networks, folder, accelerator, limit=EVALUATED if trial else None)
    facts = {FACTS: json.dumps(recipe.facts, indent=1, allow_nan=False) + "\n"} if recipe.facts else {}
    evaluation.write(facts | ({TRY: f"{trial}\n"} if trial else {}))
    accelerator.end_training()
    if accelerator.is_main_process:  # `accelerator.print` would print once per machine
        for mode, times in evaluation.times.items():
            line = ", ".join(f"{injector} {spent:.2f}" for injector, spent in times.items())
            print(f"{mode}: ms an image: {line}")
