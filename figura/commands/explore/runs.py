"""The list of runs with their state. It is made from the ends of files alone, so that a hundred runs take no second."""

import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.files import open_regular, read_json, read_text
from figura.base.yaml12 import parse_yaml
from figura.commands.explore.run_locks import Holder, lock_holder
from figura.commands.sweeps import Estimate, is_number
from figura.recipe.trial import KEY

RUNS, METRICS, PLOTS = "runs", "metrics", "plots"
PARTS = ("model", "history", "live", KEY)
"""A folder below `runs/` is a run if it has one of these."""
TRAINING, INTERRUPTED, TRAINED, TRY, STOPPED, NEVER = (
    "training", "interrupted", "trained", "a try", "ended without a model", "never trained",
)  # fmt: skip
END = 1 << 16
"""Bytes of the end of a log; a record has about 2,000."""


@dataclass(frozen=True)
class Run:
    """A run folder, or what a revision has of one.

    Attributes:
        name: the path below `runs/`, and of a revision ` @ ` with its name.
        folder: where its files are.
        state: one of the six above; of a revision its kind and name.
        holder: who trains, if somebody does.
        live: its folder `live`, of a try `try/live`.
        pictures: the folder of its result pictures.
        step: the last iteration; None if there was none.
        steps: iterations of the whole training; None if unknown.
        images_per_second: of the last line of the live log.
        mtime: when something was last written, in seconds since 1970; 0 if never.
        metrics: by short name.
    """

    name: str
    folder: Path
    state: str
    holder: Holder | None
    live: Path
    pictures: Path
    step: int | None = None
    steps: int | None = None
    images_per_second: float | None = None
    mtime: float = 0.0
    metrics: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def recipe(self) -> str:
        """The name in `dvc.yaml`, if it has one."""
        return self.name.partition(" @ ")[0]

    @property
    def state_text(self) -> str:
        """The state in words."""
        if self.holder is not None:
            return f"training ({self.holder})"
        after = f" after iteration {self.step}" if self.state == INTERRUPTED else ""
        return f"{self.state}{after}"

    @property
    def resolved(self) -> Path:
        """The recipe with all defaults, of the training that `live` shows or of the model."""
        live, model = self.live / "recipe.yaml", self.folder / "model" / "recipe.yaml"
        first, second = (live, model) if self.state in (TRAINING, INTERRUPTED, STOPPED) else (model, live)
        return first if first.is_file() else second


def list_runs(root: Path, recipes: Sequence[str] = ()) -> list[Run]:
    """Return all runs below `runs/` of a folder by name, and the `recipes` that have none; it reads ends of files."""
    folders = dict.fromkeys([*recipes, *(path.relative_to(root / RUNS).as_posix() for path in _folders(root / RUNS))])
    return [read_run(root, name) for name in sorted(folders)]


def _folders(folder: Path) -> Iterator[Path]:
    for one in _subfolders(folder):
        if _is_run(one):
            yield one
        else:
            yield from (inner for inner in _subfolders(one) if _is_run(inner))


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return []


def _is_run(folder: Path) -> bool:
    return any((folder / part).is_dir() for part in PARTS)


def read_run(root: Path, name: str) -> Run:
    """Return the state of one run."""
    folder = root / RUNS / name
    holder = lock_holder(folder)
    resumable = _resumable(folder)
    trial = (folder / KEY).is_dir() and (_is_trial(folder) or not (folder / "live").is_dir())
    if holder is not None:  # the training that writes now
        trial = _mtime(folder / KEY / "live") > _mtime(folder / "live")
    elif resumable is not None:
        trial = False
    live = (folder / KEY if trial else folder) / "live"
    state = _state(folder, holder, resumable, trial)
    step = resumable if state == INTERRUPTED else last_step(folder, live, state)
    mtime = max(_mtime(live), _mtime(folder / "history"), _mtime(folder / "model"))
    steps = total_steps(live if state in (TRAINING, INTERRUPTED, STOPPED) else folder / "model", live)
    metrics, pictures = _metrics(root / METRICS / f"{name}.json"), root / PLOTS / name / "pictures"
    return Run(name, folder, state, holder, live, pictures, step, steps, _last_speed(live), mtime, metrics)


