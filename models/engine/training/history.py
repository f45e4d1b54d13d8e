"""The deterministic record of a training: what each loss was, raw and weighted, by step.

Throughput and other clock readings are kept apart (reporting.py), so that two runs of one recipe write the same bytes.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.engine.files import write_text
from models.engine.training.steps import StepReport

Row = dict[str, float | int]


class History:
    """Means over windows of `every` iterations, one row each, and one row for each validation pass.

    Columns: `step` (iterations done), `<loss>.raw`, `<loss>.weight`, `<loss>.weighted`, and for each step `<step>.lr`,
    `<step>.grad_norm`, `<step>.skipped` (updates not made because something was not finite). A step that trains several
    networks has `<step>.<network>.grad_norm` of each beside; `recoveries` is there from the first on, and counts how
    often training went back (what it then repeats replaces what was recorded of it). Rows of validation have
    `<loss>.raw` and what callbacks give.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.train: list[Row] = []
        self.validation: list[Row] = []
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, iteration: int, reports: Mapping[str, StepReport], last: bool, recoveries: int = 0) -> Row | None:
        """Take in the reports of an iteration (1 is the first); return a row when a window is full or training ends."""
        for step, report in reports.items():
            for name, raw in report.raw.items():
                if not report.skipped:
                    self._sum(f"{name}.raw", raw)
                    self._sum(f"{name}.weight", torch.tensor(report.weights[name], dtype=torch.float64))
                    self._sum(f"{name}.weighted", raw * report.weights[name])
            if report.raw:  # else the batch had nothing to learn from, and there was no update
                self._sum(f"{step}.lr", torch.tensor(report.learning_rate, dtype=torch.float64))
            if report.grad_norm is not None and not report.skipped:
                self._sum(f"{step}.grad_norm", report.grad_norm)
                for network, norm in report.grad_norms.items():
                    self._sum(f"{step}.{network}.grad_norm", norm)
            self._sum(f"{step}.skipped", torch.tensor(float(report.skipped), dtype=torch.float64))
        if iteration % self.every and not last:
            return None
        row: Row = {"step": iteration}
        for name, total in self._sums.items():
            mean = total.item() / (1 if name.endswith(".skipped") else self._counts[name])
            row[name] = mean
        if recoveries:
            row["recoveries"] = recoveries
        self._sums, self._counts = {}, {}
        self.train.append(row)
        return row

    def _sum(self, name: str, value: Tensor) -> None:
        value = value.detach().double() if value.device.type != "mps" else value.detach()
        self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._counts[name] = self._counts.get(name, 0) + 1

    def state_dict(self) -> dict[str, Any]:
        """Return everything, the unfinished window included."""
        return {"train": self.train, "validation": self.validation, "sums": self._sums, "counts": self._counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo `state_dict`."""
        self.train, self.validation = list(state["train"]), list(state["validation"])
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])

    def write(self, folder: Path) -> None:
        """Write `train.csv` and `validation.csv`."""
        write_text(folder / "train.csv", as_csv(self.train))
        write_text(folder / "validation.csv", as_csv(self.validation))


def as_csv(rows: list[Row]) -> str:
    """Return rows as CSV; a column for each name in order of appearance, empty where a row lacks it."""
    columns = list(dict.fromkeys(["step", *(name for row in rows for name in row)]))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: repr(v) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return buffer.getvalue()
