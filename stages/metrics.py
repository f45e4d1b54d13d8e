"""Compute figures and draw pictures from a dump: `python -m stages.metrics RECIPE RUN METRICS PLOTS`."""

import argparse
import json
import shutil
import sys
from pathlib import Path

import pandas as pd

from models.base.files import write_text
from models.dump import Dump
from models.recipe.load import load_recipe
from models.report.curves import draw_curves, write_curves
from models.report.metrics import build_pictures, compute_metrics
from stages.command import run


def main(arguments: list[str]) -> None:
    """Score a run's dump and draw it, with the curves of its history."""
    parser = argparse.ArgumentParser(prog="python -m stages.metrics", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    parser.add_argument("metrics", type=Path, help="JSON file to write")
    parser.add_argument("plots", type=Path, help="folder to write")
    given = parser.parse_args(arguments)
    recipe = load_recipe(given.recipe, ["metrics"])
    dump = Dump(given.run / "dump")
    figures = compute_metrics(recipe, dump)
    shutil.rmtree(given.plots, ignore_errors=True)
    for name, picture in build_pictures(recipe).items():
        picture(dump, given.plots / "pictures" / f"{name}.png")
    train, validation = (pd.read_csv(given.run / "history" / f"{split}.csv") for split in ("train", "validation"))
    write_curves(train, validation, given.plots / "curves")
    draw_curves(train, validation, given.plots / "pictures" / "losses.png")
    write_text(given.metrics, json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    sys.exit(run(main))
