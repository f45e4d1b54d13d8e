"""Reads a recipe and checks all of it before the first batch: types, arguments, and who provides which name to whom."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.engine.errors import UserError
from models.engine.problems import Problems, validated
from models.engine.recipes.recipe_check import RecipeCheck
from models.engine.recipes.schema import Declaration, Recipe
from models.engine.recipes.slots import DATASET
from models.engine.recipes.types import find_type
from models.engine.yaml12 import read_yaml, to_yaml

RESULT_SECTIONS = ("seed", "data", "networks", "losses", "steps", "train", "callbacks")


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe.

    Raises:
        UserError: everything that is wrong with it, a line each.
    """
    return check_recipe(read_yaml(path), path)


def check_recipe(content: dict[str, Any], path: Path) -> Recipe:
    """Check the content of a recipe; `path` is named in the messages. Raises as `load_recipe`."""
    problems = Problems(path)
    recipe = validated(Recipe, content, problems)
    if recipe is not None:
        RecipeCheck(recipe, problems).run()
    problems.raise_any()
    if recipe is None:
        raise UserError(f"{path}: not a recipe")
    return recipe


def resolved(recipe: Recipe) -> str:
    """Return the sections that training depends on as YAML, every default filled in."""
    return to_yaml(recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True))


def batch_names(entries: Mapping[str, Declaration]) -> list[str]:
    """Return the names that every one of these datasets provides, in the order of the first."""
    provided = [_provided(entry) for entry in entries.values()]
    return [name for name in provided[0] if all(name in others for others in provided)]


def partial_names(recipe: Recipe) -> frozenset[str]:
    """Return the names that only some datasets of a split provide: a loss that reads one counts where it is there."""
    found: set[str] = set()
    for entries in (recipe.data.train, recipe.data.validation):
        provided = [set(_provided(entry)) for entry in entries.values()]
        found |= set[str]().union(*provided) - provided[0].intersection(*provided)
    return frozenset(found)


def _provided(entry: Declaration) -> tuple[str, ...]:
    kind: Any = find_type(entry.type, DATASET, "", Problems(Path()))
    return tuple(kind.provides(entry.arguments))
