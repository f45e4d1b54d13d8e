"""Check a recipe's content against the schema and complete it; types and their arguments are checked later."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from figura.base.error_collector import ErrorCollector
from figura.base.validation import validated
from figura.recipe.check_metrics import check_metrics
from figura.recipe.completion import facts_of, with_data, with_facts
from figura.recipe.expansion import expanded
from figura.recipe.other_systems import called_here
from figura.recipe.schema import Recipe
from figura.recipe.shares import in_iterations
from figura.recipe.trial import short_training


def check_schema(content: dict[str, Any], path: Path) -> Recipe:
    """Check a recipe's content against only the schema; messages refer to `path`.

    This is fast, so commands do it before they import PyTorch and run the full check (`load.check_recipe`). The result
    has no facts of the data yet.

    Raises:
        UserError: all schema errors, one per line, and what is not checked yet.
    """
    errors = ErrorCollector(path, hint=called_here)
    recipe = validated(Recipe, with_data(in_iterations(expanded(content, errors), errors), errors), errors)
    if recipe is None or errors.lines:
        errors.raise_any(f"{path}: types, their arguments and names are checked once this is mended")
    assert recipe is not None, "`validated` returned None without an error"
    return recipe


def checked(
    content: dict[str, Any], path: Path, parts: Collection[str], facts: Mapping[str, Any] | None,
    check: Callable[[Recipe, ErrorCollector, Collection[str]], None],
) -> Recipe:  # fmt: skip
    """Return the completed recipe after `check` of its parts, which adds errors to the collector.

    `facts` are those of a trained model; by default they come from the training data (`completion.facts_of`). The
    training of a try is shortened (`trial.py`).

    Raises:
        UserError: all errors, one per line; if some are of the schema, only these.
    """
    errors = ErrorCollector(path, hint=called_here)
    content = with_data(in_iterations(expanded(content, errors), errors), errors)
    validated(Recipe, content, errors)
    errors.raise_any()
    if facts is None:
        facts = facts_of(content, errors)
    recipe = validated(Recipe, with_facts(content, facts, parts), errors)
    errors.raise_any()
    assert recipe is not None, "`validated` returned None without an error"
    check(recipe.model_copy(deep=True), errors, parts)
    errors.raise_any()
    return short_training(recipe).read_from(path, facts)


def checked_for_metrics(content: dict[str, Any], path: Path, facts: Mapping[str, Any]) -> Recipe:
    """Complete and check only the metrics of a recipe's content. Raises UserError with all errors."""
    return checked(content, path, ["metrics"], facts, lambda recipe, errors, _: check_metrics(recipe, errors))
