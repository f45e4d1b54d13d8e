"""The figures of a dump: what the scores of a recipe make of it."""

from collections.abc import Mapping
from typing import Any

from models.engine.evaluating.dump import Dump
from models.engine.recipes.assemble import build_scores
from models.engine.recipes.schema import Recipe
from models.engine.scores import Bootstrap, Score

Figures = dict[str, dict[str, Any]]
"""By score and figure: a number, or `{value, low, high}`."""


def compute_figures(recipe: Recipe, dump: Dump, scores: Mapping[str, Score] | None = None) -> Figures:
    """Return what `metrics.scores` (or only those given) find in a dump, with the bootstrap of `metrics`."""
    bootstrap = Bootstrap(recipe.metrics.bootstrap, recipe.metrics.confidence, recipe.seed)
    chosen = build_scores(recipe) if scores is None else scores
    return {name: score(dump, bootstrap) for name, score in chosen.items()}


def flattened(figures: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return plain values by dotted names: `people.AP`, and `people.AP.low`, `people.AP.high` where it has an interval."""
    flat: dict[str, Any] = {}
    for key, value in figures.items():
        name = f"{prefix}{key}"
        if not isinstance(value, Mapping):
            flat[name] = value
        elif value.keys() == {"value", "low", "high"}:
            flat |= {name: value["value"], f"{name}.low": value["low"], f"{name}.high": value["high"]}
        else:
            flat |= flattened(value, f"{name}.")
    return flat
