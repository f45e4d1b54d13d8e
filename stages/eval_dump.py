"""Dump what trained networks give for the validation split: `python -m stages.eval_dump RECIPE RUN` writes RUN/dump.

Data, networks and losses are those of RUN/model/recipe.yaml; RECIPE says how to evaluate them.

The options are for use outside of the DAG and write to `--output`: `--checkpoint FOLDER` evaluates another model
folder, such as RUN/checkpoints/step-000500, `--split NAME` takes another split. `python -m tools.watch` evaluates all
checkpoints.
"""

import argparse
import sys
from pathlib import Path

from models.base.errors import UserError
from models.evaluation.trained import load_trained, refuse_foreign, with_split, write_dump
from models.recipe.load import load_recipe
from stages.command import run


def main(arguments: list[str]) -> None:
    """Evaluate the trained networks of a run, or of a checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m stages.eval_dump", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="model folder; default: RUN/model")
    parser.add_argument("--split", metavar="NAME", help="split of the validation datasets; default: the recipe's")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder to write; the other options need it")
    args = parser.parse_args(arguments)
    check_options(args)
    recipe = load_recipe(args.recipe, ["evaluate"])
    trained, networks = load_trained(args.checkpoint or args.run / "model", recipe)
    write_dump(
        trained if args.split is None else with_split(trained, args.split), networks, args.output or args.run / "dump"
    )


def check_options(args: argparse.Namespace) -> None:
    """Refuse options that do not go together. Raises UserError."""
    if args.output is None:
        if (args.checkpoint, args.split) != (None, None):
            raise UserError(f"--output: missing; the other options need it, because {args.run / 'dump'} is DVC's")
        return
    if args.output.resolve() == (args.run / "dump").resolve():
        raise UserError(f"--output {args.output}: this folder is DVC's; choose another")
    if args.checkpoint is not None and args.output.resolve().is_relative_to(args.checkpoint.resolve()):
        raise UserError(f"--output {args.output}: lies in the folder of --checkpoint; choose one beside it")
    refuse_foreign(args.output)


if __name__ == "__main__":
    sys.exit(run(main))
