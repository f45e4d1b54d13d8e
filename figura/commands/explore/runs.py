"""The runs below `runs/`: their state, sample sheets, result pictures and output.

The list is made from the ends of files alone, so that a hundred runs take no second.
"""

import fcntl
import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from figura.base.errors import UserError, one_line
from figura.base.files import open_regular, read_json, read_text
from figura.base.lock import NAME as LOCK
from figura.base.lock import Holder, holder_of
from figura.recipe.trial import KEY

RUNS, PLOTS = Path("runs"), Path("plots")
PARTS = ("model", "history", "live", KEY)  # a folder below `runs/` is a run if it has one of these
SHOWN = "[!.]*/"  # folders that are not hidden
TRAINING, INTERRUPTED, TRAINED, TRY, STOPPED, NEVER = (
    "training", "interrupted", "trained", "a try", "ended without a model", "never trained",
)  # fmt: skip
END = 1 << 16  # bytes of the end of a log; a record has about 2,000
OUTPUT = "explore.log"  # in `live/`, which is not tracked: what a training prints that was started here
STEPS = re.compile(r"^train:\n(?:  .*\n)*?  steps: (\d+)$", re.MULTILINE)
"""What a resolved recipe trains; reading all of its YAML takes 50 times as long."""
FLOCK = "hhqqi4x"  # `struct flock` of Linux on 64 bits: type, whence, start, length, process
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
        step: the last iteration; None if there was none.
        steps: iterations of the whole training; None if unknown.
        mtime: when something was last written, in seconds since 1970; 0 if never.
    """

    name: str
    folder: Path
    state: str
    holder: Holder | None
    live: Path
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


def list_runs(recipes: Iterable[str] = ()) -> list[Run]:
    """Return all runs below `runs/`, and the `recipes` that have none: what trains or is newest first."""
    names = {*recipes, *(path.relative_to(RUNS).as_posix() for path in _folders())}
    runs = [read_run(name) for name in sorted(names)]
    return sorted(runs, key=lambda one: (one.state != TRAINING, -one.mtime))


def _folders() -> Iterator[Path]:
    for one in RUNS.glob(SHOWN):
        yield from [one] if _is_run(one) else filter(_is_run, one.glob(SHOWN))


def _is_run(folder: Path) -> bool:
    return any((folder / part).is_dir() for part in PARTS)


def read_run(name: str) -> Run:
    """Return the state of one run; of a run and its try, that of the one that trains, or whose model is there."""
    folder = RUNS / name
    points = (folder / "resume").glob("[0-9]" * 10 + "/")
    holder, resumable = lock_holder(folder), max((int(one.name) for one in points), default=None)
    own, of_try = folder / "live", folder / KEY / "live"
    if holder is not None:  # the training that writes now
        trial = _mtime(of_try) > _mtime(own)
    else:
        trial = resumable is None and (_is_of_try(folder / "model") or not own.is_dir())
    live = of_try if trial and of_try.is_dir() else own
    state = _state(folder, live, holder, resumable)
    step = resumable if state == INTERRUPTED else _last_step(folder, live, state)
    mtime = max(_mtime(one) for one in (live, folder / "history", folder / "model"))
    return Run(name, folder, state, holder, live, step, _total_steps(folder, live), mtime)


def locking_process(folder: Path) -> int | None:
    """Return the number of the process that holds a folder's lock, as the kernel says; None if nobody does.

    The number is 0 or below where the process is of another machine or container, and where only Linux could tell. The
    lock is looked at, not taken: a training that starts meanwhile is not refused.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if sys.platform != "linux":  # the file is removed when the training ends, unless that was killed
            return 0
        request = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, process = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    except OSError:  # this file system has no locks
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(process)


def lock_holder(folder: Path) -> Holder | None:
    """Return who holds the lock of a folder; None if nobody does."""
    return None if locking_process(folder) is None else holder_of(folder / LOCK)


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


def _mtime(path: Path) -> float:
    """Return when a folder of a run was last written to; 0 if it does not exist."""
    times = [0.0]
    for one in (path, path / "losses.csv", path / "log.jsonl"):
        with suppress(OSError):
            times.append(one.stat().st_mtime)
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
    sheets: dict[str, dict[int, Path]] = {}
    for path in sorted((run.live / "samples").glob("*.png")):
        if match := SAMPLE.fullmatch(path.name):
            sheets.setdefault(match[2] or "validation", {})[int(match[1])] = path
    return dict(sorted(sheets.items(), key=lambda one: one[0] != "validation"))


def sheet_at(sheets: Mapping[int, Path], step: int) -> tuple[int, Path] | None:
    """Return the sheet of a step, or of the last one before it; None if the first one is later."""
    before = [one for one in sheets if one <= step]
    return (before[-1], sheets[before[-1]]) if before else None


def result_pictures(run: Run) -> dict[str, Path]:
    """Return the result pictures of a run by name."""
    files = sorted((PLOTS / run.name / "pictures").glob("*.*"))
    return {file.stem: file for file in files if file.suffix in (".png", ".jpg")}


def output_tail(run: Run, lines: int) -> list[str]:
    """Return the last lines that a training printed which was started here; of a progress line, its last state."""
    texts = [line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace") for line in end_of(run.output, END)]
    return [one_line(text) for text in texts[-lines:]]
