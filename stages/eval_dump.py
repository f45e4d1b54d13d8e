"""Dump what trained networks give for the validation split: `python -m stages.eval_dump RECIPE RUN` writes RUN/dump.

Data, networks and losses are those of RUN/model/recipe.yaml; RECIPE says how to evaluate them.

The options are for use outside of the DAG and write to `--output`. `--checkpoint FOLDER` evaluates another model
folder, or every model folder in FOLDER (such as RUN/checkpoints, see `runtime.checkpoint_every`), with a table and a
plot of their metrics. `--watch SECONDS` waits for more checkpoints. `--split NAME` takes another split.
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
    parser.add_argument("--split", metavar="NAME", help="split of the validation datasets; default: the recipe's")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder to write; the other options need it")
    parser.add_argument(
        "--watch", type=float, metavar="SECONDS", help="evaluate checkpoints as they appear, until Ctrl-C"
    )
    args = parser.parse_args(arguments)
    check_options(args)
    recipe = load_recipe(args.recipe, ["evaluate"])
    model, output = args.checkpoint or args.run / "model", args.output or args.run / "dump"
    if args.checkpoint is None or (model / "recipe.yaml").is_file():
        if args.output is not None:
            refuse_foreign(output)
        trained, networks = load_trained(model, recipe)
        write_dump(trained if args.split is None else with_split(trained, args.split), networks, output)
        return
    from tools.watch import CheckpointWatch  # imports matplotlib, which the DAG's evaluation does without

    checkpoints = CheckpointWatch(model, output, recipe, args.split)
    if args.watch is None:
        checkpoints.evaluate_all()
    else:
        checkpoints.watch(args.watch)


def check_options(args: argparse.Namespace) -> None:
    """Refuse options that do not go together. Raises UserError."""
    if args.output is None:
        if (args.checkpoint, args.split, args.watch) != (None, None, None):
            raise UserError(f"--output: missing; the other options need it, because {args.run / 'dump'} is DVC's")
        return
    if args.output.exists() and not args.output.is_dir():
        raise UserError(f"--output {args.output}: is a file; expected a folder to write")
    if args.output.resolve() == (args.run / "dump").resolve():
        raise UserError(f"--output {args.output}: this folder is DVC's; choose another")
    if args.checkpoint is not None and args.output.resolve().is_relative_to(args.checkpoint.resolve()):
        raise UserError(f"--output {args.output}: lies in the folder of --checkpoint; choose one beside it")
    if args.watch is not None and not args.watch > 0:
        raise UserError(f"--watch {args.watch:g}: expected a number of seconds above 0")
    if args.watch is not None and (args.checkpoint is None or (args.checkpoint / "recipe.yaml").is_file()):
        raise UserError(
            f"--watch: needs --checkpoint with a folder of model folders, such as {args.run / 'checkpoints'}"
        )


if __name__ == "__main__":
    sys.exit(run(main))
