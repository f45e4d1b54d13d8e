"""States that trainings share: one whose recipe has been another's so far goes on from the state that the other left.

They lie beside DVC's cache, so all workspaces, experiments and branches of a repository have the same; no result needs
them. recipe/prefix.py says what a state depends on.
"""

import configparser
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from figura.base.checksums import damage
from figura.base.errors import UserError
from figura.base.files import read_json, write_text
from figura.code.closure import declared_types
from figura.interfaces import Callback
from figura.recipe.dotted_keys import texts
from figura.recipe.prefix import Prefixes
from figura.recipe.resolved import settings
from figura.recipe.schema import Recipe
from figura.training import provenance

SWITCH = "FIGURA_STATES"
"""Environment variable: `off`, or another folder."""
ABOUT, STATE, WRITING = "about.json", "state", "writing"
LARGEST, SHARE = 20e9, 0.1
"""Bytes of all states: at most the first, and this share of what they and the free disk have together."""
KEPT = 4
"""States of a training that are kept at multiples of `runtime.resume_every`."""
NAMED = 3  # settings in a message


def states_folder() -> Path | None:
    """Return the folder of shared states, or None if there is no DVC repository or `FIGURA_STATES` is `off`."""
    asked = os.environ.get(SWITCH, "")
    if asked:
        return None if asked.lower() in ("off", "0", "false", "no") else Path(asked)
    root = Path(os.environ.get("DVC_ROOT") or Path.cwd())  # in an experiment's copy, the repository it comes from
    dvc = next((folder / ".dvc" for folder in (root, *root.parents) if (folder / ".dvc").is_dir()), None)
    return None if dvc is None else _cache(dvc) / "figura-states"


def _cache(dvc: Path) -> Path:
    """Return the cache's folder that the configuration of a repository names; relative to the file that names it."""
    config = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        config.read([dvc / "config", dvc / "config.local"], encoding="utf-8")
    except (configparser.Error, ValueError):  # DVC itself will say so
        return dvc / "cache"
    return dvc / config.get("cache", "dir", fallback="cache").strip("'\"")


@dataclass(frozen=True)
class SharedState:
    """A state in the store. `about` says who made it: `run`, `experiment`, `recipe`, `settings`."""

    folder: Path
    iteration: int
    digest: str
    about: Mapping[str, Any]

    @property
    def maker(self) -> str:
        """The run that made it, and its experiment."""
        return f"{self.about['run']}{' of ' + self.about['experiment'] if self.about['experiment'] else ''}"

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return sum(path.stat().st_size for path in (self.folder / STATE).iterdir())

    @property
    def used(self) -> float:
        """When a training last began with it, or wrote it, in seconds since 1970."""
        return (self.folder / ABOUT).stat().st_mtime


