"""What the page is about: the recipes of `dvc.yaml` in the folder where it was started."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Project:
    """A folder with `dvc.yaml`.

    Attributes:
        root: the folder; it is the current one.
        recipes: entries of the map `recipes` of `dvc.yaml`, by name.
    """

    root: Path
    recipes: Mapping[str, Mapping[str, Any]]

    def params(self, recipe: str) -> Path:
        """Return the params file of a recipe."""
        return Path(self.recipes[recipe]["params"])
