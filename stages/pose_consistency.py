"""Let a trained pose network judge what another run drew.

Usage: python -m stages.pose_consistency RECIPE MODEL DRAWN RUN METRICS PLOTS

MODEL is a model folder, such as runs/pose/model, and DRAWN a dump, such as runs/vunet/dump. RECIPE has the sections
`evaluate`, `metrics` and `runtime` alone: the network runs over `evaluate.data`, whose argument `dump` is DRAWN, into
RUN/dump, and of this the metrics and pictures are made as by `stages.metrics`. Where DRAWN or the network is of a try,
so are the results.
"""

import argparse
import os
import sys
from pathlib import Path

from figura.base.exit_status import run
from figura.base.lock import hold
from figura.evaluation.judging import as_try, judging_content, refuse_other_joints
from figura.evaluation.model_folder import model_folder
from figura.live.causes import print_causes
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.untracked_files import refuse_untracked

READS = ("evaluate", "metrics")
"""Sections of the recipe whose types it loads."""
READS_OF_MODEL = ("data", "networks", "losses")
"""The same of the recipe that trained the model."""


def main(arguments: list[str]) -> None:
    """Evaluate a trained network by a recipe without training, and score what it gives."""
    parser = argparse.ArgumentParser(prog="python -m stages.pose_consistency", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as recipes/pose_consistency/vunet.yaml")
    parser.add_argument("model", type=Path, help="model folder of a trained network, such as runs/pose/model")
    parser.add_argument("drawn", type=Path, help="dump of the run that drew the pictures, such as runs/vunet/dump")
    parser.add_argument("run", type=Path, help="folder to write the dump into")
    parser.add_argument("metrics", type=Path, help="JSON file to write, and its namesake in full/")
    parser.add_argument("plots", type=Path, help="folder to write")
    args = parser.parse_args(arguments)
    print_causes()
    model = model_folder(args.model)
    content, facts = judging_content(args.recipe, model, args.drawn)
    check_schema(content, args.recipe)

    from figura.dump import Dump
    from figura.evaluation.trained import load_trained, refuse_foreign, write_dump
    from figura.report.results import write_results

    drawn = Dump(args.drawn)
    refuse_other_joints(drawn, facts, model)
    refuse_foreign(args.run / "dump")
    recipe = check_recipe(content, args.recipe, ["evaluate", "metrics"], facts)
    refuse_untracked(recipe)
    trained, networks = load_trained(model, recipe)
    if drawn.trial:
        trained = as_try(trained)
    if os.environ.get("RANK", "0") != "0":
        write_dump(trained, networks, args.run / "dump")
        return
    args.run.mkdir(parents=True, exist_ok=True)
    with hold(args.run):
        write_dump(trained, networks, args.run / "dump")
        header = f"{args.run.name} ({args.recipe})  read by {model}"
        write_results(recipe, Dump(args.run / "dump"), args.metrics, args.plots, header)


if __name__ == "__main__":
    sys.exit(run(main))
