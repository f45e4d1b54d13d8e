"""The runs below `runs/`: their state, sample sheets, result pictures and output.

The list is made from the ends of files alone, so that a hundred runs take no second.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from figura.base.errors import UserError, one_line
from figura.base.files import open_regular, read_json, read_text
from figura.base.lock import Holder
from figura.commands.explore.run_locks import lock_holder
from figura.recipe.trial import KEY

RUNS, PLOTS = "runs", "plots"
PARTS = ("model", "history", "live", KEY)
"""A folder below `runs/` is a run if it has one of these."""
TRAINING, INTERRUPTED, TRAINED, TRY, STOPPED, NEVER = (
    "training", "interrupted", "trained", "a try", "ended without a model", "never trained",
)  # fmt: skip
END = 1 << 16
"""Bytes of the end of a log; a record has about 2,000."""
OUTPUT = "explore.log"
"""In `live/`, which DVC ignores: what a training prints that was started here."""
STEPS = re.compile(r"^train:\n(?:  .*\n)*?  steps: (\d+)$", re.MULTILINE)
"""What a resolved recipe trains; reading all of its YAML takes 50 times as long."""
SAMPLE = re.compile(r"(\d{8})(?:-(\w+))?\.png")


@dataclass(frozen=True)
class Run:
    """A run folder.

    Attributes:
        name: the path below `runs/`.
        folder: where its files are.
        state: one of the six above.
        holder: who trains, if somebody does.
        live: its folder `live`, of a try `try/live`.
        pictures: the folder of its result pictures.
        step: the last iteration; None if there was none.
        steps: iterations of the whole training; None if unknown.
        mtime: when something was last written, in seconds since 1970; 0 if never.
    """

    name: str
    folder: Path
    state: str
    holder: Holder | None
    live: Path
    pictures: Path
    step: int | None
    steps: int | None
    mtime: float

    @property
    def state_text(self) -> str:
        """The state in words."""
        if self.holder is not None:
            return f"training ({self.holder})"
        after = f" after iteration {self.step}" if self.state == INTERRUPTED else ""
        return f"{self.state}{after}"

    @property
    def output(self) -> Path:
        """The file of what a training prints that was started here."""
        return self.folder / "live" / OUTPUT


def list_runs(root: Path, recipes: Sequence[str] = ()) -> list[Run]:
    """Return all runs below `runs/` of a folder, and the `recipes` that have none: what trains or is newest first."""
    folders = dict.fromkeys([*recipes, *(path.relative_to(root / RUNS).as_posix() for path in _folders(root / RUNS))])
    runs = [read_run(root, name) for name in sorted(folders)]
    return sorted(runs, key=lambda one: (one.state != TRAINING, -one.mtime))


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
    """Return the state of one run; of a run and its try, that of the one that trains, or whose model is there."""
    folder = root / RUNS / name
    holder, resumable = lock_holder(folder), _resumable(folder)
    own, of_try = folder / "live", folder / KEY / "live"
    if holder is not None:  # the training that writes now
        trial = _mtime(of_try) > _mtime(own)
    else:
        trial = resumable is None and (_is_of_try(folder / "model") or not own.is_dir())
    live = of_try if trial and of_try.is_dir() else own
    state = _state(folder, live, holder, resumable)
    step = resumable if state == INTERRUPTED else _last_step(folder, live, state)
    mtime = max(_mtime(one) for one in (live, folder / "history", folder / "model"))
    pictures = root / PLOTS / name / "pictures"
    return Run(name, folder, state, holder, live, pictures, step, _total_steps(folder, live), mtime)


def _state(folder: Path, live: Path, holder: Holder | None, resumable: int | None) -> str:
    if holder is not None:
        return TRAINING
    if resumable is not None:
        return INTERRUPTED
    if live.parent.name == KEY or _is_of_try(folder / "model"):
        return TRY
    if (folder / "model").is_dir():
        return TRAINED
    begun = (folder / "history", live / "log.jsonl", live / "losses.csv")
    return STOPPED if any(one.exists() for one in begun) else NEVER


def _is_of_try(model: Path) -> bool:
    """Whether a model is that of a try; `is_try` says the same, from a file that is fifty times as long."""
    try:
        content = read_json(model / "provenance.json")
    except UserError:
        return False
    return isinstance(content, dict) and KEY in content


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


def _last_step(folder: Path, live: Path, state: str) -> int | None:
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


def _total_steps(folder: Path, live: Path) -> int | None:
    """Return the iterations that the resolved recipe of a training asks for, if it counts them and not epochs."""
    for one in (live, folder / "model"):
        with suppress(UserError):
            if match := STEPS.search(read_text(one / "recipe.yaml")):
                return int(match[1])
    return None


def summary(run: Run) -> str:
    """Return a run's state in one line."""
    parts = [run.state_text]
    if run.step is not None:
        parts.append(f"step {run.step}" + (f" of {run.steps}" if run.steps else ""))
    if run.mtime:
        parts.append(f"last written {datetime.fromtimestamp(run.mtime):%Y-%m-%d %H:%M}")
    return "; ".join(parts)


def samples(run: Run) -> dict[str, dict[int, Path]]:
    """Return the sample sheets of a run, by what they show (`validation` first, `train`) and step, ascending."""
    try:
        names = sorted(os.listdir(run.live / "samples"))
    except OSError:
        return {}
    sheets: dict[str, dict[int, Path]] = {}
    for name in names:
        if match := SAMPLE.fullmatch(name):
            sheets.setdefault(match[2] or "validation", {})[int(match[1])] = run.live / "samples" / name
    return dict(sorted(sheets.items(), key=lambda one: one[0] != "validation"))


def sheet_at(sheets: Mapping[int, Path], step: int) -> tuple[int, Path] | None:
    """Return the sheet of a step, or of the last one before it; None if the first one is later."""
    before = [one for one in sheets if one <= step]
    return (before[-1], sheets[before[-1]]) if before else None


def result_pictures(run: Run) -> dict[str, Path]:
    """Return the result pictures of a run by name."""
    files = sorted(run.pictures.glob("*.*"))
    return {file.stem: file for file in files if file.suffix in (".png", ".jpg")}


def output_tail(run: Run, lines: int) -> list[str]:
    """Return the last lines that a training printed which was started here; of a progress line, its last state."""
    texts = [line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace") for line in end_of(run.output, END)]
    return [one_line(text) for text in texts[-lines:]]
