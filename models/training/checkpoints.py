"""Checkpoints of a training: model folders `step-000500`, `step-001000`, ... that appear whole, while it goes on."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

STEP = re.compile(r"step-(\d+)")


class Checkpoints:
    """Folder `<run>/checkpoints`; DVC does not know it, a new training empties it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, iteration: int, write: Callable[[Path], None]) -> None:
        """Let `write` fill a hidden folder, and give it its name; an earlier snapshot of the same iteration goes."""
        final = self.folder / f"step-{iteration:06d}"
        hidden, old = self.folder / f".{final.name}.partial", self.folder / f".{final.name}.old"
        for left in (hidden, old):
            shutil.rmtree(left, ignore_errors=True)
        hidden.mkdir(parents=True)
        write(hidden)
        if final.exists():
            final.rename(old)
        hidden.rename(final)
        shutil.rmtree(old, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a killed training left half written."""
        for left in self.folder.glob(".step-*"):
            shutil.rmtree(left, ignore_errors=True)

    def clear(self) -> None:
        """Remove every snapshot."""
        shutil.rmtree(self.folder, ignore_errors=True)


def step_of(name: str) -> int | None:
    """Return the iteration in the name of a snapshot, None for a folder of another name."""
    found = STEP.fullmatch(name)
    return int(found[1]) if found else None


def models_in(folder: Path) -> list[Path]:
    """Return the folders in `folder` that are not hidden, complete or not: snapshots by iteration, then others by name."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(found, key=lambda path: (step_of(path.name) is None, step_of(path.name) or 0, path.name))
