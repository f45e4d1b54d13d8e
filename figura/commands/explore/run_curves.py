"""Curves of runs from the live log and the history; a curve has few points however long it is."""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from figura.base.errors import UserError
from figura.base.files import read_bytes
from figura.commands.explore.runs import INTERRUPTED, TRAINING, Run, parse_line

MOST = 500
"""Points of a curve."""
LAST = 2**53
"""No iteration is later: floats count no further."""
LOGGED = ("train", "weight", "lr", "grad_norm", "images_per_second", "seconds", "score")
"""What a live log tells, by the beginnings of its keys."""
KINDS = {"raw": "train", "weighted": "weighted", "weight": "weight", "lr": "lr", "grad_norm": "grad_norm"}
"""What a history tells, by the ends of its columns."""

Points = tuple[list[int], list[float]]
"""The steps of a curve, ascending, and its values; NaN where nothing was finite."""


def thin(steps: Sequence[float], values: Sequence[float]) -> Points:
    """Return a curve of at most `MOST` points: means over windows of equal length, each at the last step of its own."""
    window = max(1, -(-len(steps) // MOST))
    ends = [min(start + window, len(steps)) for start in range(0, len(steps), window)]
    parts = np.split(np.asarray(values, np.float64), ends[:-1])
    finite = [part[np.isfinite(part)] for part in parts]
    return [int(steps[end - 1]) for end in ends], [float(one.mean()) if len(one) else math.nan for one in finite]


def log_curves(path: Path) -> dict[str, Points]:
    """Return the curves in a live log: of every so many iterations losses, weights, rates, scores, speed; {} without.

    `validation_batch.*` are losses of the last validation batch. A resumed process repeats the steps after its resume
    point; they replace the earlier ones. Lines that are no records, such as a half-written one, are left out.
    """
    try:
        lines = read_bytes(path).split(b"\n")
    except UserError:
        return {}
    curves: dict[str, Points] = {}
    for line in lines:
        _add(curves, parse_line(line))
    return {name: thin(*curve) for name, curve in curves.items()}


def _add(curves: dict[str, Points], record: Mapping[str, Any]) -> None:
    step = record.get("step")
    if not isinstance(step, int | float) or not 0 <= step <= LAST:
        return
    for key, value in record.items():
        head, _, name = key.partition(".")
        curve = f"validation_batch.{name}" if head == "validation" else key if head in LOGGED else None
        if curve is None or type(value) not in (int, float) or abs(value) > sys.float_info.max:
            continue
        steps, values = curves.setdefault(curve, ([], []))
        while steps and steps[-1] >= step:
            steps.pop()
            values.pop()
        steps.append(int(step))
        values.append(float(value))


def history_curves(folder: Path) -> dict[str, Points]:
    """Return the curves in `history/` of a run folder, means over windows. Raises UserError if it is damaged."""
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


class Curves:
    """The curves of a run, read again when its files have changed."""

    def __init__(self) -> None:
        self._version: object = None
        self._curves: dict[str, Points] = {}

    def read(self, run: Run) -> dict[str, Points]:
        """Return the curves by name, sorted: `train.total`, `validation.total`, then the others.

        They come from the live log, and for a run that has ended from its history, too, which takes precedence.

        Raises:
            UserError: the history is damaged.
        """
        log, history = run.live / "log.jsonl", run.folder / "history" / "train.csv"
        ended = run.state not in (TRAINING, INTERRUPTED) and history.is_file()
        version = [(path, path.stat().st_mtime_ns) for path in (log, history) if path.exists()], ended
        if version != self._version:
            curves = log_curves(log) | (history_curves(run.folder) if ended else {})
            first = [name for name in ("train.total", "validation.total") if name in curves]
            self._curves = {name: curves[name] for name in [*first, *sorted(curves.keys() - set(first))]}
            self._version = version
        return self._curves
