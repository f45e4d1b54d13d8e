"""What the tab Runs shows: runs with their state, curves that grow, sheets, logs, experiments; stopping and resuming.

Nothing here knows the page. Lists are made from the ends of files alone, so that a hundred runs take no second.
"""

import fcntl
import io
import json
import math
import os
import platform
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from models.base.errors import UserError, one_line
from models.base.files import open_regular, read_json, read_rows, read_text
from models.base.lock import NAME as LOCK
from models.base.yaml12 import parse_yaml, read_yaml
from models.recipe.dotted_keys import leaves
from models.recipe.trial import KEY
from tools.explore.project import Project
from tools.report.pictures import Picture, picture_of
from tools.sweep_report import exp_show
from tools.sweeps import MAIN, Estimate, Experiment, formatted, is_number, read_sweep

RUNS, METRICS, PLOTS = "runs", "metrics", "plots"
PARTS = ("model", "history", "live", KEY)
"""A folder below `runs/` is a run if it has one of these."""
TRAINING, INTERRUPTED, TRAINED, TRY, STOPPED, NEVER = (
    "training", "interrupted", "trained", "a try", "ended without a model", "never trained",
)  # fmt: skip

MOST = 500
"""Points of a curve; even, because windows double."""
CHUNK = 1 << 22
"""Bytes that are read at a time."""
LAST = 2**53
"""No iteration is later: floats count no further."""
MARK = 64
"""Bytes before the offset that tell whether a file was written anew."""
END = 1 << 16
"""Bytes of the end of a log; a record has about 2,000."""
OUTPUT = "explore.log"
"""In `live/`, which DVC ignores: what a training prints that was started here."""
COLUMNS = ["step", "loss", "raw", "weight", "weighted"]
SAMPLE = re.compile(r"(\d{8})(?:-(\w+))?\.png")
FLOCK = "hhqqi4x"
"""`struct flock` of Linux on 64 bits: type, whence, start, length, process."""
SECONDS = 300
"""After which a program that draws or fetches is given up."""

Points = tuple[list[int], list[float]]
"""The steps of a curve, ascending, and its values; NaN where nothing was finite."""


# who is at work


class Holder(NamedTuple):
    """The process that holds a run's lock, as the lock file says; `process` is 0 if it does not."""

    process: int
    host: str
    since: str
    command: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.since}" if self.process else "another process"


def locking_process(folder: Path) -> int | None:
    """Return the number of the process that holds a folder's lock, as the kernel says; None if nobody does.

    The number is 0 or below where the process is of another machine or container. The lock is looked at, not taken: a
    training that starts meanwhile is not refused.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        request = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, process = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    except OSError:  # this file system has no locks
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(process)


def lock_holder(folder: Path) -> Holder | None:
    """Return who holds the lock of a folder; None if nobody does."""
    if locking_process(folder) is None:
        return None
    try:
        content = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        return Holder(int(content["pid"]), str(content["host"]), str(content["since"]), str(content["command"]))
    except (OSError, ValueError, LookupError, TypeError):  # it has not been written yet
        return Holder(0, "", "", "")


# the list


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
    step = resumable if state == INTERRUPTED else _last_step(folder, live, state)
    mtime = max(_mtime(live), _mtime(folder / "history"), _mtime(folder / "model"))
    steps = _steps(live if state in (TRAINING, INTERRUPTED, STOPPED) else folder / "model", live)
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


def _last_step(folder: Path, live: Path, state: str) -> int | None:
    files = [live / "losses.csv", folder / "history" / "train.csv"]
    for path in files if state in (TRAINING, STOPPED) else reversed(files):
        *_, last = [b"", *_end(path, 4096)]
        number = last.partition(b",")[0]
        if number.isdigit():
            return int(number)
    return None


def _end(path: Path, size: int) -> list[bytes]:
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
    for line in reversed(_end(live / "log.jsonl", END)):
        rate = _parse(line).get("images_per_second")
        if isinstance(rate, int | float):
            return float(rate)
    return None


def _parse(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _steps(folder: Path, live: Path) -> int | None:
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
            batches = _parse(file.readline(END)).get("batches_per_epoch")
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


# curves


class WindowMeans:
    """The means of a growing curve over windows of equal length; at `MOST` windows, two become one."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []
        self.window = 1
        self._rest: tuple[NDArray[Any], NDArray[Any]] = (np.empty(0, np.int64), np.empty(0))

    def add(self, steps: NDArray[Any], values: NDArray[Any]) -> None:
        """Append points."""
        steps, values = np.concatenate([self._rest[0], steps]), np.concatenate([self._rest[1], values])
        start = 0
        while start + self.window <= len(steps):
            end = start + self.window
            self.steps.append(int(steps[end - 1]))
            self.values.append(_mean(values[start:end]))
            start = end
            if len(self.steps) == MOST:
                self.steps = self.steps[1::2]
                self.values = [_mean(pair) for pair in np.reshape(self.values, (-1, 2))]
                self.window *= 2
        self._rest = (steps[start:], values[start:])

    @property
    def points(self) -> Points:
        """The means; the last one may be of a shorter window, so that the newest step is always there."""
        steps, values = self._rest
        if not len(steps):
            return list(self.steps), list(self.values)
        return [*self.steps, int(steps[-1])], [*self.values, _mean(values)]


