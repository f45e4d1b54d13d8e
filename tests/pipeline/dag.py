"""What dvc.yaml and data/params.yaml list: recipes, datasets, stages; from here tests know of a new recipe."""

from pathlib import Path
from typing import Any

from models.base.yaml12 import read_yaml

ROOT = Path(__file__).parents[2]
OF_A_RECIPE = ("train", "eval-dump", "metrics")


def recipes(folder: Path = ROOT) -> dict[str, dict[str, str]]:
    """Return the entries of the map `recipes` of a project, by name: `params`, `data` and folders of code."""
    variables = read_yaml(folder / "dvc.yaml")["vars"]
    (entries,) = (one["recipes"] for one in variables if isinstance(one, dict) and "recipes" in one)
    return dict(entries)


def datasets(folder: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Return the datasets of a project, by name."""
    return dict(read_yaml(folder / "data/params.yaml")["datasets"])


def stages_of(recipe: str) -> set[str]:
    """Return the stages of one recipe."""
    return {f"{stage}@{recipe}" for stage in OF_A_RECIPE}


def stages(folder: Path = ROOT) -> set[str]:
    """Return all stages of a project."""
    prepared = {f"prepare@{name}" for name in datasets(folder)}
    return prepared.union(*(stages_of(name) for name in recipes(folder)))
