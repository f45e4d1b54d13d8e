"""What dvc.yaml and data/params.yaml list: recipes, datasets, stages; from here tests know of a new recipe."""

from pathlib import Path
from typing import Any

from figura.base.yaml12 import read_yaml

ROOT = Path(__file__).parents[2]
CODE = "stages/dvc.yaml:code"
OF_A_RECIPE = ("train", "eval-dump", "metrics")


def recipes(folder: Path = ROOT) -> dict[str, dict[str, str]]:
    """Return the entries of the map `recipes` of a project, by name: `params` and `data`."""
    return _map("recipes", folder)


def consistency(folder: Path = ROOT) -> dict[str, dict[str, str]]:
    """Return the entries of the map `pose_consistency` of a project, by whose pictures are judged."""
    return _map("pose_consistency", folder)


def _map(name: str, folder: Path) -> dict[str, dict[str, str]]:
    variables = read_yaml(folder / "dvc.yaml")["vars"]
    return next((dict(one[name]) for one in variables if isinstance(one, dict) and name in one), {})


def datasets(folder: Path = ROOT) -> dict[str, dict[str, Any]]:
    return dict(read_yaml(folder / "data/params.yaml")["datasets"])


def stages_of(recipe: str) -> set[str]:
    return {f"{stage}@{recipe}" for stage in OF_A_RECIPE}


def judging(recipe: str, folder: Path = ROOT) -> set[str]:
    """Return the stages that judge the pictures of a recipe."""
    return {f"pose-consistency@{recipe}"} & {f"pose-consistency@{name}" for name in consistency(folder)}


def stages(folder: Path = ROOT) -> set[str]:
    """Return the stages of `dvc.yaml`, which has all but `CODE`."""
    first = {f"prepare@{name}" for name in datasets(folder)}
    return first.union(*(stages_of(name) | judging(name, folder) for name in recipes(folder)))
