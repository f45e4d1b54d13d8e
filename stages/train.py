"""Train a recipe: `python -m stages.train RECIPE RUN` writes RUN/model and RUN/history."""

import argparse
import sys
from pathlib import Path

from models.engine.recipes.recipe import load_recipe, resolved
from models.engine.training.trainer import Trainer
from stages.command import run


def main(arguments: list[str]) -> None:
    """Train, going on where a killed run of the same recipe, data and code stopped."""
    parser = argparse.ArgumentParser(prog="python -m stages.train", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    given = parser.parse_args(arguments)
    recipe = load_recipe(given.recipe)
    trainer = Trainer(recipe, given.run)
    if trainer.accelerator.is_main_process:  # of all machines, other than `accelerator.print`
        print(resolved(recipe))
    with trainer.interruption.by_signals():
        trainer.fit()


if __name__ == "__main__":
    sys.exit(run(main))
