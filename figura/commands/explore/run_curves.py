"""Curves of runs, also of those that grow: files are read on, and a curve has few points however long it is."""

import io
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.files import open_regular, read_rows
from figura.commands.explore.runs import INTERRUPTED, TRAINING, Run, parse_line
from figura.commands.sweeps import is_number

MOST = 500
"""Points of a curve; even, because windows double."""
CHUNK = 1 << 22
"""Bytes that are read at a time."""
LAST = 2**53
"""No iteration is later: floats count no further."""
MARK = 64
"""Bytes before the offset that tell whether a file was written anew."""
COLUMNS = ["step", "loss", "raw", "weight", "weighted"]
Points = tuple[list[int], list[float]]
"""The steps of a curve, ascending, and its values; NaN where nothing was finite."""


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
                self._add(parse_line(line))

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
    from figura.commands.log_plots import total_loss
    from figura.report.curves import read_histories

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