def _state(folder: Path, holder: Holder | None, resumable: int | None, trial: bool) -> str:
    if holder is not None:
        return TRAINING
    if resumable is not None:
        return INTERRUPTED
    if (folder / "model").is_dir():
        return TRY if trial or _is_trial(folder) else TRAINED
    if trial:
        return TRY
    return STOPPED if _is_run(folder) and _is_begun(folder) else NEVER


def _is_begun(folder: Path) -> bool:
    return (folder / "history").is_dir() or any(
        (folder / "live" / name).exists() for name in ("log.jsonl", "losses.csv")
    )


def _is_trial(folder: Path) -> bool:
    """Whether the model is that of a try; `is_try` says the same, from a file that is fifty times as long."""
    return KEY in _mapping(folder / "model" / "provenance.json")


def _mapping(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except UserError:
        return {}
    return content if isinstance(content, dict) else {}


def _resumable(folder: Path) -> int | None:
    """Return the iteration of the last resume point."""
    states = [one.name for one in _subfolders(folder / "resume") if re.fullmatch(r"\d{10}", one.name)]
    return int(max(states)) if states else None


def _mtime(path: Path) -> float:
    """Return when a folder of a run was last written to; 0 if it does not exist."""
    times = [0.0]
    for one in (path, path / "losses.csv", path / "log.jsonl"):
        try:
            times.append(one.stat().st_mtime)
        except OSError:
            continue
    return max(times)


def last_step(folder: Path, live: Path, state: str) -> int | None:
    files = [live / "losses.csv", folder / "history" / "train.csv"]
    for path in files if state in (TRAINING, STOPPED) else reversed(files):
        *_, last = [b"", *end_of(path, 4096)]
        number = last.partition(b",")[0]
        if number.isdigit():
            return int(number)
    return None


def end_of(path: Path, size: int) -> list[bytes]:
    """Return the last whole lines of a file; none if it cannot be read."""
    try:
        with open_regular(path) as file:
            whole = os.fstat(file.fileno()).st_size
            file.seek(max(0, whole - size))
            content = file.read(size)
    except (UserError, OSError):
        return []
    lines = content.split(b"\n")[:-1]  # the last is empty, or half-written
    return lines[1:] if whole > size else lines


def _last_speed(live: Path) -> float | None:
    """Return the images per second of the last line of a live log that tells them."""
    for line in reversed(end_of(live / "log.jsonl", END)):
        rate = parse_line(line).get("images_per_second")
        if isinstance(rate, int | float):
            return float(rate)
    return None


def parse_line(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def total_steps(folder: Path, live: Path) -> int | None:
    """Return the iterations that the resolved recipe in a folder asks for."""
    try:
        lines = read_text(folder / "recipe.yaml").splitlines()
        start = lines.index("train:")
        section = takewhile(lambda line: line.startswith(" "), lines[start + 1 :])
        train = parse_yaml("\n".join(["train:", *section]), "")["train"]
        steps, epochs = train.get("steps"), train.get("epochs")
        if steps:
            return int(steps)
        with open_regular(live / "log.jsonl") as file:
            batches = parse_line(file.readline(END)).get("batches_per_epoch")
        return int(epochs * batches) if epochs and batches else None
    except (UserError, ValueError, OSError, TypeError, AttributeError):
        return None


def _metrics(path: Path) -> dict[str, Estimate]:
    content = _mapping(path)
    content = content.get(KEY, content)
    estimates = {}
    for name, one in content.items() if isinstance(content, dict) else ():
        if isinstance(one, dict) and is_number(one.get("value")):
            low, high = (float(one[end]) if is_number(one.get(end)) else math.nan for end in ("low", "high"))
            estimates[name] = Estimate(float(one["value"]), low, high)
    return estimates


def age(seconds: float) -> str:
    """Return how long ago something was, in the largest unit: `3 min`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def summary(run: Run, now: float | None = None) -> str:
    """Return a run's state in one line: state, steps, speed, age."""
    parts = [run.state_text]
    if run.step is not None:
        parts.append(f"step {run.step}" + (f" of {run.steps}" if run.steps else ""))
    if run.images_per_second is not None:
        parts.append(f"{run.images_per_second:.3g} images/s")
    if run.mtime:
        parts.append(f"{age((now or time.time()) - run.mtime)} ago")
    return "; ".join(parts)
