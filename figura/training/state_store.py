"""The store of the states that trainings share, beside the pipeline's cache. Imports no PyTorch."""

import errno
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from figura.base.errors import UserError
from figura.base.files import cache_around, read_json, write_text
from figura.pipeline.calls import project
from figura.training.finished import link_or_copy

SWITCH = "FIGURA_STATES"  # environment variable: `off`, or another folder
ABOUT, STATE, WRITING = "about.json", "state", "writing"
LARGEST, SHARE = 20e9, 0.1
"""Bytes of all states: at most the first, and this share of what they and the free disk have together."""
NAMED = 3  # settings in a message


@dataclass(frozen=True)
class SharedState:
    """A state in the store. `about` says who made it: `run`, `experiment`, `recipe`, `settings`.

    `size` is in bytes; `used` is when a training last wrote it or began with it, in seconds since 1970.
    """

    folder: Path
    iteration: int
    digest: str
    about: Mapping[str, Any]
    size: int
    used: float

    @property
    def maker(self) -> str:
        """The run that made it, and its experiment."""
        of = f" of {self.about['experiment']}" if self.about.get("experiment") else ""
        return f"{self.about.get('run', 'a run')}{of}"

    def described(self, mine: Mapping[str, Any]) -> str:
        """Return whose it is, and which settings of the maker's recipe differ from `mine`, as text."""
        theirs = dict(self.about.get("settings", {}))
        keys = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
        named = ", ".join(keys[:NAMED]) + (", ..." if len(keys) > NAMED else "")
        differs = f"; its recipe differs only later, in {named}" if keys else ""
        return f"are those of {self.maker} (state {self.digest[:8]}){differs}"

    def read(self) -> dict[str, Any] | None:
        """Return the state, or None if another process has removed it."""
        from figura.training.resume import ResumePoint  # imports PyTorch

        try:
            return ResumePoint(self.folder / STATE, self.iteration, ()).state()
        except (OSError, UserError, SafetensorError):
            return None


class StateStore:
    """A folder of states `<iteration>-<digest>/`, each complete: written under another name, then renamed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_project(cls) -> "StateStore | None":
        """Return the store in the pipeline's cache; None if there is none or `FIGURA_STATES` is `off`."""
        asked = os.environ.get(SWITCH, "")
        if asked:
            return None if asked.lower() in ("off", "0", "false", "no") else cls(Path(asked))
        root = Path(project() or Path.cwd())  # in an experiment's copy, the repository it comes from
        cache = cache_around(root)
        return None if cache is None else cls(cache / "figura-states")

    def states(self) -> list[SharedState]:
        """Return all states, by iteration; those that another process removes meanwhile are left out."""
        return sorted(self._read(), key=lambda state: state.iteration)

    def _read(self) -> Iterator[SharedState]:
        for folder in self.folder.glob("[0-9]*-*"):
            iteration, _, name = folder.name.partition("-")
            with suppress(OSError):
                size = sum(path.stat().st_size for path in (folder / STATE).iterdir())
                used = (folder / ABOUT).stat().st_mtime
                yield SharedState(folder, int(iteration), name, _about(folder / ABOUT), size, used)

    def add(self, iteration: int, digest: str, source: Path, about: Mapping[str, Any]) -> Path | None:
        """Add a state, as hard links to the files of a resume point; return its folder, or None if it is there already.

        Raises:
            OSError: the disk is full or not writable; nothing remains.
        """
        final = self.folder / f"{iteration:010d}-{digest}"
        if final.is_dir():
            return None
        writing = self._temporary()
        try:
            (writing / STATE).mkdir(parents=True)
            for path in source.iterdir():
                link_or_copy(path, writing / STATE / path.name)
            write_text(writing / ABOUT, json.dumps(dict(about)))
            try:
                writing.rename(final)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process has just written it
                    raise
        finally:
            shutil.rmtree(writing, ignore_errors=True)
        self.prune()
        return final

    def remove(self, folder: Path) -> None:
        """Remove a state atomically; another process may already have."""
        removing = self._temporary()
        with suppress(OSError):
            folder.rename(removing)
            shutil.rmtree(removing, ignore_errors=True)

    def _temporary(self) -> Path:
        return self.folder / f"{WRITING}-{os.getpid()}-{time.monotonic_ns()}"

    def limit(self, states: list[SharedState]) -> float:
        """Return the bytes that all states, which are these, may have together."""
        return min(LARGEST, SHARE * (shutil.disk_usage(self.folder).free + sum(one.size for one in states)))

    def prune(self, largest: float | None = None) -> list[SharedState]:
        """Remove the states that were not used for the longest, until all fit the limit; return them."""
        states, removed = self.states(), []
        left = self.limit(states) if largest is None else largest
        for state in sorted(states, key=lambda state: -state.used):
            left -= state.size
            if left < 0:
                self.remove(state.folder)
                removed.append(state)
        for folder in self.folder.glob(f"{WRITING}-*"):  # of killed processes
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > 24 * 3600:
                    shutil.rmtree(folder, ignore_errors=True)
        return removed


def _about(path: Path) -> dict[str, Any]:
    try:
        about = read_json(path)
    except UserError:  # nothing but messages depend on it
        return {}
    return about if isinstance(about, dict) else {}
