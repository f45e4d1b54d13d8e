"""Reads a recipe and checks all of it before the first batch."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from models.base.annotations import with_stand_ins
from models.base.error_collector import ErrorCollector, check_numbers, validated
from models.base.yaml12 import read_yaml
from models.recipe.check_metrics import check_metrics
from models.recipe.completion import facts_of, with_data, with_facts
from models.recipe.other_systems import called_here
from models.recipe.schema import Recipe
from models.recipe.trial import short_training

PARTS = ("train", "evaluate", "predict", "metrics")
"""Parts to check. A stage looks up, and so imports, only the types of its own part; the train stage checks all."""


def check_schema(content: dict[str, Any], path: Path) -> Recipe:
    """Check a recipe's content against the schema alone; `path` is named in the messages.

    This takes no time, so commands do it before they import PyTorch, and only then check the whole (`check_recipe`).
    What is returned has no facts of the data yet.

    Raises:
        UserError: all faults of the schema, a line each, and what is not checked yet.
    """
    errors = ErrorCollector(path, hint=called_here)
    recipe = validated(Recipe, with_data(content, errors), errors)
    if recipe is None or errors.lines:
        errors.raise_any(f"{path}: types, their arguments and names are checked once this is mended")
    assert recipe is not None, "`validated` returned None without an error"
    return recipe


def load_recipe(path: Path, parts: Collection[str] = PARTS, facts: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe and check `parts` of it; the schema of all sections is always checked.

    `facts` are those of a trained model; by default they come from the training data (`completion.facts_of`).

    Raises:
        UserError: all errors, a line each.
    """
    return check_recipe(read_yaml(path), path, parts, facts)


def check_recipe(
    content: dict[str, Any], path: Path, parts: Collection[str] = PARTS, facts: Mapping[str, Any] | None = None
) -> Recipe:
    """Complete and check the content of a recipe; `path` is named in the messages. Otherwise as `load_recipe`.

    The training of a try is cut short (`trial.py`).
    """
    errors = ErrorCollector(path, hint=called_here)
    check_numbers(content, errors)
    errors.raise_any()
    content = with_data(content, errors)
    if facts is None:
        facts = facts_of(content, errors)
    content = with_facts(content, facts, parts)
    recipe: Recipe = validated(Recipe, content, errors) or with_stand_ins(Recipe, content)
    if not {"train", "evaluate", "predict"}.isdisjoint(parts):
        from models.recipe.check import RecipeCheck  # imports injectors, which `metrics` does not need

        RecipeCheck(recipe, errors).run(parts)
    if "metrics" in parts:
        check_metrics(recipe, errors)
    errors.raise_any()
    return short_training(recipe).with_facts(facts).read_from(path)
