"""The log of a training: every loss of every iteration, with weights, learning rates and gradient norms.

All displays of losses are views of this log: `<run>/live/losses.csv` has each iteration, `<run>/history` has window
means (an output of the stage, so no timestamps), and `latest` feeds the progress line and the trackers.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from figura.base.errors import UserError, nearest
from figura.base.files import write_text
from figura.interfaces import Row, StepReport, loss_of

COLUMNS = ("step", "loss", "raw", "weight", "weighted")


class LossLog:
    """One row per iteration, with the columns of `history/train.csv`.

    Columns: `step` (iterations done), `<loss>.raw`, `<loss>.weight`, `<loss>.weighted`, and per step `<step>.lr`,
    `<step>.grad_norm`, `<step>.skipped` (1 if the update was skipped because something was not finite). A step that
    trains several networks also has `<step>.<network>.grad_norm`. Adding a row never waits for the GPU: values stay on
    their device until `fetch`, at the end of a window, at a log line, and at a resume point.

    Args:
        path: `losses.csv`; with None, only the latest values are kept.
        tags: the step of each loss, by the name of the loss.
        every: iterations in a window of the history.
    """

    def __init__(self, path: Path | None, tags: Mapping[str, str], every: int) -> None:
        self.path, self.tags, self.every = path, dict(tags), every
        self.train: list[Row] = []
        self.validation: list[Row] = []
        self.latest: dict[str, float] = {}  # of each column the last value between the last two calls of `flush`
        self._reports: list[tuple[int, Mapping[str, StepReport]]] = []
        self._window: list[dict[str, float]] = []
        self._unwritten: list[dict[str, float]] = []

    def start(self, done: int) -> None:
        """Continue after `done` iterations: remove later iterations of an earlier run from the file."""
        if self.path is not None:
            try:
                rows = self._read()
                write_text(self.path, rows[rows["step"] <= done].to_csv(index=False, lineterminator="\n"))
            except OSError as error:
                self._give_up(error)

    def begin_with(self, iteration: int) -> None:
        """Continue from another training's state: of its iterations, the file gets the rows of the history.

        Its validation after the last of them is left out.
        """
        if self.validation and self.validation[-1]["step"] == iteration:
            self.validation.pop()
        self.start(0)
        self._unwritten = [*self.train, *self._window]
        self.flush()

    def add(self, iteration: int, reports: Mapping[str, StepReport]) -> None:
        """Add the reports of an iteration (the first is 1), and a row to the history when a window ends."""
        self._reports.append((iteration, reports))
        if iteration % self.every == 0:
            self.end_window()

    def end_window(self) -> None:
        """Add the row of the iterations since the last one to the history, if there are any."""
        self.fetch()
        if self._window:
            self.train.append(window_means(self._window, self.tags))
            self._window = []

    def fetch(self) -> None:
        """Convert pending reports into rows, with one transfer from the device."""
        if not self._reports:
            return
        names: list[tuple[int, str]] = []
        tensors: list[Tensor] = []
        rows: list[dict[str, float]] = []
        for place, (iteration, reports) in enumerate(self._reports):
            rows.append({"step": iteration})
            for column, value in _columns(reports):
                rows[place][column] = float("nan") if isinstance(value, Tensor) else value
                if isinstance(value, Tensor):
                    names.append((place, column))
                    tensors.append(value.detach())
        device = tensors[0].device if tensors else None
        fetched = torch.stack([value.to(device) for value in tensors]).cpu().double().tolist() if tensors else []
        for (place, column), number in zip(names, fetched, strict=True):
            rows[place][column] = number
        for row in rows:
            for column in [name for name in row if name.endswith(".weight")]:
                loss = column.removesuffix(".weight")
                row[f"{loss}.weighted"] = row[f"{loss}.raw"] * row[column]
        self._reports = []
        self._window += rows
        self._unwritten += rows

    def flush(self) -> None:
        """Append the losses since the previous call to the file."""
        self.fetch()
        if self._unwritten:  # of all: what runs in some iterations alone may not have run in the last one
            self.latest = {column: value for row in self._unwritten for column, value in row.items()}
        if self.path is not None and self._unwritten:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                header = not self.path.is_file()
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(_long(self._unwritten).to_csv(index=False, header=header, lineterminator="\n"))
            except OSError as error:
                self._give_up(error)
        self._unwritten = []

    def select(self, *query: str) -> list[str]:
        """Return the losses that match a name or step; without a query, all.

        Raises:
            UserError: a query is neither a loss nor a step.
        """
        known = [*self.tags, *dict.fromkeys(self.tags.values())]
        for word in query:
            if word not in known:
                raise UserError(f"no loss or step {word!r}{nearest(word, known)}; there are {', '.join(known)}")
        return [name for name, tag in self.tags.items() if not query or name in query or tag in query]

    def history(self, *query: str) -> pd.DataFrame:
        """Return `step`, `loss`, `raw`, `weight`, `weighted` of the selected losses and their components so far."""
        self.flush()
        rows = self._read()
        return rows[rows["loss"].map(loss_of).isin(self.select(*query))].reset_index(drop=True)

    def last(self, *query: str) -> dict[str, dict[str, float]]:
        """Return the latest `raw`, `weight` and `weighted` of each selected loss computed so far."""
        rows = self.history(*query)
        if self.path is None:
            rows = _long([self.latest]) if self.latest else rows
            rows = rows[rows["loss"].map(loss_of).isin(self.select(*query))]
        latest = rows.drop_duplicates("loss", keep="last").set_index("loss")  # `groupby.last` would skip NaN
        table = latest.loc[rows["loss"].unique(), list(COLUMNS[2:])]
        return {str(name): {str(k): float(v) for k, v in row.items()} for name, row in table.iterrows()}

    def first_nonfinite(self, since: int) -> tuple[int, str] | None:
        """Return the iteration and the name of the first loss that is not finite, from iteration `since` on."""
        self.flush()
        rows = self._read()
        rows = rows[(rows["step"] >= since) & ~np.isfinite(rows["raw"].astype(float))]
        return None if rows.empty else (int(rows["step"].iloc[0]), loss_of(str(rows["loss"].iloc[0])))

    def state_dict(self) -> dict[str, Any]:
        """Return the history, including the unfinished window."""
        self.fetch()
        return {"train": self.train, "validation": self.validation, "window": self._window}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.train, self.validation = list(state["train"]), list(state["validation"])
        self._window = list(state["window"])
        self._reports, self._unwritten = [], []

    def write(self, folder: Path) -> None:
        """Write `train.csv` and `validation.csv`."""
        write_text(folder / "train.csv", as_csv(self.train))
        write_text(folder / "validation.csv", as_csv(self.validation))

    def _give_up(self, error: OSError) -> None:
        """Continue without the file, which no result depends on."""
        print(f"warning: {self.path} cannot be written, and is left out: {error.strerror}", flush=True)
        self.path = None

    def _read(self) -> pd.DataFrame:
        if self.path is None or not self.path.is_file():
            return pd.DataFrame(columns=list(COLUMNS))
        try:
            rows = pd.read_csv(self.path).dropna(subset=["loss"])  # killed while writing: half a row
            return rows.astype({"step": int})
        except (ValueError, KeyError) as error:  # only for display
            print(f"warning: {self.path} is damaged, and begins again: {error!r:.200}", flush=True)
            self.path.unlink(missing_ok=True)
            return pd.DataFrame(columns=list(COLUMNS))


def window_means(rows: list[dict[str, float]], tags: Mapping[str, str]) -> Row:
    """Return the mean of each column over the rows that have it, and the number of skipped updates per step.

    Losses and gradient norms of skipped updates do not count.
    """
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for row in rows:
        skipped = {
            column.removesuffix(".skipped") for column, value in row.items() if column.endswith(".skipped") and value
        }
        for column, value in row.items():
            head, _, kind = column.rpartition(".")
            step = tags.get(loss_of(head)) if kind in ("raw", "weight", "weighted") else head.partition(".")[0]
            if column == "step" or (step in skipped and kind not in ("lr", "skipped")):
                continue
            sums[column] = sums.get(column, 0.0) + value
            counts[column] = counts.get(column, 0) + 1
    means = {column: total / (1 if column.endswith(".skipped") else counts[column]) for column, total in sums.items()}
    return {"step": int(rows[-1]["step"]), **means}


def _columns(reports: Mapping[str, StepReport]) -> list[tuple[str, Tensor | float]]:
    columns: list[tuple[str, Tensor | float]] = []
    for step, report in reports.items():
        for name, raw in report.raw.items():
            columns += [(f"{name}.raw", raw), (f"{name}.weight", report.weights[name]), (f"{name}.weighted", 0.0)]
        if report.raw:  # no losses, no update
            columns.append((f"{step}.lr", report.learning_rate))
        if report.grad_norm is not None:
            columns.append((f"{step}.grad_norm", report.grad_norm))
            columns += [(f"{step}.{network}.grad_norm", norm) for network, norm in report.grad_norms.items()]
        columns.append((f"{step}.skipped", float(report.skipped)))
    return columns


def _long(rows: list[dict[str, float]]) -> pd.DataFrame:
    """Convert one row per iteration to one row per loss, with the columns of `losses.csv`."""
    losses = [
        (int(row["step"]), name, row[column], row[f"{name}.weight"], row[f"{name}.weighted"])
        for row in rows
        for column in row
        if column.endswith(".raw") and (name := column.removesuffix(".raw"))
    ]
    return pd.DataFrame(losses, columns=list(COLUMNS))


def mean_losses(values: Mapping[str, Tensor], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the batch mean of each loss and component, and `total`, the weighted sum of the losses."""
    means = {name: value.detach().float().mean() for name, value in values.items()}
    total = sum((weights[name] * mean for name, mean in means.items() if name in weights), torch.zeros(()))
    return {name: mean.item() for name, mean in means.items()} | {"total": total.item()}


def as_csv(rows: list[Row]) -> str:
    """Return rows as CSV: one column per name, in order of appearance; missing values are empty."""
    columns = list(dict.fromkeys(["step", *(name for row in rows for name in row)]))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: repr(v) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return buffer.getvalue()
