"""What `dvc.yaml` lists: the recipes of the DAG."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.base.errors import UserError, nearest
from models.base.yaml12 import read_yaml

PIPELINE = Path("dvc.yaml")


def entries(name: str) -> dict[str, dict[str, Any]]:
    """Return the map of a name among `vars` of `dvc.yaml`, such as `recipes`; {} if there is none.

    Raises:
        UserError: there is no readable `dvc.yaml`.
    """
    if not PIPELINE.exists():
        raise UserError(f"{PIPELINE.absolute()}: no such file; go to the root of a project")
    variables = [one for one in read_yaml(PIPELINE).get("vars", []) if isinstance(one, Mapping)]
    return {key: dict(entry) for one in variables for key, entry in (one.get(name) or {}).items()}


def recipe_file(recipe: str) -> Path:
    """Return the params file of a recipe in `dvc.yaml`. Raises UserError if there is no such recipe."""
    recipes = entries("recipes")
    if recipe not in recipes:
        raise UserError(
            f"--recipe {recipe}: dvc.yaml has no such recipe{nearest(recipe, recipes)}; there are {', '.join(recipes)}"
        )
    return Path(recipes[recipe]["params"])
