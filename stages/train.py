"""Train a recipe: `python -m stages.train RECIPE RUN` writes RUN/model and RUN/history.

With `FIGURA_RESUME_ANYWAY=1` in the environment, it resumes from the furthest state of the run, even if that state was
refused because its recipe, code, packages or data differ.
"""

import argparse
import os
import sys
from pathlib import Path

from models.live import listeners
from models.recipe.load import load_recipe
from models.recipe.trial import mark
from models.training.trainer import Trainer
from stages.command import run
from stages.dependencies import refuse_untracked


def main(arguments: list[str]) -> None:
    """Train; resume where a killed run of the same recipe, data and code stopped."""
    parser = argparse.ArgumentParser(prog="python -m stages.train", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    args = parser.parse_args(arguments)
    recipe = load_recipe(args.recipe)
    refuse_untracked(recipe)
    if recipe.train.try_ and os.environ.get("RANK", "0") == "0":
        print(mark(recipe), flush=True)
    anyway = os.environ.get("FIGURA_RESUME_ANYWAY") == "1"
    trainer = Trainer(recipe, args.run, listeners=listeners(recipe), resume_anyway=anyway)
    with trainer.stop_request.by_signals():
        trainer.fit()


if __name__ == "__main__":
    sys.exit(run(main))
