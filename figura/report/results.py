"""The files that a stage computes from a dump: figures as JSON, and pictures."""

import hashlib
import json
import shutil
from pathlib import Path

from figura.base.files import tidy, write_text
from figura.dump import EXAMPLES, Dump
from figura.recipe.schema import Recipe
from figura.recipe.trial import KEY, short_metrics
from figura.report.metrics import compute_metrics, draw_pictures, summarize


def write_results(recipe: Recipe, dump: Dump, metrics: Path, plots: Path, header: str) -> None:
    """Write `metrics` (`metrics/vunet.json`), its namesake in `full/`, and the folder `plots`/pictures; print figures.

    `plots` is emptied first. `header` is drawn above each picture, with the hash of the dump. The figures of a try are
    under the key `try`.

    Raises:
        UserError: see `compute_metrics`, `summarize` and `draw_pictures`.
    """
    if dump.trial:
        print(dump.trial, flush=True)
        recipe = short_metrics(recipe)
    figures = compute_metrics(recipe, dump)
    summary = summarize(recipe, figures)
    shutil.rmtree(plots, ignore_errors=True)
    mark = f"{dump.trial}: " if dump.trial else ""
    header = f"{mark}{header}  dump {hash_of(dump.read(EXAMPLES))[:8]}"
    draw_pictures(recipe, dump, plots / "pictures", header)
    for path, content in ((metrics.parent / "full" / metrics.name, figures), (metrics, summary)):
        text = json.dumps({KEY: content} if dump.trial else content, indent=2, allow_nan=False)
        tidy(path)
        write_text(path, text + "\n")
    for name, entry in summary.items():
        print(f"{mark}{name}: " + ", ".join(f"{key} {number:.4g}" for key, number in entry.items()))


def hash_of(table: bytes) -> str:
    """Return the MD5 of a dump's table: it identifies a model, and unlike a commit, is the same for equal results."""
    return hashlib.md5(table, usedforsecurity=False).hexdigest()
