"""Train a recipe: `python -m stages.train RECIPE RUN` writes RUN/model and RUN/history.

With `FIGURA_RESUME_ANYWAY=1` in the environment, it resumes from the furthest state of the run, even if that state was
refused because its recipe, code, packages or data differ.
"""

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from figura.base import exit_status
from figura.base.lock import hold
from figura.base.yaml12 import read_yaml
from figura.pipeline.causes import print_causes
from figura.pipeline.untracked_files import refuse_untracked
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.trial import mark, short_training

READS = ("data", "networks", "losses", "steps", "callbacks", "train")
"""Sections of the recipe whose types it loads."""


def main(arguments: list[str]) -> None:
    """Train; resume where a killed run of the same recipe, data and code stopped."""
    parser = argparse.ArgumentParser(prog="python -m stages.train", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    args = parser.parse_args(arguments)
    print_causes()
    content = read_yaml(args.recipe)
    asked = short_training(check_schema(content, args.recipe))
    first = os.environ.get("RANK", "0") == "0"
    with hold(args.run) if first else nullcontext():
        if asked.train.try_ and first:
            print(mark(asked), flush=True)
        train(content, args.recipe, args.run)


def train(content: dict[str, Any], path: Path, run: Path) -> None:
    """Train the recipe of a content, read from `path`."""
    from figura.live import listeners
    from figura.training.trainer import Trainer

    recipe = check_recipe(content, path)
    refuse_untracked(recipe)
    anyway = os.environ.get("FIGURA_RESUME_ANYWAY") == "1"
    trainer = Trainer(recipe, run, listeners=listeners(recipe), resume_anyway=anyway)
    with trainer.stop_request.by_signals():
        trainer.fit()


if __name__ == "__main__":
    sys.exit(exit_status.run(main))
