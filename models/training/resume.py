"""Resume points: the state of a killed training, tensors in safetensors and the rest in JSON, written atomically."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.interfaces import Callback
from models.training.loss_log import LossLog

TREE, TENSORS = "state.json", "state.safetensors"


@dataclass(frozen=True)
class TrainState:
    """Everything that changes during training, except the iteration. Random numbers have no state (seeding.py)."""

    networks: Mapping[str, nn.Module]
    averages: Mapping[str, nn.Module]
    optimizers: Mapping[str, Any]
    scalers: Mapping[str, Any]
    loss_log: LossLog
    callbacks: Mapping[str, Callback]
    nonfinite: dict[str, int]

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all parts."""
        states = {key: {name: one.state_dict() for name, one in part.items()} for key, part in self._parts().items()}
        callbacks = {name: one.state_dict() for name, one in self.callbacks.items()}
        return {**states, "loss_log": self.loss_log.state_dict(), "callbacks": callbacks, "nonfinite": self.nonfinite}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo `state_dict`."""
        for key, part in self._parts().items():
            for name, one in part.items():
                one.load_state_dict(state[key][name])
        self.loss_log.load_state_dict(state["loss_log"])
        for name, callback in self.callbacks.items():
            callback.load_state_dict(state["callbacks"][name])
        self.nonfinite.clear()
        self.nonfinite.update(state["nonfinite"])

    def _parts(self) -> dict[str, Mapping[str, Any]]:
        return {
            "networks": self.networks, "averages": self.averages,
            "optimizers": self.optimizers, "scalers": self.scalers,
        }  # fmt: skip


@dataclass(frozen=True)
class ResumePoint:
    """One complete state on disk. `differs` names the provenance that this training does not share: `code`, ..."""

    folder: Path
    iteration: int
    differs: tuple[str, ...]

    def state(self) -> dict[str, Any]:
        """Read the state from disk."""
        tree = json.loads((self.folder / TREE).read_text(encoding="utf-8"))
        state: dict[str, Any] = unflatten(tree["state"], load_file(self.folder / TENSORS))
        return state


def flatten(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return `tree` (dictionaries, lists, tuples, plain values, tensors) as JSON values; tensors go to `tensors`.

    Dictionaries become lists of pairs, because an optimizer's state has integer keys.
    """
    if isinstance(tree, Tensor):
        tensors[path] = tree.detach().contiguous().cpu().clone()
        return {"tensor": path}
    if isinstance(tree, Mapping):
        return {"map": [[key, flatten(value, f"{path}/{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, (list, tuple)):
        parts = [flatten(value, f"{path}/{place}", tensors) for place, value in enumerate(tree)]
        return {"tuple" if isinstance(tree, tuple) else "list": parts}
    return tree


def unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Undo `flatten`."""
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "map":
        return {key: unflatten(part, tensors) for key, part in value}
    parts = [unflatten(part, tensors) for part in value]
    return tuple(parts) if kind == "tuple" else parts


def copied(tree: Any) -> Any:
    """Return a copy of `tree` with its tensors on the CPU."""
    tensors: dict[str, Tensor] = {}
    return unflatten(flatten(tree, "", tensors), tensors)


class ResumePoints:
    """The folder `<run>/resume` with the latest state and its provenance; beside it `<run>/resume-refused`.

    A state is written to a temporary folder, flushed, and renamed: a process killed at any moment leaves the last
    complete one. `provenance` maps what a state depends on to text. A state of another provenance is refused and moved
    to `resume-refused`, where nothing deletes it.
    """

    def __init__(self, folder: Path, provenance: Mapping[str, str]) -> None:
        self.folder, self.provenance = folder, dict(provenance)
        self.refused = folder.with_name(f"{folder.name}-refused")

    def save(self, iteration: int, state: Mapping[str, Any]) -> None:
        """Write the state after `iteration` updates and remove older ones."""
        temporary, final = self.folder / "writing", self.folder / f"{iteration:010d}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        tensors: dict[str, Tensor] = {}
        tree = {"provenance": self.provenance, "iteration": iteration, "state": flatten(state, "", tensors)}
        save_file(tensors, temporary / TENSORS)
        (temporary / TREE).write_text(json.dumps(tree), encoding="utf-8")
        for path in (temporary / TENSORS, temporary / TREE, temporary):
            _flush(path)
        if final.is_dir():  # of the same iteration: keep it, as the oldest, until the new one is in place
            shutil.rmtree(self.folder / "0", ignore_errors=True)
            final.rename(self.folder / "0")
        temporary.rename(final)
        _flush(self.folder)
        for older in self.folder.glob("[0-9]*"):
            if older != final:
                shutil.rmtree(older)

    def latest(self, anyway: bool = False) -> ResumePoint | None:
        """Return the latest state; with `anyway`, the furthest of all, including refused ones."""
        points = [self._read(folder) for folder in self._complete(self.folder)[-1:]]
        if anyway:
            points += [self._read(folder) for folder in self._complete(self.refused)]
        return max(points, key=lambda point: point.iteration, default=None)

    def refuse(self, point: ResumePoint) -> Path:
        """Move a state to `resume-refused`; return its new folder."""
        self.refused.mkdir(parents=True, exist_ok=True)
        numbered = (self.refused / f"{point.folder.name}-{n}" for n in count(2))
        place = next(place for place in chain([self.refused / point.folder.name], numbered) if not place.exists())
        point.folder.rename(place)
        return place

    def clear(self, resumed_from: Path | None) -> None:
        """Remove the states of this training and the one it resumed from; other refused states stay."""
        for folder in (self.folder, resumed_from):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def _read(self, folder: Path) -> ResumePoint:
        tree = json.loads((folder / TREE).read_text(encoding="utf-8"))
        differs = tuple(key for key, value in self.provenance.items() if tree.get("provenance", {}).get(key) != value)
        return ResumePoint(folder, tree["iteration"], differs)

    def _complete(self, folder: Path) -> list[Path]:
        """Return the folders with a complete state, oldest first; a kill during removal leaves incomplete ones."""
        folders = sorted(folder.glob("[0-9]*"))
        return [path for path in folders if all((path / name).is_file() for name in (TREE, TENSORS))]


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
