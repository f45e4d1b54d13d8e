"""Read a recipe and check all of it before the first batch."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from figura.base.error_collector import ErrorCollector
from figura.base.yaml12 import read_yaml
from figura.recipe.check_metrics import check_metrics
from figura.recipe.schema import Recipe
from figura.recipe.schema_check import checked

ALL_PARTS = ("train", "evaluate", "predict", "metrics")
"""Parts to check. A stage looks up, and thus imports, only the types of its part; the train stage checks all."""


def load_recipe(path: Path, parts: Collection[str] = ALL_PARTS, facts: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe and check `parts` of it; the schema of all sections is always checked.

    `facts` are those of a trained model; by default they come from the training data (`completion.facts_of`).

    Raises:
        UserError: all errors, one per line.
    """
    return check_recipe(read_yaml(path), path, parts, facts)


def check_recipe(
    content: dict[str, Any], path: Path, parts: Collection[str] = ALL_PARTS, facts: Mapping[str, Any] | None = None
) -> Recipe:
    """Complete and check a recipe's content; otherwise like `load_recipe`. Messages refer to `path`."""
    return checked(content, path, parts, facts, _check)


def _check(recipe: Recipe, errors: ErrorCollector, parts: Collection[str]) -> None:
    if not {"train", "evaluate", "predict"}.isdisjoint(parts):
        from figura.base.seeding import random_kept  # imports PyTorch
        from figura.recipe.check import RecipeCheck

        with random_kept():
            RecipeCheck(recipe, errors).run(parts)
    if "metrics" in parts:
        check_metrics(recipe, errors)
