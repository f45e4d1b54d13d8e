"""Dump what trained networks give for the validation split: `python -m stages.eval_dump RECIPE RUN` writes RUN/dump.

What was trained (data, networks, losses) is read from RUN/model/recipe.yaml; how to evaluate it, from RECIPE.

Beside the DAG, into a folder of their own: `--checkpoint FOLDER` evaluates another model folder, or each of a folder of
them (RUN/checkpoints, see `runtime.checkpoint_every`), with a table and a picture of their figures; `--watch SECONDS` waits for
more of them; `--split NAME` takes another split.
"""

import argparse
import sys
from pathlib import Path

from models.base.errors import UserError
from models.evaluation.trained import load_trained, refuse_foreign, with_split, write_dump
from models.recipe.load import load_recipe
from stages.command import run


def main(arguments: list[str]) -> None:
    """Evaluate the trained networks of a run, or checkpoints."""
    parser = argparse.ArgumentParser(prog="python -m stages.eval_dump", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="model folder, or a folder of model folders")
    parser.add_argument("--split", metavar="NAME", help="of the validation datasets, instead of the recipe's")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder to write; needed by the other options")
    parser.add_argument(
        "--watch", type=float, metavar="SECONDS", help="evaluate checkpoints as they appear, until Ctrl-C"
    )
    given = parser.parse_args(arguments)
    check_options(given)
    asked = load_recipe(given.recipe, ["evaluate"])
    model, output = given.checkpoint or given.run / "model", given.output or given.run / "dump"
    if given.checkpoint is None or (model / "recipe.yaml").is_file():
        if given.output is not None:
            refuse_foreign(output)
        recipe, networks = load_trained(model, asked)
        write_dump(recipe if given.split is None else with_split(recipe, given.split), networks, output)
        return
    from tools.watch import (
        Evaluations,  # it takes matplotlib, which the DAG's own evaluation does not
    )

    evaluations = Evaluations(model, output, asked, given.split)
    if given.watch is None:
        evaluations.once()
    else:
        evaluations.watch(given.watch)


def check_options(given: argparse.Namespace) -> None:
    """Refuse options that do not go together. Raises UserError."""
    if given.output is None:
        if (given.checkpoint, given.split, given.watch) != (None, None, None):
            raise UserError(f"--output: missing; beside other options it is needed, as {given.run / 'dump'} is DVC's")
        return
    if given.output.exists() and not given.output.is_dir():
        raise UserError(f"--output {given.output}: is a file; expected a folder to write")
    if given.output.resolve() == (given.run / "dump").resolve():
        raise UserError(f"--output {given.output}: this folder is DVC's; choose another")
    if given.checkpoint is not None and given.output.resolve().is_relative_to(given.checkpoint.resolve()):
        raise UserError(f"--output {given.output}: lies in the folder of --checkpoint; choose one beside it")
    if given.watch is not None and not given.watch > 0:
        raise UserError(f"--watch {given.watch:g}: expected a number of seconds above 0")
    if given.watch is not None and (given.checkpoint is None or (given.checkpoint / "recipe.yaml").is_file()):
        raise UserError(
            f"--watch: needs --checkpoint with a folder of model folders, such as {given.run / 'checkpoints'}"
        )


if __name__ == "__main__":
    sys.exit(run(main))
