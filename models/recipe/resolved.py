"""The sections that training reads, every default filled in: what is printed, and saved beside the weights."""

from models.base.yaml12 import to_yaml
from models.recipe.schema import Recipe

RESULT_SECTIONS = ("seed", "data", "networks", "losses", "steps", "train", "callbacks")
"""The sections that training reads."""


def resolved(recipe: Recipe) -> str:
    """Return the sections that training depends on as YAML, with all defaults filled in, and the facts of its data."""
    content = recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True)
    return to_yaml(content | ({"facts": recipe.facts} if recipe.facts else {}))
