"""Compute metrics and draw plots from a dump: `python -m stages.metrics RECIPE RUN METRICS PLOTS`.

METRICS (`metrics/vunet.json`) gets the numbers of `metrics.summary`, and the file of the same name in the folder `full`
beside it (`metrics/full/vunet.json`) all figures. Those of a try stand below the key `try`, in both.
"""

import argparse
import sys
from pathlib import Path

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml
from figura.pipeline.causes import print_causes
from figura.pipeline.untracked_files import refuse_untracked
from figura.recipe.expansion import read_recipe
from figura.recipe.schema_check import check_schema, checked_for_metrics

READS = ("metrics",)  # sections of the recipe whose types it loads


def main(arguments: list[str]) -> None:
    """Score a run's dump, and draw its pictures and the curves of its history."""
    parser = argparse.ArgumentParser(prog="python -m stages.metrics", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    parser.add_argument("metrics", type=Path, help="JSON file to write, and its namesake in full/")
    parser.add_argument("plots", type=Path, help="folder to write")
    args = parser.parse_args(arguments)
    print_causes()
    content = read_yaml(args.recipe)
    check_schema(content, args.recipe)

    from figura.dump import Dump
    from figura.report.curves import draw_curves, read_histories, write_curves
    from figura.report.results import write_results
    from figura.report.verdicts import judge_curves, losses_to_judge

    dump = Dump(args.run / "dump")
    histories = read_histories(args.run) if (args.run / "history").exists() else None
    recipe = checked_for_metrics(content, args.recipe, dump.facts)
    refuse_untracked(recipe)
    step = "" if histories is None else f"  step {histories[0]['step'].max()}"
    write_results(recipe, dump, args.metrics, args.plots, f"{args.run.name} ({args.recipe}){step}")
    if histories is None:
        print(f"{args.run}: has no history, so it was not trained here: no curves")
        return
    write_curves(*histories, args.plots, "TRY " if dump.trial else "")
    draw_curves(*histories, args.plots / "pictures" / "losses.png", dump.trial)
    for line in [] if dump.trial else judge_curves(*histories, losses_to_judge(read_recipe(args.recipe))):
        print(line)


if __name__ == "__main__":
    sys.exit(run(main))
