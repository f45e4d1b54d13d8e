"""The files that a stage computes from a dump: figures as JSON, and pictures."""

import json
import shutil
from pathlib import Path

from figura.base.error_collector import ErrorCollector
from figura.base.files import md5, tidy, write_text
from figura.dump import EXAMPLES, Dump
from figura.recipe.check_metrics import GAINS
from figura.recipe.schema import Recipe
from figura.recipe.trial import KEY, short_metrics
from figura.report.metrics import compute_metrics, draw_pictures, flattened, gains, summarize
from figura.report.verdicts import verdicts

MOST_SHOWN = 8  # numbers that are printed if the summary has none


def write_results(recipe: Recipe, dump: Dump, metrics: Path, plots: Path, header: str) -> None:
    """Write `metrics` (`metrics/vunet.json`), its namesake in `full/`, and the folder `plots`/pictures; print figures.

    `plots` is emptied first. `header` is drawn above each picture, with the hash of the dump. The figures of a try are
    under the key `try`.

    A score or picture that fails is an error after all others have been written.

    Raises:
        UserError: see `compute_metrics`, `summarize` and `draw_pictures`.
    """
    if dump.trial:
        print(dump.trial, flush=True)
        recipe = short_metrics(recipe)
    errors = ErrorCollector(recipe.path)
    figures = compute_metrics(recipe, dump, errors=errors)
    summary, better = summarize(recipe, figures), gains(recipe, figures)
    figures |= {GAINS: better} if better else {}
    shutil.rmtree(plots, ignore_errors=True)
    mark = f"{dump.trial}: " if dump.trial else ""
    # the hash identifies a model, and unlike a commit, is the same for equal results
    header = f"{mark}{header}  dump {md5(dump.read(EXAMPLES))[:8]}"
    draw_pictures(recipe, dump, plots / "pictures", header, errors=errors)
    full = metrics.parent / "full" / metrics.name
    for path, content in ((full, figures), (metrics, summary)):
        text = json.dumps({KEY: content} if dump.trial else content, indent=2, allow_nan=False)
        tidy(path)
        write_text(path, text + "\n")
    said = {} if dump.trial else verdicts(figures)
    for name, entry in summary.items():
        parts = [*(f"{key} {number:.4g}" for key, number in entry.items()), *([said[name]] if name in said else [])]
        print(f"{mark}{name}: {', '.join(parts)}")
    if not summary and figures:
        values = [f"{name} {value:.4g}" for name, value in flattened(figures).items() if isinstance(value, float)]
        shown = ", ".join([one for one in values if not one.split()[0].endswith((".low", ".high"))][:MOST_SHOWN])
        print(f"{mark}metrics.summary: none of its metrics could be computed; {full} has others, such as {shown}")
    errors.raise_any()
