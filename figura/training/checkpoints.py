"""Checkpoints of a running training: model folders `step-000500`, `step-001000`, ..., renamed when complete."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import nn

from figura.base.checksums import write_sums
from figura.base.files import replacing_folder, write_text
from figura.engine.weights import save_weights
from figura.recipe.resolved import resolved
from figura.recipe.schema import Recipe
from figura.recipe.trial import KEY, mark

STEP = re.compile(r"step-(\d+)")


class Checkpoints:
    """The folder `<run>/checkpoints`. It is not tracked; a new training empties it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, iteration: int, write: Callable[[Path], None]) -> None:
        """Call `write` on a hidden folder, then rename it; replaces an earlier checkpoint of the same iteration."""
        with replacing_folder(self.folder / f"step-{iteration:06d}") as hidden:
            write(hidden)

    def thin(self, newest: int | None) -> None:
        """Remove all but the newest checkpoints; with None, none."""
        steps = [path for path in models_in(self.folder) if step_of(path.name) is not None]
        for old in steps[:-newest] if newest else ():
            hidden = old.rename(old.with_name(f".{old.name}"))  # at once for who reads the folder
            shutil.rmtree(hidden, ignore_errors=True)

    def tidy(self) -> None:
        """Remove incomplete checkpoints of a killed training."""
        for left in self.folder.glob(".step-*"):
            shutil.rmtree(left, ignore_errors=True)

    def clear(self) -> None:
        """Remove every checkpoint."""
        shutil.rmtree(self.folder, ignore_errors=True)


def step_of(name: str) -> int | None:
    """Return the iteration in a checkpoint's name; None for other names."""
    match = STEP.fullmatch(name)
    return int(match[1]) if match else None


def models_in(folder: Path) -> list[Path]:
    """Return the visible folders in `folder`, complete or not: checkpoints by iteration, then others by name."""
    if not folder.is_dir():
        return []
    models = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(models, key=lambda path: (step_of(path.name) is None, step_of(path.name) or 0, path.name))


def write_model(folder: Path, networks: Mapping[str, nn.Module], recipe: Recipe, provenance: Mapping[str, str]) -> None:
    """Write `<network>.safetensors`, `recipe.yaml`, `provenance.json` and their `SHA256SUMS` into `folder`.

    The hash of the code is not included: it would make outputs with equal weights differ. The lock
    file and the log have it.
    """
    for name, network in networks.items():
        save_weights(network, folder / f"{name}.safetensors")
    write_text(folder / "recipe.yaml", resolved(recipe))
    trial = {KEY: mark(recipe)} if recipe.train.try_ else {}
    rest = trial | {key: value for key, value in provenance.items() if key not in ("recipe", "code")}
    write_text(folder / "provenance.json", json.dumps(rest, indent=2) + "\n")
    write_sums(folder)
