"""Computes a recipe's metrics from a dump."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models.base.error_collector import ErrorCollector
from models.dump import Dump
from models.recipe.check_metrics import ERROR_KEY
from models.recipe.schema import Recipe
from models.recipe.types import PICTURE, SCORE, build
from models.report.interfaces import Bootstrap, NotApplicableError, Picture, Score

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
        UserError: a score writes a key that DVC takes for a failure.
    """
    bootstrap = Bootstrap(recipe.metrics.bootstrap, recipe.metrics.confidence, recipe.seed)
    metrics: Metrics = {}
    for name, score in (build_scores(recipe) if scores is None else scores).items():
        try:
            metrics[name] = score(dump, bootstrap)
        except NotApplicableError as error:
            say(f"metrics.scores.{name}: left out: {error}")
    errors = ErrorCollector(recipe.path)
    for key in flattened(metrics):
        name, *inside = key.split(".")
        if ERROR_KEY in inside:
            what = f"it writes the metric {'.'.join(inside).removesuffix('.low').removesuffix('.high')!r}"
            errors.add(
                f"metrics.scores.{name}",
                f"{what}; DVC takes metrics with a key {ERROR_KEY!r} for unreadable: rename it",
            )
    errors.raise_any()
    return metrics


def draw_pictures(recipe: Recipe, dump: Dump, folder: Path, say: Callable[[str], object] = print) -> None:
    """Draw all of `metrics.pictures` into `folder`, but those that do not apply to the data, as `compute_metrics`."""
    for name, picture in build_pictures(recipe).items():
        try:
            picture(dump, folder / f"{name}.png")
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
