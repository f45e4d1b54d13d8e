"""Resume points: the training state, with tensors in safetensors, the rest in JSON, and SHA-256 digests.

They are written atomically, and read only if the digests match.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from figura.base.checksums import damage, write_sums
from figura.base.errors import REPRO, UserError
from figura.base.files import read_json
from figura.engine.weights import save_tensors
from figura.interfaces import Callback, Injector
from figura.training.best import BestWeights
from figura.training.loss_log import LossLog

TREE, TENSORS = "state.json", "state.safetensors"
SEVERAL = "several machines"


@dataclass
class TrainState:
    """Everything that changes during training, except the iteration. Random numbers have no state (see seeding.py).

    `injectors` are those of each step. `nonfinite` has the iterations of the last updates in a row that were not
    finite, by step. `resumed` says which resume point with other provenance this training goes on from. `machine` is
    where it runs, or `SEVERAL` if it was continued elsewhere.
    """

    networks: Mapping[str, nn.Module]
    averages: Mapping[str, nn.Module]
    optimizers: Mapping[str, Any]
    scalers: Mapping[str, Any]
    loss_log: LossLog
    callbacks: Mapping[str, Callback]
    injectors: Mapping[str, Mapping[str, Injector]]
    best: BestWeights
    nonfinite: dict[str, list[int]] = field(default_factory=dict)
    resumed: str | None = None
    machine: str = ""

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all parts."""
        states = {key: {name: one.state_dict() for name, one in part.items()} for key, part in self._parts().items()}
        injectors = {
            step: {name: one.state_dict() for name, one in own.items()} for step, own in self.injectors.items()
        }
        return {
            **states, "loss_log": self.loss_log.state_dict(), "injectors": injectors, "nonfinite": self.nonfinite,
            "resumed": self.resumed, "machine": self.machine, "best": self.best.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any], prefix: Mapping[str, Any] | None = None) -> None:
        """Restore what `state_dict` returned; with a `prefix` (recipe/prefix.py), only what has run in it."""
        for key, part in self._parts().items():
            section = "networks" if key in ("networks", "averages") else "steps"
            for name, one in part.items():
                if prefix is None or key == "callbacks" or name in prefix[section]:
                    one.load_state_dict(state[key][name])
        self.loss_log.load_state_dict(state["loss_log"])
        saved = state.get("injectors", {})  # earlier versions had none
        for step, own in self.injectors.items():
            ran = own if prefix is None else prefix["steps"].get(step, {"injectors": {}})["injectors"]
            for name in own.keys() & ran.keys():
                own[name].load_state_dict(saved.get(step, {}).get(name, {}))
        self.best.load_state_dict(state.get("best", {}), prefix)  # earlier versions had none
        noted = state["nonfinite"].items()
        self.nonfinite = {name: row for name, row in noted if isinstance(row, list)}  # earlier versions had counts
        self.resumed = state["resumed"]
        self.machine = self.machine if state.get("machine") == self.machine else SEVERAL

    def _parts(self) -> dict[str, Mapping[str, Any]]:
        return {
            "networks": self.networks, "averages": self.averages, "optimizers": self.optimizers,
            "scalers": self.scalers, "callbacks": self.callbacks,
        }  # fmt: skip


@dataclass(frozen=True)
class ResumePoint:
    """One complete state on disk. `differs` names the provenance keys that do not match this training: `code`, ..."""

    folder: Path
    iteration: int
    differs: tuple[str, ...]

    def state(self) -> dict[str, Any]:
        """Read the state from disk."""
        state: dict[str, Any] = unflatten(read_json(self.folder / TREE)["state"], load_file(self.folder / TENSORS))
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
        parts = [flatten(value, f"{path}/{index}", tensors) for index, value in enumerate(tree)]
        return {"tuple" if isinstance(tree, tuple) else "list": parts}
    return tree


def unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Invert `flatten`."""
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "map":
        return {key: unflatten(part, tensors) for key, part in value}
    parts = [unflatten(part, tensors) for part in value]
    return tuple(parts) if kind == "tuple" else parts


class ResumePoints:
    """The folder `<run>/resume` with the two latest states and their provenance; beside it `<run>/resume-refused`.

    A state is written to a temporary folder, flushed, and renamed: a process killed at any time leaves the last
    complete state. The previous state is a backup against disk damage; it is removed before a new one is written, so
    there are never more than two. `provenance` maps what a state depends on to text. States with different provenance
    and damaged states are moved to `resume-refused`, where they are never deleted.
    """

    def __init__(self, folder: Path, provenance: Mapping[str, str]) -> None:
        self.folder, self.provenance = folder, dict(provenance)
        self.refused = folder.with_name(f"{folder.name}-refused")

    def save(self, iteration: int, state: Mapping[str, Any]) -> None:
        """Write the state after `iteration` updates; of the earlier states, keep only the last.

        Raises:
            UserError: the disk is full or not writable; the last state is kept.
        """
        final, tensors = self.folder / f"{iteration:010d}", dict[str, Tensor]()
        tree = {"provenance": self.provenance, "iteration": iteration, "state": flatten(state, "", tensors)}
        text = json.dumps(tree).encode()
        try:
            self._write(final, tensors, text)
        except OSError as error:
            shutil.rmtree(self.folder / "writing", ignore_errors=True)
            need = len(text) + sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
            last = [int(path.name) for path in self._states(self.folder)][-1:]
            stays = f"the state of iteration {last[0]} stays, and `{REPRO}` goes on from it" if last else ""
            raise UserError(
                f"{final}: cannot be written: {error.strerror or error}; a state needs {need / 1e6:,.1f} MB, and there "
                f"is room for two; {stays or 'no earlier state was written'}"
            ) from None

    def _write(self, final: Path, tensors: dict[str, Tensor], text: bytes) -> None:
        temporary = self.folder / "writing"
        for path in (temporary, self.folder / "removing"):
            shutil.rmtree(path, ignore_errors=True)
        for older in self._states(self.folder)[:-1]:
            self._remove(older)
        temporary.mkdir(parents=True)
        save_tensors(tensors, temporary / TENSORS)
        (temporary / TREE).write_bytes(text)
        write_sums(temporary)
        for path in (temporary / TENSORS, temporary / TREE, temporary):
            _flush(path)
        before = [path for path in self._states(self.folder) if path.name < final.name]
        if final.is_dir():  # same iteration: keep it, as the oldest, until the new one is in place
            final.rename(self.folder / "0")
        temporary.rename(final)
        _flush(self.folder)
        for other in self._states(self.folder):
            if other not in (final, *before):
                self._remove(other)

    def latest_folder(self) -> Path:
        """Return the folder of the latest state, unread."""
        return self._states(self.folder)[-1]

    def inspect(self, anyway: bool = False) -> tuple[ResumePoint | None, dict[Path, str]]:
        """Return the latest intact state, and what is wrong with each later one, by folder.

        With `anyway`, the state is the furthest of all, including refused ones.
        """
        damaged, points = dict[Path, str](), list[ResumePoint]()
        for folder in reversed(self._states(self.folder)):
            if (why := damage(folder)) is None:
                points.append(self._read(folder))
                break
            damaged[folder] = why
        if anyway:
            points += [self._read(folder) for folder in self._states(self.refused) if damage(folder) is None]
        return max(points, key=lambda point: point.iteration, default=None), damaged

    def intact(self) -> list[ResumePoint]:
        """Return the intact states, the earlier first."""
        return [self._read(folder) for folder in self._states(self.folder) if damage(folder) is None]

    def set_aside(self, state: Path, suffix: str = "") -> Path:
        """Move a state to `resume-refused`; return its new folder."""
        self.refused.mkdir(parents=True, exist_ok=True)
        name = f"{state.name}{suffix}"
        numbered = (self.refused / f"{name}-{n}" for n in count(2))
        place = next(place for place in chain([self.refused / name], numbered) if not place.exists())
        state.rename(place)
        return place

    def clear(self, resumed_from: Path | None) -> None:
        """Remove the states of this training and the one it resumed from; other refused states are kept."""
        if resumed_from is not None and resumed_from.exists():
            self._remove(resumed_from)
        for state in self._states(self.folder):
            self._remove(state)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove(self, state: Path) -> None:
        """Remove a state; if killed meanwhile, nothing that looks like a damaged state remains."""
        removing = state.with_name("removing")
        shutil.rmtree(removing, ignore_errors=True)
        state.rename(removing)
        shutil.rmtree(removing, ignore_errors=True)

    def _read(self, folder: Path) -> ResumePoint:
        tree = read_json(folder / TREE)
        before = tree["provenance"]
        differs = [_named(key, before.get(key), now) for key, now in self.provenance.items() if before.get(key) != now]
        return ResumePoint(folder, tree["iteration"], tuple(differs))

    def _states(self, folder: Path) -> list[Path]:
        """Return the folders of states, oldest first."""
        return sorted(folder.glob("[0-9]*"))


MOST = 5  # files listed in a message


def _named(key: str, before: str | None, now: str) -> str:
    """Return what differs in a provenance text: its key, and for code the files."""
    try:
        files = (json.loads(before or "{}"), json.loads(now)) if key == "code" else ({}, {})
        changed = sorted(path for path in {**files[0], **files[1]} if files[0].get(path) != files[1].get(path))
    except (ValueError, TypeError, AttributeError):  # written by an earlier version
        changed = []
    more = ", ..." if len(changed) > MOST else ""
    return f"{key} ({', '.join(changed[:MOST])}{more})" if changed else key


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
