"""Dump what trained networks give for the validation split: `python -m stages.eval_dump RECIPE RUN` writes RUN/dump.

What was trained (data, networks, losses) is read from RUN/model/recipe.yaml; how to evaluate it, from RECIPE.
"""

import argparse
import shutil
import sys
from pathlib import Path

from accelerate import Accelerator

from models.engine.assemble import build_networks
from models.engine.checkpoint import load_weights
from models.engine.evaluation import Evaluation
from models.engine.recipe import check_recipe, load_recipe
from models.engine.yaml12 import read_yaml
from stages.command import run


def main(arguments: list[str]) -> None:
    """Evaluate the trained networks of a run."""
    parser = argparse.ArgumentParser(prog="python -m stages.eval_dump", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    given = parser.parse_args(arguments)
    asked = load_recipe(given.recipe).model_dump(include={"evaluate", "metrics", "runtime"}, by_alias=True)
    trained = given.run / "model" / "recipe.yaml"
    recipe = check_recipe(read_yaml(trained) | asked, trained)
    networks = build_networks(recipe)
    for name, network in networks.items():
        load_weights(network, given.run / "model" / f"{name}.safetensors")
    shutil.rmtree(given.run / "dump", ignore_errors=True)
    Evaluation(recipe, networks, given.run / "dump", Accelerator(mixed_precision=recipe.train.precision)).write()


if __name__ == "__main__":
    sys.exit(run(main))