class StateStore:
    """A folder of states `<iteration>-<digest>/`, each complete: written under another name, then renamed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def states(self) -> list[SharedState]:
        """Return all states, by iteration; those that another process removes meanwhile are left out."""
        return sorted(self._read(), key=lambda state: state.iteration)

    def _read(self) -> Iterator[SharedState]:
        for folder in self.folder.glob("[0-9]*-*"):
            iteration, _, digest = folder.name.partition("-")
            with suppress(OSError, UserError, ValueError):  # removed meanwhile, or damaged
                yield SharedState(folder, int(iteration), digest, read_json(folder / ABOUT))

    def find(self, iteration: int, digest: str) -> SharedState | None:
        """Return an intact state; a damaged one is removed."""
        for state in self.states():
            if (state.iteration, state.digest) == (iteration, digest):
                if damage(state.folder / STATE) is None:
                    os.utime(state.folder / ABOUT)
                    return state
                self.remove(state)
        return None

    def add(self, iteration: int, digest: str, source: Path, about: Mapping[str, Any]) -> Path | None:
        """Add a state, as hard links to the files of a resume point; return its folder, or None if it is there already.

        Raises:
            OSError: the disk is full or not writable; nothing remains.
        """
        final = self.folder / f"{iteration:010d}-{digest}"
        if final.is_dir():
            return None
        writing = self.folder / f"{WRITING}-{os.getpid()}-{time.monotonic_ns()}"
        try:
            (writing / STATE).mkdir(parents=True)
            for path in source.iterdir():
                _link(path, writing / STATE / path.name)
            write_text(writing / ABOUT, json.dumps(dict(about)))
            try:
                writing.rename(final)
            except OSError:
                if not final.is_dir():  # else another process has just written it
                    raise
        finally:
            shutil.rmtree(writing, ignore_errors=True)
        self.prune()
        return final

    def remove(self, state: SharedState) -> None:
        """Remove a state at once for all other processes."""
        removing = state.folder.with_name(f"{WRITING}-{os.getpid()}-{time.monotonic_ns()}")
        try:
            state.folder.rename(removing)
        except OSError:  # another process removes it
            return
        shutil.rmtree(removing, ignore_errors=True)

    def limit(self) -> float:
        """Return the bytes that all states may have together."""
        return min(LARGEST, SHARE * (shutil.disk_usage(self.folder).free + sum(one.size for one in self.states())))

    def prune(self, largest: float | None = None) -> list[SharedState]:
        """Remove the states that were not used for the longest, until all fit the limit; return them."""
        states = sorted(self.states(), key=lambda state: -state.used)
        left, removed = self.limit() if largest is None else largest, []
        for state in states:
            left -= state.size
            if left < 0:
                self.remove(state)
                removed.append(state)
        for folder in self.folder.glob(f"{WRITING}-*"):  # of killed processes
            if time.time() - folder.stat().st_mtime > 24 * 3600:
                shutil.rmtree(folder, ignore_errors=True)
        return removed


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or no hard links
        shutil.copyfile(source, target)


class Sharing:
    """What one training takes from the store, and gives to it.

    Args:
        store: where states are.
        recipe: a checked recipe.
        callbacks: the recipe's, built.
        evaluate_every: iterations between evaluations.
        last: the number of iterations of this training.
        accelerator: of this training.
        module: the trainer's module.
        run: name of the run.
    """

    def __init__(
        self, store: StateStore, recipe: Recipe, callbacks: Mapping[str, Callback], *, evaluate_every: int, last: int,
        accelerator: Accelerator, module: str, run: str,
    ) -> None:  # fmt: skip
        self.store, self.recipe, self.last, self.module, self.run = store, recipe, last, module, run
        self._arguments = (recipe, evaluate_every, callbacks)
        # a state lacks its evaluation, which is done again by who takes it; a callback would see it twice
        self._unusable = evaluate_every if callbacks else last + 1
        self._machine = machine(accelerator)
        self._code: dict[frozenset[str], str] = {}  # of the code that this process has loaded, so read at its start
        prefixes = self._fresh()
        self.knots = {knot for knot in prefixes.knots() if knot < last}
        for iterations in sorted({*self.knots, last}):
            self._code_of(prefixes.at(iterations))
        self._prefixes = self._fresh()
        self._periodic: list[tuple[int, Path]] = []
        self.gives = True

    def _fresh(self) -> Prefixes:
        return Prefixes(*self._arguments)

    def _code_of(self, content: Mapping[str, Any]) -> str:
        types = frozenset(name for _, name in declared_types(content))
        if types not in self._code:
            self._code[types] = provenance.code_version([self.module], types)
        return self._code[types]

    def _digest(self, content: Mapping[str, Any]) -> str:
        """Return the digest of everything that the state after a prefix depends on."""
        data = [content["data"]["train"], content["data"].get("validation", {})]
        roots = [entry["root"] for entries in data for entry in entries.values() if "root" in entry]
        start = self.recipe.starts_from()
        files = {path for _, path in texts(content) if Path(path).is_file()}
        everything = {
            "content": content, "code": self._code_of(content), "packages": provenance.package_versions(),
            "data": provenance.data_version(roots), "environment": provenance.arithmetic_variables(),
            "files": provenance.file_versions({*files, *(start[one] for one in content["networks"] if one in start)}),
            "machine": self._machine,
        }  # fmt: skip
        return sha256(json.dumps(everything, sort_keys=True, default=repr).encode()).hexdigest()[:32]

    def furthest(self, after: int) -> tuple[SharedState, dict[str, Any]] | None:
        """Return the furthest state of this recipe's prefixes beyond `after` iterations, with its prefix."""
        known: dict[int, set[str]] = {}
        for state in self.store.states():
            if after < state.iteration <= self.last:
                known.setdefault(state.iteration, set()).add(state.digest)
        prefixes = self._fresh()
        found: tuple[SharedState, dict[str, Any]] | None = None
        for iteration, digests in known.items():
            content = prefixes.at(iteration)
            digest = self._digest(content)
            if digest in digests and (intact := self.store.find(iteration, digest)) is not None:
                found = (intact, content)
        return found

    def is_due(self, iteration: int) -> bool:
        """Whether a state is worth keeping here besides those at resume points."""
        return iteration in self.knots or iteration == self.last

    def offer(self, iteration: int, source: Path) -> None:
        """Add the state of a resume point to the store; of those at no knot, a few evenly spaced ones stay.

        Raises:
            OSError: the disk is full or not writable; nothing more is offered.
        """
        if not self.gives or iteration % self._unusable == 0:
            return
        self.gives = False
        content = self._prefixes.at(iteration)
        if frozenset(name for _, name in declared_types(content)) in self._code:  # else it may have changed since
            about = {
                "run": self.run, "experiment": os.environ.get("DVC_EXP_NAME", ""), "recipe": str(self.recipe.path),
                "settings": settings(self.recipe),
            }  # fmt: skip
            folder = self.store.add(iteration, self._digest(content), source, about)
            if folder is not None and not self.is_due(iteration):
                self._thin_out(iteration, folder)
        self.gives = True

    def _thin_out(self, iteration: int, folder: Path) -> None:
        """Keep a few evenly spaced ones of the states at multiples of `runtime.resume_every`, and the last."""
        self._periodic.append((iteration, folder))
        while len(self._periodic) > KEPT:
            first, second = self._periodic[0][0], self._periodic[1][0]
            kept = [one for one in self._periodic[:-1] if (one[0] - first) % (2 * (second - first)) == 0]
            kept.append(self._periodic[-1])
            for one in self._periodic:
                if one not in kept:
                    shutil.rmtree(one[1], ignore_errors=True)
            self._periodic = kept

    def differing(self, state: SharedState) -> str:
        """Return the settings in which the maker of a state differs, as text."""
        mine, theirs = settings(self.recipe), dict(state.about["settings"])
        keys = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
        return ", ".join(keys[:NAMED]) + (", ..." if len(keys) > NAMED else "")


def machine(accelerator: Accelerator) -> dict[str, Any]:
    """Return what rounding depends on besides code and packages: device, processor, threads, processes."""
    device = accelerator.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "device": device.type, "name": name, "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(), "processes": accelerator.num_processes,
    }  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
