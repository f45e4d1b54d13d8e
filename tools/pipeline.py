"""What `dvc.yaml` lists: the recipes of the DAG."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.base.error_collector import shown
from models.base.errors import UserError, nearest
from models.base.yaml12 import read_yaml

PIPELINE = Path("dvc.yaml")


def entries(name: str) -> dict[str, dict[str, Any]]:
    """Return the map of a name among `vars` of `dvc.yaml`, such as `recipes`; {} if there is none.

    Each entry is a map whose `params` is a text, the path of a params file.

    Raises:
        UserError: there is no readable `dvc.yaml`, or this part of it has another form.
    """
    if not PIPELINE.exists():
        raise UserError(f"{PIPELINE.absolute()}: no such file; go to the root of a project")
    variables = read_yaml(PIPELINE).get("vars")
    if not isinstance(variables, list | None):
        raise UserError(f"{PIPELINE}: vars: found {shown(variables)}; expected a list")
    merged: dict[str, dict[str, Any]] = {}
    for one in variables or ():
        part = one.get(name) if isinstance(one, Mapping) else None
        if not isinstance(part, Mapping | None):
            raise UserError(f"{PIPELINE}: {name}: found {shown(part)}; expected a map")
        for key, entry in (part or {}).items():
            if not isinstance(entry, Mapping):
                raise UserError(f"{PIPELINE}: {name}.{key}: found {shown(entry)}; expected a map with `params`")
            if not isinstance(entry.get("params"), str):
                wrong = shown(entry["params"]) if "params" in entry else "none"
                raise UserError(f"{PIPELINE}: {name}.{key}.params: found {wrong}; expected the path of a params file")
            merged[key] = dict(entry)
    return merged


def recipe_file(recipe: str) -> Path:
    """Return the params file of a recipe in `dvc.yaml`. Raises UserError if there is no such recipe."""
    recipes = entries("recipes")
    if recipe not in recipes:
        raise UserError(
            f"--recipe {recipe}: dvc.yaml has no such recipe{nearest(recipe, recipes)}; there are {', '.join(recipes)}"
        )
    return Path(recipes[recipe]["params"])
