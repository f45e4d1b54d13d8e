"""States that trainings share: one whose recipe has been another's so far goes on from the state that the other left.

They lie beside the pipeline's cache, so all workspaces, experiments and branches of a repository have the same; no
result needs them. recipe/prefix.py says what a state depends on.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from figura.base.checksums import damage
from figura.base.dotted_keys import texts
from figura.base.errors import UserError, one_line
from figura.base.manifest import MANIFEST
from figura.interfaces import Callback
from figura.pipeline.calls import experiment
from figura.pipeline.closure import code_for, words_of
from figura.recipe.prefix import Prefixes, digest
from figura.recipe.resolved import named_files, settings
from figura.recipe.schema import RESULT_SECTIONS, Recipe
from figura.training.best import early_end
from figura.training.provenance import data_version, file_versions
from figura.training.resume import SEVERAL
from figura.training.run_folder import RunFolder
from figura.training.state_store import ABOUT, STATE, SharedState, StateStore

TRAINER = "figura.training.trainer"
KEPT = 4  # states of a training that are kept at multiples of `runtime.resume_every`
KNOTS = 16  # states of a training at iterations where something begins, ends or changes its formula


def share_states(
    folder: RunFolder, callbacks: Mapping[str, Callback], store: StateStore | None, *, evaluate_every: int, last: int,
    own_code: bool,
) -> "Sharing | None":  # fmt: skip
    """Return what a training shares, or None, on all ranks, if anything stands against it. Collective."""
    train, runtime = folder.recipe.train, folder.recipe.runtime
    if train.try_ or not runtime.states:
        return None
    why = "it runs code of its own, or was resumed anyway" if own_code else unusable(folder.recipe)
    if store is not None and why is not None and folder.accelerator.is_main_process:
        print(f"this training shares no states with others: {why}", flush=True)
    everywhere = gather_object([store is not None and why is None])
    return Sharing(store, folder, callbacks, evaluate_every, last) if store is not None and all(everywhere) else None


class Sharing:
    """What one training takes from the store, and gives to it.

    Args:
        store: where states are.
        folder: the run's, with its recipe, state, and provenance as it began.
        callbacks: the recipe's, built.
        evaluate_every: iterations between evaluations.
        last: the number of iterations of this training.
    """

    def __init__(
        self, store: StateStore, folder: RunFolder, callbacks: Mapping[str, Callback], evaluate_every: int, last: int
    ) -> None:
        self.store, self.folder, self.recipe, self.every, self.last = store, folder, folder.recipe, evaluate_every, last
        self._arguments = (self.recipe, evaluate_every, callbacks)
        # a state lacks its last evaluation, which the training that loads it repeats: a callback would see it twice
        self._evaluated = any(type(one).on_evaluation is not Callback.on_evaluation for one in callbacks.values())
        self.knots = kept_knots(self._fresh(), last)
        self._prefixes = self._fresh()
        content, known = self.recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True), folder.provenance
        self._data: dict[str, str] = json.loads(known["data"])
        self._files: dict[str, str] = json.loads(known["start"])
        self._files |= json.loads(file_versions({text for _, text in texts(content)} - self._files.keys()))
        self._around = {
            "environment": known["environment"], "machine": folder.state.machine, "python": sys.version,
            "packages": sorted({one.name for path in map(Path, sys.path) for one in path.glob("*.dist-info")}),
        }  # fmt: skip
        self._whole = code_for([TRAINER], content)
        self._read_at = self._status()
        self._code: dict[frozenset[str], dict[str, Any]] = {}
        self._between: dict[int, Path] = {}  # at no knot
        self.gives = True

    def _fresh(self) -> Prefixes:
        return Prefixes(*self._arguments)

    def _status(self) -> list[tuple[int, int]]:
        """Return what shows that a file of code was changed."""
        return [(status.st_mtime_ns, status.st_size) for status in map(Path.stat, self._whole.sources.values())]

    def _code_of(self, content: Mapping[str, Any]) -> dict[str, Any]:
        words = frozenset(words_of(content))
        if words not in self._code:
            code = code_for([TRAINER], content)
            if not code.files.items() <= self._whole.files.items():
                raise UserError("code has changed since this training began")
            self._code[words] = {"files": sorted(code.files.items()), "packages": sorted(code.packages.items())}
        return self._code[words]

    def _digest(self, content: Mapping[str, Any]) -> str:
        """Return the digest of all that the state after a prefix depends on. Raises UserError if code has changed."""
        start = self.recipe.starts_from()
        named = {text for _, text in texts(content)} | {start[one] for one in content["networks"] if one in start}
        versions = [[path, version] for path, version in sorted((self._files | self._data).items()) if path in named]
        return digest({"content": content, "code": self._code_of(content), "named": versions, **self._around})

    def furthest(self, after: int) -> tuple[SharedState, dict[str, Any]] | None:
        """Return the furthest intact state of this recipe's prefixes beyond `after` iterations, with its prefix.

        No checkpoint (`runtime.checkpoint_every`) may be due in between: nobody would write it.
        """
        every = self.recipe.runtime.checkpoint_every
        until = self.last if every is None else min(self.last - 1, after // every * every + every - 1)
        known: dict[int, list[SharedState]] = {}
        for state in self.store.states():
            if after < state.iteration <= until:
                known.setdefault(state.iteration, []).append(state)
        prefixes, own = self._fresh(), list[tuple[SharedState, dict[str, Any]]]()
        with suppress(UserError):  # code has changed meanwhile
            for iteration, states in known.items():
                content = prefixes.at(iteration)
                name = self._digest(content)
                own += [(state, content) for state in states if state.digest == name]
        for state, content in reversed(own):
            if damage(state.folder / STATE) is None:
                if self._ends_before(state):
                    continue
                with suppress(OSError):  # of another user, or removed meanwhile
                    os.utime(state.folder / ABOUT)
                return state, content
            self.store.remove(state.folder)
        return None

    def _ends_before(self, state: SharedState) -> bool:
        """Whether `train.stop` of this recipe, which the maker of a state may lack, ends training before it."""
        content = state.read() if self.recipe.train.stop else {}
        end = early_end(self.recipe.train, content["loss_log"]["validation"]) if content else None
        return end is not None and end < state.iteration

    def begin(self, after: int) -> SharedState | None:
        """Load the furthest state of a training that was equal so far, if it is beyond `after`. Collective."""
        own = self.furthest(after) if self.folder.accelerator.is_main_process else None
        found: tuple[SharedState, dict[str, Any]] | None = gather_object([own])[0]
        if found is None:
            return None
        shared, prefix = found
        state = shared.read()
        everywhere = gather_object([state is not None])
        if state is None or not all(everywhere):
            return None
        self.folder.state.load_state_dict(state, None if "recipe" in prefix else prefix)
        return shared

    def is_due(self, iteration: int) -> bool:
        """Whether a state is worth keeping here besides those at resume points and the last one."""
        return iteration in self.knots

    def give(self, iteration: int, say: Callable[[str], object]) -> None:
        """Give the current state to other trainings, unless it depends on more than recipe, data and code.

        Collective. If sharing fails, it says why and stops sharing.
        """
        if self.folder.state.resumed or self.folder.state.machine == SEVERAL:
            return
        try:
            if self.folder.resumable != iteration:
                self.folder.write_resume_point(iteration)  # a UserError is one of all ranks
            if self.folder.accelerator.is_main_process and self.gives:
                self._add(iteration)
        except (OSError, UserError) as error:  # no result needs it
            self.gives = False
            say(f"warning: other trainings get no more states of this one: {one_line(str(error))}")

    def _add(self, iteration: int) -> None:
        """Add the state of the latest resume point; of those at no knot, a few evenly spaced ones stay."""
        if self._evaluated and (iteration % self.every == 0 or iteration == self.last):
            return
        if self._status() != self._read_at or json.loads(data_version(self._data)) != self._data:
            raise UserError("code or data have changed since this training began")
        about = {
            "run": self.folder.run.name, "experiment": experiment() or "",
            "recipe": str(self.recipe.path), "settings": settings(self.recipe),
        }  # fmt: skip
        name = self._digest(self._prefixes.at(iteration))
        kept = self.store.add(iteration, name, self.folder.points.latest_folder(), about)
        if kept is not None and not self.is_due(iteration) and iteration != self.last:
            self._between[iteration] = kept
            for other in self._between.keys() - thinned(list(self._between)):
                self.store.remove(self._between.pop(other))


def kept_knots(prefixes: Prefixes, last: int) -> set[int]:
    """Return the iterations before `last` at which a training keeps a state because recipes tend to part there."""
    found = [knot for knot in prefixes.knots() if knot < last]
    return set(found[:: -(-len(found) // KNOTS) or 1])


def thinned(iterations: list[int]) -> list[int]:
    """Return a few evenly spaced ones of rising iterations, and the last."""
    while len(iterations) > KEPT:
        first, second, *_, last = iterations
        iterations = [one for one in iterations[:-1] if (one - first) % (2 * (second - first)) == 0] + [last]
    return iterations


def unusable(recipe: Recipe) -> str | None:
    """Return why the states of a recipe depend on more than is known here, or None."""
    if recipe.train.compile:
        return "train.compile uses a compiler whose version is not known"
    entries = [*recipe.data.train.values(), *recipe.data.validation.values()]
    folders = {entry.arguments["root"] for entry in entries if "root" in entry.arguments}
    folders |= {path for _, path in named_files(recipe, RESULT_SECTIONS) if os.path.isdir(path)}
    for folder in sorted(folders):
        if not Path(folder, MANIFEST).is_file():
            return f"{folder} has no {MANIFEST}, so changes in it would not be noticed"
    return None


def machine(accelerator: Accelerator) -> str:
    """Return what rounding depends on besides code and packages, as text: device, processor, threads, of each process.

    Collective.
    """
    device = accelerator.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    own = (device.type, name, _processor(), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
    return json.dumps(gather_object([own]))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
