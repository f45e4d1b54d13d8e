"""Train a recipe: `python -m stages.train RECIPE RUN` writes RUN/model and RUN/history.

With `FIGURA_RESUME_ANYWAY=1` in the environment, it resumes from the furthest state of the run, even if that state was
refused because its recipe, code, packages or data differ.
"""

import argparse
import os
import sys
from pathlib import Path

from models.base.yaml12 import read_yaml
from models.live.changes import changes, remember
from models.recipe.load import check_recipe, check_schema
from models.recipe.trial import mark, scratch, short_training
from stages.command import run
from stages.dependencies import refuse_untracked


def main(arguments: list[str]) -> None:
    """Train; resume where a killed run of the same recipe, data and code stopped."""
    parser = argparse.ArgumentParser(prog="python -m stages.train", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    args = parser.parse_args(arguments)
    content, first = read_yaml(args.recipe), os.environ.get("RANK", "0") == "0"
    asked = short_training(check_schema(content, args.recipe))
    live = scratch(args.run, asked) / "live"
    if asked.train.try_ and first:
        print(mark(asked), flush=True)
    if first:
        print(*changes(args.recipe, content, live), sep="\n", flush=True)

    from models.live.listeners import listeners
    from models.training.trainer import Trainer

    recipe = check_recipe(content, args.recipe)
    refuse_untracked(recipe)
    anyway = os.environ.get("FIGURA_RESUME_ANYWAY") == "1"
    trainer = Trainer(recipe, args.run, listeners=listeners(recipe), resume_anyway=anyway)
    if first:
        remember(content, live)
    with trainer.stop_request.by_signals():
        trainer.fit()


if __name__ == "__main__":
    sys.exit(run(main))
