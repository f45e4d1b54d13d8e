"""Dump what trained networks give for `evaluate.data`: `python -m stages.eval_dump RECIPE RUN` writes RUN/dump.

Networks and losses are those of RUN/model/recipe.yaml; RECIPE says how to evaluate them, and on which data.

The options are for use outside of the DAG and write to `--output`: `--checkpoint FOLDER` evaluates another model
folder, such as RUN/checkpoints/step-000500, `--split NAME` takes another split, `--set evaluate.data.scenes.side=641`
changes a value of `evaluate`. RUN may be a model folder itself. `figura watch` evaluates all checkpoints.
"""

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.lock import hold
from figura.base.yaml12 import read_yaml
from figura.evaluation.model_folder import kept, model_folder, refuse_other_networks, trained_facts
from figura.pipeline.causes import print_causes
from figura.pipeline.untracked_files import refuse_untracked
from figura.recipe.assignments import overridden
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.trial import mark

READS = ("data", "networks", "losses", "evaluate")  # sections of the recipe whose types it loads


def main(arguments: list[str]) -> None:
    """Evaluate the trained networks of a run, or of a checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m stages.eval_dump", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="model folder; default: RUN/model")
    parser.add_argument("--split", metavar="NAME", help="split of the datasets of evaluate.data; default: the recipe's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a value of evaluate")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder to write; the other options need it")
    args = parser.parse_args(arguments)
    print_causes()
    model = args.checkpoint or model_folder(args.run)
    check_options(args, model)
    content = overridden(read_yaml(args.recipe), args.set, ("evaluate",), args.recipe)
    refuse_other_networks(args.recipe, content, model)
    check_schema(content, args.recipe)

    # a dump elsewhere only reads the run, which may be in training
    with hold(args.run) if args.output is None and os.environ.get("RANK", "0") == "0" else nullcontext():
        evaluate(args, content, model)


def evaluate(args: argparse.Namespace, content: dict[str, Any], model: Path) -> None:
    """Evaluate the networks of a model folder as the content of a recipe says."""
    from figura.evaluation.trained import ignored_settings, load_trained, refuse_foreign, with_split, write_dump

    if args.output is not None:
        refuse_foreign(args.output)
    recipe = check_recipe(content, args.recipe, ["evaluate"], trained_facts(model))
    trained, networks = load_trained(model, recipe)
    refuse_untracked(trained)
    first = os.environ.get("RANK", "0") == "0"
    if first:
        if trained.train.try_:
            print(mark(trained))
        if which := kept(model):
            print(f"{model} has the weights of {which}")
        for line in ignored_settings(recipe, trained):
            print(f"{args.recipe}: {line}")
    asked = trained if args.split is None else with_split(trained, args.split)
    with hold(args.output or args.run) if first else nullcontext():
        write_dump(asked, networks, args.output or args.run / "dump")


def check_options(args: argparse.Namespace, model: Path) -> None:
    """Refuse options that do not go together, and to write where no dump belongs. Raises UserError."""
    if args.output is None:
        if args.run == model:
            raise UserError(f"--output: missing; {args.run} is a model folder, where no dump belongs")
        if (args.checkpoint, args.split, args.set) != (None, None, []):
            raise UserError(f"--output: missing; the other options need it, because {args.run / 'dump'} is DVC's")
        return
    if args.output.resolve() == (args.run / "dump").resolve():
        raise UserError(f"--output {args.output}: this folder is DVC's; choose another")
    if args.output.resolve().is_relative_to(model.resolve()):
        raise UserError(f"--output {args.output}: lies in the model folder {model}; choose one beside it")


if __name__ == "__main__":
    sys.exit(run(main))
