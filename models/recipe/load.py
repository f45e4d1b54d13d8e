"""Reads a recipe and checks all of it before the first batch."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from models.base.error_collector import ErrorCollector, validated
from models.base.errors import UserError
from models.base.yaml12 import read_yaml
from models.recipe.check_metrics import check_metrics
from models.recipe.schema import Recipe

PARTS = ("train", "evaluate", "predict", "metrics")
"""Parts to check. A stage looks up, and so imports, only the types of its own part; the train stage checks all."""


def load_recipe(path: Path, parts: Collection[str] = PARTS) -> Recipe:
    """Read a recipe and check `parts` of it; the schema of all sections is always checked.

    Raises:
        UserError: all errors, a line each.
    """
    return check_recipe(read_yaml(path), path, parts)


def check_recipe(content: dict[str, Any], path: Path, parts: Collection[str] = PARTS) -> Recipe:
    """Check the content of a recipe; `path` is named in the messages. Raises as `load_recipe`."""
    errors = ErrorCollector(path)
    recipe = validated(Recipe, content, errors)
    if recipe is not None and not {"train", "evaluate", "predict"}.isdisjoint(parts):
        from models.recipe.check import RecipeCheck  # imports injectors, which `metrics` does not need

        RecipeCheck(recipe, errors).run(parts)
    if recipe is not None and "metrics" in parts:
        check_metrics(recipe, errors)
    errors.raise_any()
    if recipe is None:
        raise UserError(f"{path}: not a recipe")
    return recipe
