"""Computes a recipe's metrics from a dump."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models.base.error_collector import ErrorCollector
from models.dump import Dump
from models.recipe.check_metrics import ERROR_KEY
from models.recipe.schema import Recipe
from models.recipe.types import PICTURE, SCORE, build
from models.report.interfaces import Bootstrap, NotApplicableError, Picture, Score
from models.report.sheets import finish

Metrics = dict[str, dict[str, Any]]
"""By score and metric: a number, or `{value, low, high}`."""


def build_scores(recipe: Recipe) -> dict[str, Score]:
    """Construct `metrics.scores`, by name."""
    return {n: build(entry, SCORE, f"metrics.scores.{n}", recipe.path) for n, entry in recipe.metrics.scores.items()}


def build_pictures(recipe: Recipe) -> dict[str, Picture]:
    """Construct `metrics.pictures`, by name."""
    return {
        n: build(entry, PICTURE, f"metrics.pictures.{n}", recipe.path) for n, entry in recipe.metrics.pictures.items()
    }


def compute_metrics(
    recipe: Recipe, dump: Dump, scores: Mapping[str, Score] | None = None, say: Callable[[str], object] = print
) -> Metrics:
    """Apply `scores` (by default all of `metrics.scores`) to a dump, with the bootstrap of `metrics`.

    A score that does not apply to the data is left out, and `say` gets a line with the reason.

    Raises:
        UserError: a metric is NaN or infinite, or a score writes a key that DVC takes for a failure.
    """
    bootstrap = Bootstrap(recipe.metrics.bootstrap, recipe.metrics.confidence, recipe.seed)
    metrics: Metrics = {}
    for name, score in (build_scores(recipe) if scores is None else scores).items():
        try:
            metrics[name] = score(dump, bootstrap)
        except NotApplicableError as error:
            say(f"metrics.scores.{name}: left out: {error}")
    errors = ErrorCollector(recipe.path)
    for key, value in flattened(metrics).items():
        name, *inside = key.split(".")
        if isinstance(value, float) and not math.isfinite(value):
            why = "a score leaves out what it cannot compute"
            errors.add(f"metrics.scores.{name}", f"its metric {'.'.join(inside)!r} is {value}; {why}")
        if ERROR_KEY in inside:
            what = f"it writes the metric {'.'.join(inside).removesuffix('.low').removesuffix('.high')!r}"
            errors.add(
                f"metrics.scores.{name}",
                f"{what}; DVC takes metrics with a key {ERROR_KEY!r} for unreadable: rename it",
            )
    errors.raise_any()
    return metrics


def summarize(recipe: Recipe, metrics: Metrics, say: Callable[[str], object] = print) -> dict[str, dict[str, Any]]:
    """Return the numbers of `metrics.summary` by their short names: `{value, low, high, baseline}`.

    Metrics without an interval have no `low` and `high`, entries without `beside` no `baseline`. An entry whose score
    was left out is left out too, and `say` gets a line; a baseline's score that was left out gives no `baseline`.

    Raises:
        UserError: a score has no such metric; one line for each.
    """
    errors = ErrorCollector(recipe.path)
    summary: dict[str, dict[str, Any]] = {}
    for name, entry in recipe.metrics.summary.items():
        key = f"metrics.summary.{name}"
        estimate = _estimate(metrics, entry.metric, f"{key}.metric", errors)
        baseline = {} if entry.beside is None else _estimate(metrics, entry.beside, f"{key}.beside", errors)
        if estimate:
            summary[name] = estimate | ({"baseline": baseline["value"]} if baseline else {})
        elif entry.metric.partition(".")[0] not in metrics:
            say(f"{key}: left out, as its score is")
    errors.raise_any()
    return summary


def _estimate(metrics: Metrics, key: str, where: str, errors: ErrorCollector) -> dict[str, Any]:
    """Return the metric at a dotted key, `{value}` or `{value, low, high}`; nothing if its score was left out."""
    score, _, name = key.partition(".")
    if score not in metrics:
        return {}
    known = flattened(metrics[score])
    names = [one for one in known if not one.endswith((".low", ".high"))]
    if name not in names:
        errors.add_unknown(where, name, names, f"metric of {score!r}")
        return {}
    bounds = {end: known[f"{name}.{end}"] for end in ("low", "high") if f"{name}.{end}" in known}
    return {"value": known[name], **bounds}


def draw_pictures(
    recipe: Recipe, dump: Dump, folder: Path, header: str = "", say: Callable[[str], object] = print
) -> None:
    """Draw all of `metrics.pictures` into `folder`, but those that do not apply to the data, as `compute_metrics`.

    Each gets a line above it with the text `header`, if there is one. The folder is there even if all are left out:
    DVC expects every output.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in build_pictures(recipe).items():
        try:
            picture(dump, folder / f"{name}.png")
            finish(folder / f"{name}.png", header, picture.suffix)
        except NotApplicableError as error:
            say(f"metrics.pictures.{name}: left out: {error}")


def flattened(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return plain values by dotted names: `people.AP`, and with an interval also `people.AP.low`, `people.AP.high`."""
    flat: dict[str, Any] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if not isinstance(value, Mapping):
            flat[name] = value
        elif value.keys() == {"value", "low", "high"}:
            flat |= {name: value["value"], f"{name}.low": value["low"], f"{name}.high": value["high"]}
        else:
            flat |= flattened(value, f"{name}.")
    return flat
