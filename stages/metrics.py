"""Compute metrics and draw plots from a dump: `python -m stages.metrics RECIPE RUN METRICS PLOTS`.

METRICS (`metrics/vunet.json`) gets the numbers of `metrics.summary`, and the file of the same name in the folder `full`
beside it (`metrics/full/vunet.json`) all figures. Those of a try stand below the key `try`, in both.
"""

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path

from models.base.files import tidy, write_text
from models.base.yaml12 import read_yaml
from models.recipe.load import check_recipe, check_schema
from models.recipe.trial import KEY, short_metrics
from stages.command import run
from stages.dependencies import refuse_untracked


def main(arguments: list[str]) -> None:
    """Score a run's dump, and draw its pictures and the curves of its history."""
    parser = argparse.ArgumentParser(prog="python -m stages.metrics", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    parser.add_argument("metrics", type=Path, help="JSON file to write, and its namesake in full/")
    parser.add_argument("plots", type=Path, help="folder to write")
    args = parser.parse_args(arguments)
    content = read_yaml(args.recipe)
    check_schema(content, args.recipe)

    from models.dump import EXAMPLES, Dump
    from models.report.curves import draw_curves, read_histories, write_curves
    from models.report.metrics import compute_metrics, draw_pictures, summarize

    dump, (train, validation) = Dump(args.run / "dump"), read_histories(args.run)
    recipe = check_recipe(content, args.recipe, ["metrics"], dump.facts)
    refuse_untracked(recipe)
    if dump.trial:
        print(dump.trial, flush=True)
        recipe = short_metrics(recipe)
    metrics = compute_metrics(recipe, dump)
    summary = summarize(recipe, metrics)
    shutil.rmtree(args.plots, ignore_errors=True)
    mark, digest = f"{dump.trial}: " if dump.trial else "", hash_of(dump.read(EXAMPLES))
    header = f"{mark}{args.run.name} ({args.recipe})  step {train['step'].max()}  dump {digest[:8]}"
    draw_pictures(recipe, dump, args.plots / "pictures", header)
    write_curves(train, validation, args.plots, "TRY " if dump.trial else "")
    draw_curves(train, validation, args.plots / "pictures" / "losses.png", dump.trial)
    for path, content in ((args.metrics.parent / "full" / args.metrics.name, metrics), (args.metrics, summary)):
        text = json.dumps({KEY: content} if dump.trial else content, indent=2, allow_nan=False)
        tidy(path)
        write_text(path, text + "\n")
    for name, entry in summary.items():
        print(f"{mark}{name}: " + ", ".join(f"{key} {number:.4g}" for key, number in entry.items()))


def hash_of(table: bytes) -> str:
    """Return the MD5 of a dump's table: it tells models apart, and unlike a commit it is the same for equal results."""
    return hashlib.md5(table, usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    sys.exit(run(main))