def _mean(values: NDArray[Any]) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else math.nan


def thin(steps: Sequence[float], values: Sequence[float]) -> Points:
    """Return at most `MOST` points of a curve."""
    curve = WindowMeans()
    curve.add(np.asarray(steps, np.int64), np.asarray(values, np.float64))
    return curve.points


class GrowingFile:
    """Reads what is appended to a file, in whole lines; a half-written last line waits."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self._mark = path, 0, b""

    def read(self) -> tuple[bytes, bool]:
        """Return the next whole lines, at most `CHUNK` bytes, and whether the file begins anew: it was replaced."""
        try:
            with open_regular(self.path) as file:
                file.seek(self.offset - len(self._mark))
                anew = file.read(len(self._mark)) != self._mark
                if anew:
                    self.offset, self._mark = 0, b""
                    file.seek(0)
                content = file.read(CHUNK)
        except (UserError, OSError):
            anew, self.offset, self._mark = self.offset > 0, 0, b""
            return b"", anew
        lines = content[: content.rfind(b"\n") + 1]
        self.offset += len(lines)
        self._mark = (self._mark + lines)[-MARK:]
        return lines, anew


class LossFile:
    """`live/losses.csv`: the losses of each iteration."""

    def __init__(self, path: Path) -> None:
        self._file, self._curves = GrowingFile(path), dict[str, WindowMeans]()

    def read(self) -> dict[str, Points]:
        """Read on, and return `train.<loss>` and `weighted.<loss>`."""
        while True:
            lines, anew = self._file.read()
            if anew:
                self._curves = {}
            if not lines:
                return {name: curve.points for name, curve in self._curves.items()}
            self._add(lines)

    def _add(self, lines: bytes) -> None:
        try:
            rows = pd.read_csv(
                io.BytesIO(lines), header=None, names=COLUMNS, dtype=str, keep_default_na=False, on_bad_lines="skip",
                encoding_errors="replace", quoting=3, usecols=range(len(COLUMNS)),
            )  # fmt: skip
        except ValueError:  # nothing but empty lines
            return
        for column in ("step", "raw", "weighted"):
            rows[column] = pd.to_numeric(rows[column], errors="coerce")
        rows = rows[rows["step"].between(0, LAST)]  # neither the head nor half a row of a killed process
        for loss, part in rows.groupby("loss", sort=False):
            for name, column in ((f"train.{loss}", "raw"), (f"weighted.{loss}", "weighted")):
                curve = self._curves.setdefault(name, WindowMeans())
                curve.add(part["step"].to_numpy(np.int64), part[column].to_numpy(np.float64))


class LogFile:
    """`live/log.jsonl`: totals, weights, learning rates, gradient norms, speed, and the losses of validation batches.

    A resumed process repeats the steps after its resume point; they replace the earlier ones.
    """

    def __init__(self, path: Path) -> None:
        self._file, self._curves = GrowingFile(path), dict[str, tuple[list[int], list[float]]]()

    def read(self) -> dict[str, Points]:
        """Read on, and return the curves; losses of training are in `losses.csv`, of them the total is here alone."""
        while True:
            lines, anew = self._file.read()
            if anew:
                self._curves = {}
            if not lines:
                return {name: thin(*curve) for name, curve in self._curves.items()}
            for line in lines.splitlines():
                self._add(_parse(line))

    def _add(self, record: Mapping[str, Any]) -> None:
        step = record.get("step")
        if not isinstance(step, int | float) or not 0 <= step <= LAST:
            return
        for key, value in record.items():
            name = _curve_of_log(key)
            if name is None or not is_number(value) or abs(value) > sys.float_info.max:
                continue
            steps, values = self._curves.setdefault(name, ([], []))
            while steps and steps[-1] >= step:
                steps.pop()
                values.pop()
            steps.append(int(step))
            values.append(float(value))


def _curve_of_log(key: str) -> str | None:
    """Return the curve of a key of the live log; None if another file has it."""
    head, _, name = key.partition(".")
    if head == "validation":
        return f"validation_batch.{name}"
    return (
        key if key == "train.total" or head in ("weight", "lr", "grad_norm", "images_per_second", "seconds") else None
    )


KINDS = {"raw": "train", "weighted": "weighted", "weight": "weight", "lr": "lr", "grad_norm": "grad_norm"}


def history_curves(folder: Path) -> dict[str, Points]:
    """Return the curves in `history/` of a run folder. Raises UserError if it is damaged."""
    from models.report.curves import read_histories
    from tools.log_plots import total_loss

    train, validation = (table.astype("float64") for table in read_histories(folder))
    totals = total_loss(train, validation)
    curves = {}
    for table, total, kinds, whole in (
        (train, totals[0], KINDS, "train.total"),
        (validation, totals[1], {"raw": "validation"}, "validation.total"),
    ):
        columns = {whole: total}
        for column in table:
            head, _, kind = str(column).rpartition(".")
            if kind in kinds:
                columns[f"{kinds[kind]}.{head}"] = table[column]
        for name, values in columns.items():
            present = values.notna()
            if present.any():
                curves[name] = thin(table["step"][present].tolist(), values[present].tolist())
    return curves


def _score_curves(path: Path) -> dict[str, Points]:
    """Return the curves in `live/scores.csv`; none if it is not there."""
    try:
        rows = read_rows(path, "step")
    except UserError:
        return {}
    curves: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        for name, text in row.items():
            try:
                step, value = int(row["step"]), float(text)
            except ValueError:  # not computed at this step
                continue
            if name != "step":
                steps, values = curves.setdefault(f"score.{name}", ([], []))
                steps.append(step)
                values.append(value)
    return {name: thin(*curve) for name, curve in curves.items()}


class Curves:
    """The curves of a run, read on as its files grow.

    A run that has ended is shown by its history, means over windows; one that trains, or was interrupted, by its live
    files.
    """

    def __init__(self, run: Run) -> None:
        self.folder, self.live = run.folder, run.live
        self._losses, self._log = LossFile(run.live / "losses.csv"), LogFile(run.live / "log.jsonl")
        self._history: tuple[float, dict[str, Points]] | None = None

    def read(self, state: str) -> dict[str, Points]:
        """Return the curves by name, sorted: `train.total`, `validation.total`, then the others.

        Raises:
            UserError: the history is damaged.
        """
        curves = self._log.read() | _score_curves(self.live / "scores.csv")
        ended = state not in (TRAINING, INTERRUPTED) and (self.folder / "history" / "train.csv").is_file()
        curves |= self._of_history() if ended else self._losses.read()
        first = [name for name in ("train.total", "validation.total") if name in curves]
        return {name: curves[name] for name in [*first, *sorted(curves.keys() - set(first))]}

    def _of_history(self) -> dict[str, Points]:
        written = (self.folder / "history" / "train.csv").stat().st_mtime
        if self._history is None or self._history[0] != written:
            self._history = (written, history_curves(self.folder))
        return self._history[1]


def curves(run: Run) -> dict[str, Points]:
    """Return the curves of a run once, see `Curves`."""
    return Curves(run).read(run.state)


# sheets, logs, settings


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


def log_tail(run: Run, lines: int) -> list[str]:
    """Return the last lines of the live log, for people: `step 100: total 0.5, L1 0.3, 46 images/s`."""
    texts = []
    for line in _end(run.live / "log.jsonl", END):
        record = _parse(line)
        if "process" in record:
            texts.append(f"started: {record.get('processes', 1)} process(es), code {str(record.get('code'))[:8]}")
        elif "step" in record:
            numbers = [
                f"{key.removeprefix('train.')} {value:.4g}"
                for key, value in record.items()
                if is_number(value) and key.startswith(("train.", "score."))
            ]
            rate = record.get("images_per_second")
            speed = [f"{rate:.1f} images/s"] if is_number(rate) else []
            texts.append(f"step {record['step']}: {', '.join([*numbers, *speed])}")
    return [one_line(line) for line in texts[-lines:]]


def output_tail(run: Run, lines: int) -> list[str]:
    """Return the last lines that a training printed which was started here; of a progress line, its last state."""
    texts = [line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace") for line in _end(_output(run), END)]
    return [one_line(text) for text in texts[-lines:]]


def setting_differences(left: Path, right: Path) -> list[tuple[str, str, str]]:
    """Return the settings in which two resolved recipes differ: dotted key, and both values as text.

    Raises:
        UserError: one of them is missing or damaged.
    """
    first, second = (dict(leaves(read_yaml(path))) for path in (left, right))
    keys = list(dict.fromkeys([*first, *second]))
    texts = [(key, *(formatted(one[key]) if key in one else "absent" for one in (first, second))) for key in keys]
    return [(key, old, new) for key, old, new in texts if old != new]


def flow_picture(project: Project, recipe: str) -> Picture:
    """Return the picture of what an iteration of a recipe does; it takes as long as PyTorch takes to start.

    The params file says it: the resolved recipe beside a model has no `evaluate`, without which no recipe is whole.

    Raises:
        UserError: `dvc.yaml` has no such recipe, or it cannot be described.
    """
    _refuse_unknown(project, recipe)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flow.png"
        # as a program: it prints, and what prints in a thread prints for all of them
        _program(["tools.describe", str(project.params(recipe)), "--output", str(file)], project.root)
        return picture_of(file, "flow of an iteration", "Flow of tensors: data, injectors, networks, losses.", 2000)


def _refuse_unknown(project: Project, recipe: str) -> None:
    if recipe not in project.recipes:
        raise UserError(f"{recipe}: dvc.yaml has no such recipe; there are {', '.join(project.recipes)}")


def _program(arguments: list[str], root: Path) -> None:
    """Run a module of Python in a folder. Raises UserError with its last line if it fails or takes too long."""
    name = " ".join(arguments[:2])
    try:
        done = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=root, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(f"{name}: not done after {SECONDS} s") from None
    if done.returncode:
        lines = ["it says nothing", *done.stderr.strip().splitlines()]
        errors = [line for line in lines if line.lower().startswith("error: ")] or lines
        raise UserError(f"{name}: {errors[-1].removeprefix('error: ').removeprefix('ERROR: ')}")


# experiments


@dataclass(frozen=True)
class ExperimentRun:
    """What an experiment of DVC, or the commit that experiments started from, has of a recipe.

    Attributes:
        recipe: of `dvc.yaml`.
        experiment: DVC's name for it; of a commit its branch, or the beginning of its hash.
        state: `baseline`, `done`, `failed`, `queued` or `running`.
        changed_params: the params that differ from the commit's, as text.
        metrics: by short name.
        revision: the hash of its commit.
    """

    recipe: str
    experiment: str
    state: str
    changed_params: Mapping[str, str]
    metrics: Mapping[str, Estimate]
    revision: str

    @property
    def name(self) -> str:
        """What the page calls it: `vunet @ kl-1`."""
        return f"{self.recipe} @ {self.experiment}"

    @property
    def has_results(self) -> bool:
        """Whether it has ended well."""
        return self.state in ("baseline", "done")


def experiments(project: Project) -> list[ExperimentRun]:
    """Return DVC's experiments, each after the commit that it started from; none if there is no repository of DVC.

    An experiment stands at each recipe whose params it changes, and at each recipe if it changes none. It takes
    seconds, and runs DVC as a program, which leaves no memory behind.

    Raises:
        UserError: DVC fails.
    """
    if not (project.root / ".dvc").is_dir():
        return []
    rows: list[ExperimentRun] = []
    for commit in _baselines(project.root):
        shown = exp_show(None, commit)
        baseline = _baseline(shown, commit)
        try:
            others = list(read_sweep(shown, commit).experiments)
        except UserError:  # no experiment started from it
            others = []
        for one in (*([baseline] if baseline else []), *others):
            rows += experiment_runs(project, one, baseline or one)
    return rows


def _baseline(shown: Any, commit: str) -> Experiment | None:
    """Return the commit itself, which `read_sweep` returns only if experiments started from it."""
    with suppress(TypeError, KeyError, IndexError):
        of_commit = [one | {"experiments": [{"revs": [one], "name": "-"}]} for one in shown if one["rev"] == commit]
        return read_sweep(of_commit, commit).baseline
    return None


def _baselines(root: Path) -> list[str]:
    """Return HEAD, which those in the queue started from, and the other commits with experiments, from their names."""

    def git(*arguments: str) -> list[str]:
        with suppress(OSError):  # no git here
            command = ["git", "-C", str(root), *arguments]
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        return []

    head = git("rev-parse", "--verify", "--quiet", "HEAD")
    names = git("for-each-ref", "--format=%(refname)", "refs/exps")
    matches = [re.fullmatch("refs/exps/([0-9a-f]{2})/([0-9a-f]{38})/.+", one) for one in names]
    return list(dict.fromkeys([*head, *(match[1] + match[2] for match in matches if match)]))


def experiment_runs(project: Project, one: Experiment, baseline: Experiment) -> list[ExperimentRun]:
    """Return what an experiment has of each recipe that it concerns."""
    changed = {
        key: formatted(value)
        for key, value in one.params.items()
        if baseline.params and formatted(value) != formatted(baseline.value(key))
    }
    prefixes = {recipe: _prefix(project.params(recipe)) for recipe in project.recipes}
    of_recipe = {recipe: {k: v for k, v in changed.items() if _is_of(k, prefixes[recipe])} for recipe in prefixes}
    recipes = [recipe for recipe in prefixes if of_recipe[recipe]] or list(prefixes)
    return [
        ExperimentRun(recipe, one.name, one.state, of_recipe[recipe], _estimates(one, recipe), one.rev)
        for recipe in recipes
        if one.state != "baseline" or _estimates(one, recipe)
    ]


def _prefix(params: Path) -> str:
    """Return how names of params in a file begin; those of the main file have none."""
    return "" if str(params) == MAIN else f"{params}:"


def _is_of(key: str, prefix: str) -> bool:
    return key.startswith(prefix) if prefix else ":" not in key


def _estimates(one: Experiment, recipe: str) -> dict[str, Estimate]:
    stem = f"{METRICS}/{recipe}.json:"
    estimates = {}
    for key in one.metrics:
        if key.startswith(stem) and key.endswith(".value") and (estimate := one.estimate(key)) is not None:
            estimates[key.removeprefix(stem).removesuffix(".value")] = estimate
    return estimates


def fetch_run(project: Project, one: ExperimentRun, scratch: Path) -> Run:
    """Return the training of an experiment or a commit: its history, its resolved recipe, its result pictures.

    Args:
        project: the repository.
        one: the experiment, which has results.
        scratch: a folder; files appear below it, and are taken from there the next time.

    Raises:
        UserError: DVC's cache does not have them.
    """
    command = ["dvc", "get", ".", "--rev", one.revision]
    folder = scratch / one.revision / one.recipe
    run, plots = f"{RUNS}/{one.recipe}", f"{PLOTS}/{one.recipe}"
    parts = {f"{run}/history": "history", f"{run}/model/recipe.yaml": "model/recipe.yaml"}
    for path, part in (parts | {f"{plots}/pictures": "pictures"}).items():
        if (folder / part).exists():
            continue
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        try:
            _program([*command, path, "--out", str(folder / part)], project.root)
        except UserError as error:
            if part != "pictures":
                advice = f"if a remote has it: `dvc fetch --all-commits train@{one.recipe}`"
                raise UserError(f"{one.name}: {path} is not in DVC's cache ({error}); {advice}") from None
    live = folder / "live"
    step, steps = _last_step(folder, live, TRAINED), _steps(folder / "model", live)
    state = f"commit {one.experiment}" if one.state == "baseline" else f"experiment {one.experiment}"
    return Run(one.name, folder, state, None, live, folder / "pictures", step, steps, metrics=one.metrics)


# stop and resume


def stop(run: Run) -> Holder:
    """Ask the training of a run to stop, after a resume point; return whom it was that held the lock.

    Raises:
        UserError: nobody is at work there, or a process of another machine, or it cannot be told which.
    """
    holder = lock_holder(run.folder)
    if holder is None:
        raise UserError(f"{run.name}: no process is at work there, so nothing is to be stopped")
    if holder.process and holder.host != platform.node():
        raise UserError(f"{run.name}: {holder} trains; this is {platform.node()}: `kill {holder.process}` there")
    try:
        process = os.pidfd_open(holder.process)  # stays that process, even if its number is used again
    except (OSError, ValueError):
        raise UserError(f"{run.name}: which process is at work there cannot be told; try again") from None
    try:
        if locking_process(run.folder) != holder.process:
            raise UserError(f"{run.name}: process {holder.process} does not hold the lock that names it; try again")
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except OSError as error:
        raise UserError(f"{run.name}: process {holder.process} cannot be stopped: {error.strerror}") from None
    finally:
        os.close(process)
    return holder


_dvc_processes: dict[Path, subprocess.Popen[bytes]] = {}  # whom DVC has not let train yet holds no lock


def resume(project: Project, recipe: str) -> int:
    """Let DVC train a recipe, or go on; it survives this process, which it returns the number of.

    Raises:
        UserError: there is no such recipe, or a process is at work there.
    """
    _refuse_unknown(project, recipe)
    run = read_run(project.root, recipe)
    if run.holder is not None:
        raise UserError(f"{recipe}: {run.holder} is at work there; wait for it, or stop it")
    before = _dvc_processes.get(run.folder)
    if before is not None and before.poll() is None:
        raise UserError(f"{recipe}: `dvc repro` is at work for it already, process {before.pid}; wait for it")
    command = [sys.executable, "-m", "dvc", "repro", f"train@{recipe}"]
    output = _output(run)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("ab") as file:
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        file.write(f"{now}: dvc repro train@{recipe}\n".encode())
        file.flush()
        _dvc_processes[run.folder] = subprocess.Popen(
            command, cwd=project.root, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    return _dvc_processes[run.folder].pid


def launch_status(run: Run) -> str:
    """Return what became of `resume`: that DVC is at work, or how it failed; nothing if there is nothing to tell."""
    process = _dvc_processes.get(run.folder)
    if process is None or run.holder is not None:
        return ""
    status = process.poll()
    if status is None:
        return f"dvc repro train@{run.name} is at work, process {process.pid}"
    return f"dvc repro train@{run.name} ended with status {status}; see its output" if status else ""


def _output(run: Run) -> Path:
    return run.folder / "live" / OUTPUT


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
