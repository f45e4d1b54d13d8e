"""Say what is wrong with recipes before anything runs: `figura check [RECIPE ...]`, by default those of `dvc.yaml`.

Checks keys, types and their arguments, names between data, networks and losses, and metrics. All faults are named at
once; the exit status is 1 then.
"""

from pathlib import Path

from figura.base.errors import UserError, printable
from figura.base.yaml12 import read_yaml
from figura.commands import parser_of
from figura.recipe.load import check_recipe
from figura.recipe.pipeline import PIPELINE, entries
from figura.recipe.schema_check import check_schema


def main(arguments: list[str]) -> None:
    """Check recipes, and print what is in them."""
    parser = parser_of("check", __doc__)
    parser.add_argument("recipes", nargs="*", type=Path, metavar="RECIPE", help="params files, such as params.yaml")
    paths = parser.parse_args(arguments).recipes or [Path(one["params"]) for one in entries("recipes").values()]
    if not paths:
        raise UserError(f"{PIPELINE}: its `vars` have no map `recipes`; name params files: figura check RECIPE")
    faults = []
    for path in paths:
        try:
            print(printable(summary(path)), flush=True)
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))


def summary(path: Path) -> str:
    """Return what a recipe has, in a line. Raises UserError with all its faults."""
    content = read_yaml(path)
    check_schema(content, path)
    recipe = check_recipe(content, path)
    losses = [name for name, loss in recipe.losses.items() if loss.weight]
    networks, steps = ", ".join(recipe.networks), ", ".join(recipe.steps)
    return f"{path}: no faults; networks: {networks}; steps: {steps}; losses: {', '.join(losses)}"
