"""The state from which a killed training goes on: tensors in safetensors, the rest in JSON, written whole or not at all."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.engine.callbacks import Callback
from models.engine.training.history import History

TREE, TENSORS = "state.json", "state.safetensors"


@dataclass(frozen=True)
class Restorable:
    """All that changes while a recipe is trained, but for the iteration; randomness has no state (seeding.py)."""

    networks: Mapping[str, nn.Module]
    averages: Mapping[str, nn.Module]
    optimizers: Mapping[str, Any]
    scalers: Mapping[str, Any]
    history: History
    callbacks: Mapping[str, Callback]
    nonfinite: dict[str, int]

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all of it."""
        states = {key: {name: one.state_dict() for name, one in part.items()} for key, part in self._parts().items()}
        callbacks = {name: one.state_dict() for name, one in self.callbacks.items()}
        rest = {"history": self.history.state_dict(), "callbacks": callbacks, "nonfinite": self.nonfinite}
        return {**states, **rest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo `state_dict`."""
        for key, part in self._parts().items():
            for name, one in part.items():
                one.load_state_dict(state[key][name])
        self.history.load_state_dict(state["history"])
        for name, callback in self.callbacks.items():
            callback.load_state_dict(state["callbacks"][name])
        self.nonfinite.clear()
        self.nonfinite.update(state["nonfinite"])

    def _parts(self) -> dict[str, Mapping[str, Any]]:
        return {
            "networks": self.networks, "averages": self.averages, "optimizers": self.optimizers, "scalers": self.scalers,
        }  # fmt: skip


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
    """Return a copy of `tree`, its tensors in the memory of the CPU."""
    tensors: dict[str, Tensor] = {}
    return unflatten(flatten(tree, "", tensors), tensors)


class ResumePoints:
    """Folder `<run>/resume`: one complete state at a time, and who made it.

    A state is written to a temporary folder, flushed, and renamed, so that a process killed at any moment leaves the last
    complete one. `made_by` maps what a state depends on to text; a state made by something else is refused.
    """

    def __init__(self, folder: Path, made_by: Mapping[str, str]) -> None:
        self.folder, self.made_by = folder, dict(made_by)

    def save(self, iteration: int, state: Mapping[str, Any]) -> None:
        """Write the state after `iteration` updates and drop older ones."""
        temporary, final = self.folder / "writing", self.folder / f"{iteration:010d}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        tensors: dict[str, Tensor] = {}
        tree = {"made_by": self.made_by, "iteration": iteration, "state": flatten(state, "", tensors)}
        save_file(tensors, temporary / TENSORS)
        (temporary / TREE).write_text(json.dumps(tree), encoding="utf-8")
        for path in (temporary / TENSORS, temporary / TREE, temporary):
            _flush(path)
        if final.is_dir():  # of the same iteration: findable, as the oldest, until the new one stands
            shutil.rmtree(self.folder / "0", ignore_errors=True)
            final.rename(self.folder / "0")
        temporary.rename(final)
        _flush(self.folder)
        for older in self.folder.glob("[0-9]*"):
            if older != final:
                shutil.rmtree(older)

    def load(self) -> tuple[int, dict[str, Any]] | str | None:
        """Return (iteration, state), or the reason why what is there cannot be used, or None when nothing is there."""
        complete = self._complete()
        if not complete:
            return None
        tree = json.loads((complete[-1] / TREE).read_text(encoding="utf-8"))
        changed = [key for key, value in self.made_by.items() if tree["made_by"].get(key) != value]
        if changed:
            return f"the state of iteration {tree['iteration']} was made by another {', '.join(changed)}"
        return tree["iteration"], unflatten(tree["state"], load_file(complete[-1] / TENSORS))

    def clear(self) -> None:
        """Remove every state."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _complete(self) -> list[Path]:
        """Return the states, oldest first; a process killed while it removes one leaves a folder that is none."""
        folders = sorted(self.folder.glob("[0-9]*"))
        return [path for path in folders if all((path / name).is_file() for name in (TREE, TENSORS))]


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
