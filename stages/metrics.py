"""Compute metrics and draw plots from a dump: `python -m stages.metrics RECIPE RUN METRICS PLOTS`."""

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
from models.report.metrics import compute_metrics, draw_pictures
from stages.command import run


def main(arguments: list[str]) -> None:
    """Score a run's dump, and draw its pictures and the curves of its history."""
    parser = argparse.ArgumentParser(prog="python -m stages.metrics", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    parser.add_argument("metrics", type=Path, help="JSON file to write")
    parser.add_argument("plots", type=Path, help="folder to write")
    args = parser.parse_args(arguments)
    dump = Dump(args.run / "dump")
    recipe = load_recipe(args.recipe, ["metrics"], dump.facts)
    metrics = json.dumps(compute_metrics(recipe, dump), indent=2)
    shutil.rmtree(args.plots, ignore_errors=True)
    draw_pictures(recipe, dump, args.plots / "pictures")
    train, validation = (pd.read_csv(args.run / "history" / f"{split}.csv") for split in ("train", "validation"))
    write_curves(train, validation, args.plots / "curves")
    draw_curves(train, validation, args.plots / "pictures" / "losses.png")
    write_text(args.metrics, metrics + "\n")
    print(metrics)


if __name__ == "__main__":
    sys.exit(run(main))
