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
    return entries_in(read_yaml(PIPELINE), name, PIPELINE)


def entries_in(content: Mapping[str, Any], name: str, file: Path) -> dict[str, dict[str, Any]]:
    """Return what `entries` returns, of the content of a `dvc.yaml` that is at `file`. Raises UserError as it does."""
    variables = content.get("vars")
    if not isinstance(variables, list | None):
        raise UserError(f"{file}: vars: found {shown(variables)}; expected a list")
    found: dict[str, dict[str, Any]] = {}
    for one in variables or ():
        entries = one.get(name) if isinstance(one, Mapping) else None
        if not isinstance(entries, Mapping | None):
            raise UserError(f"{file}: {name}: found {shown(entries)}; expected a map")
        for key, entry in (entries or {}).items():
            if not isinstance(entry, Mapping):
                raise UserError(f"{file}: {name}.{key}: found {shown(entry)}; expected a map with `params`")
            if not isinstance(entry.get("params"), str):
                wrong = shown(entry["params"]) if "params" in entry else "none"
                raise UserError(f"{file}: {name}.{key}.params: found {wrong}; expected the path of a params file")
            found[key] = dict(entry)
    return found


def recipe_file(recipe: str) -> Path:
    """Return the params file of a recipe in `dvc.yaml`. Raises UserError if there is no such recipe."""
    recipes = entries("recipes")
    if recipe not in recipes:
        raise UserError(
            f"--recipe {recipe}: dvc.yaml has no such recipe{nearest(recipe, recipes)}; there are {', '.join(recipes)}"
        )
    return Path(recipes[recipe]["params"])
