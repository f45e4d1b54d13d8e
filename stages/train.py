"""Train a recipe: `python -m stages.train RECIPE RUN` writes RUN/model and RUN/history."""

import argparse
import sys
from pathlib import Path

from models.engine.recipe import load_recipe, resolved
from models.engine.trainer import Trainer
from stages.command import run


def main(arguments: list[str]) -> None:
    """Train, going on where a killed run of the same recipe, data and code stopped."""
    parser = argparse.ArgumentParser(prog="python -m stages.train", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    given = parser.parse_args(arguments)
    recipe = load_recipe(given.recipe)
    trainer = Trainer(recipe, given.run)
    trainer.accelerator.print(resolved(recipe))
    trainer.fit()


if __name__ == "__main__":
    sys.exit(run(main))
