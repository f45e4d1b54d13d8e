"""The resolved recipe of a training, saved beside the weights and tracked: its sections with all defaults."""

from figura.base.yaml12 import to_yaml
from figura.recipe.dotted_keys import leaves
from figura.recipe.schema import Recipe

RESULT_SECTIONS = ("seed", "data", "networks", "losses", "steps", "train", "callbacks")
"""The sections that training reads."""


def settings(recipe: Recipe) -> dict[str, bool | int | float | str]:
    """Return the settings that training depends on by dotted key, for trackers: lists and null become text."""
    content = recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True)
    return {k: value if isinstance(value, bool | int | float | str) else str(value) for k, value in leaves(content)}


def resolved(recipe: Recipe) -> str:
    """Return the sections that training depends on as YAML, with all defaults filled in, and the facts of its data."""
    content = recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True)
    return to_yaml(content | ({"facts": recipe.facts} if recipe.facts else {}))
