"""Say what is wrong with recipes before anything runs: `figura check [RECIPE ...]`, by default those of the project.

With `--resolved` it prints each recipe whole instead: what entries extend, defaults, and facts of the data filled in.

Checks keys, types and their arguments, names between data, networks and losses, and metrics; then whether files of
weights are there, datasets open, and stages depend on both. All faults are named at once; the exit status is 1 then.
Schedules and gates that the training ends before, and rates that are 0 long before, are no faults, but named.
"""

import os
from pathlib import Path
from typing import Any

from figura.base.dotted_keys import texts
from figura.base.error_collector import ErrorCollector
from figura.base.errors import PULL, REPRO, UserError, printable
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands import parser_of, recipe_file
from figura.pipeline.dag import PIPELINE, entries, instances
from figura.pipeline.untracked_files import covers, find_untracked, is_added
from figura.recipe.load import check_recipe, load_recipe
from figura.recipe.picture_sizes import other_sizes
from figura.recipe.schema import Recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.types import DATASET, construct

SUFFIXES = (".safetensors", ".pth", ".pt", ".npz", ".pkl")  # of files of weights


def main(arguments: list[str]) -> None:
    parser = parser_of("check", __doc__)
    parser.add_argument("recipes", nargs="*", type=Path, metavar="RECIPE", help="params files, such as params.yaml")
    parser.add_argument("--resolved", action="store_true", help="print the recipes with all keys")
    args = parser.parse_args(arguments)
    paths = args.recipes or [Path(one["params"]) for one in entries("recipes").values()]
    if not paths:
        raise UserError(f"{PIPELINE}: its `vars` have no map `recipes`; name params files: figura check RECIPE")
    faults = []
    for path in paths:
        try:
            recipe_file(path)
            print(whole(path) if args.resolved else printable(summary(path)), flush=True)
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))


def whole(path: Path) -> str:
    """Return a recipe with all its keys, as YAML. Raises UserError with all its faults."""
    return f"# {path}\n{to_yaml(load_recipe(path).model_dump(by_alias=True))}"


def summary(path: Path) -> str:
    """Return what a recipe has, in a line. Raises UserError with all its faults."""
    content = read_yaml(path)
    if not {"networks", "steps", "train"} & {*content}:
        sections = ", ".join(map(str, content))
        raise UserError(f"{path}: trains nothing, it has {sections}; check what extends it, or `{REPRO}` its stage")
    check_schema(content, path)
    recipe = check_recipe(content, path)
    from figura.recipe.late_parts import late_parts  # imports PyTorch

    errors = ErrorCollector(path)
    remarks = [*absent(recipe, errors), *other_sizes(recipe), *late_parts(recipe, recipe.train.steps)]
    further = "".join(f"; {one}" for one in remarks)
    errors.raise_any()
    losses = [name for name, loss in recipe.losses.items() if loss.weight]
    networks, steps = ", ".join(recipe.networks), ", ".join(recipe.steps)
    return f"{path}: no faults; networks: {networks}; steps: {steps}; losses: {', '.join(losses)}{further}"


def absent(recipe: Recipe, errors: ErrorCollector) -> list[str]:
    """Add the faults of files and data that a recipe names; return what a command is yet to bring, with the command."""
    outs, stages = list[str](), dict[str, dict[str, Any]]()
    if PIPELINE.is_file():
        outs, stages = [out for one in instances(read_yaml(PIPELINE)) for out in one.outs], entries("recipes")
    commands = {path: REPRO for path, key in weights(recipe).items() if _is_missing(path, key, outs, errors)}
    commands |= {root: f"{REPRO} prepare@{Path(root).name}" for root in unprepared(recipe, outs, errors)}
    for name, entry in stages.items():
        if Path(entry["params"]) == recipe.path:
            find_untracked(recipe, "train", name, errors)
    return [f"{path} is not there yet: `{command}`" for path, command in commands.items()]


def weights(recipe: Recipe) -> dict[str, str]:
    """Return the files of weights that a recipe names, each with its key."""
    start = dict.fromkeys(recipe.starts_from().values(), "train.init_from")
    return start | {text: key for key, text in texts(recipe.model_dump(by_alias=True)) if Path(text).suffix in SUFFIXES}


def _is_missing(path: str, key: str, outs: list[str], errors: ErrorCollector) -> bool:
    """Whether a stage is to write a file that is missing; one that no stage writes is an error."""
    if os.path.exists(path) or covers(outs, path):
        return not os.path.exists(path)
    pull = f"; `{PULL} {path}` fetches it" if is_added(path) else ""
    errors.add(key, f"{path}: no such file{pull}")
    return False


def unprepared(recipe: Recipe, outs: list[str], errors: ErrorCollector) -> list[str]:
    """Open the datasets, adding what is wrong with them; return the folders that are yet to be prepared."""
    data, judged = recipe.data, recipe.evaluate.data
    sections: dict[str, Any] = {"data.train": data.train, "data.validation": data.validation}
    sections |= {} if judged == data.validation else {"evaluate.data": judged}
    roots = []
    for section, datasets in sections.items():
        for name, entry in datasets.items():
            root = entry.arguments.get("root")
            if isinstance(root, str) and not os.path.isdir(root) and covers(outs, root):
                roots.append(root)
                continue
            try:
                built = construct(entry.type, entry.arguments, DATASET, f"{section}.{name}", errors)
                if section == "data.train" and built is not None and len(built) < data.batch_size:
                    few = f"{len(built)} examples are fewer than one batch (data.batch_size: {data.batch_size})"
                    errors.add(f"{section}.{name}", few)
                elif built is not None and not len(built):
                    errors.add(f"{section}.{name}", "has no examples")
            except UserError as error:
                errors.add(f"{section}.{name}", str(error))
    return roots
