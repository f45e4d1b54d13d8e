"""Evaluates checkpoints into a table and a picture of their metrics over the steps, each checkpoint once."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from figura.base.errors import UserError
from figura.base.tables import read_rows, write_rows
from figura.dump import Dump
from figura.evaluation.trained import load_trained, refuse_foreign, with_split, write_dump
from figura.recipe.schema import Recipe
from figura.recipe.trial import mark
from figura.report.curves import save_figure
from figura.report.metrics import compute_metrics, flattened
from figura.training.checkpoints import models_in, step_of

KEYS = ("checkpoint", "step")
TABLE, PICTURE = "evaluations.csv", "evaluations.png"
COLUMNS = 4  # panels in a row


class CheckpointWatch:
    """Evaluates the model folders in `folder` into `output`, as `recipe` says, optionally on another `split`.

    Checkpoints whose name is in the table are not evaluated again. Another training therefore needs another `output`.

    Raises:
        UserError: several processes were started; they might see different checkpoints.
    """

    def __init__(self, folder: Path, output: Path, recipe: Recipe, split: str | None = None) -> None:
        if (processes := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
            raise UserError(f"a folder of checkpoints is evaluated by one process, found {processes}: start one only")
        self.folder, self.output, self.recipe, self.split = folder, output, recipe, split
        self.evaluated = 0
        self._reported: set[str] = set()  # incomplete checkpoints that were already printed

    def refuse_nothing(self) -> None:
        """Raise UserError if there is no model folder yet."""
        if not self.folder.exists():
            raise UserError(f"{self.folder}: no such folder; a training with `runtime.checkpoint_every` writes it")
        if not models_in(self.folder):
            raise UserError(f"{self.folder}: neither a model folder (no recipe.yaml) nor a folder of such folders")

    def evaluate_all(self) -> None:
        """Evaluate all model folders that exist now.

        Raises:
            UserError: some cannot be read (raised after the others are done).
        """
        if faults := self.scan():
            raise UserError("\n".join(faults.values()))
        print(f"{self.evaluated} evaluated; see {self.output / TABLE}")

    def watch(self, seconds: float) -> None:
        """Evaluate new checkpoints every `seconds`, until Ctrl-C."""
        print(f"watching {self.folder} every {seconds:g} s; Ctrl-C ends it", flush=True)
        try:
            while True:
                start = time.monotonic()
                for name, fault in self.scan().items():
                    if name not in self._reported:
                        print(f"{name}: not complete yet, trying again every {seconds:g} s: {fault}", flush=True)
                        self._reported.add(name)
                time.sleep(max(0.0, start + seconds - time.monotonic()))
        except KeyboardInterrupt:
            print(f"\ninterrupted; {self.evaluated} evaluated; see {self.output / TABLE}", flush=True)

    def scan(self) -> dict[str, str]:
        """Evaluate the checkpoints that are not in the table; return the reasons, by name, why others cannot be read.

        Raises:
            UserError: waiting cannot help: a dataset, an injector or a score finds a fault, or a dump's folder holds
                something else.
        """
        done = {row["checkpoint"] for row in read_evaluations(self.output / TABLE)}
        faults: dict[str, str] = {}
        for model in models_in(self.folder):
            if model.name in done:
                continue
            try:
                trained, networks = load_trained(model, self.recipe)
            except UserError as fault:
                faults[model.name] = str(fault)
                continue
            dump = self.output / model.name
            refuse_foreign(dump)
            write_dump(trained if self.split is None else with_split(trained, self.split), networks, dump)
            metrics = flattened(compute_metrics(self.recipe, Dump(dump)))
            append_row(self.output / TABLE, {"checkpoint": model.name, "step": step_of(model.name), **metrics})
            draw_evaluations(self.output / TABLE, self.output / PICTURE)
            self.evaluated += 1
            trial = f"{mark(trained)}: " if trained.train.try_ else ""
            print(f"{trial}{model.name}: " + ", ".join(f"{n} {v:.5g}" for n, v in metrics.items()), flush=True)
        return faults


def read_evaluations(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table as strings; an empty list if the file does not exist.

    Raises:
        UserError: the file is damaged, or has no column `checkpoint`.
    """
    advice = "it is damaged, or not a table of evaluations; choose another OUTPUT"
    return read_rows(path, "checkpoint", advice) if path.exists() else []


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row to a table, atomically; earlier rows keep their text, new columns come last."""
    write_rows(path, KEYS, [*read_evaluations(path), row])


def draw_evaluations(table: Path, path: Path) -> None:
    """Plot each metric of a table over the steps, one panel each, with its interval; skip rows without a step.

    Raises:
        UserError: the table is damaged: a cell is neither empty nor a number.
    """
    texts = pd.DataFrame(read_evaluations(table)).drop(columns="checkpoint", errors="ignore").replace("", None)
    try:
        rows = texts.astype("float64").dropna(subset="step").sort_values("step")
    except (ValueError, KeyError) as error:
        raise UserError(f"{table}: no table of evaluations: {error}") from None
    bounds = {f"{column}.{bound}" for column in rows for bound in ("low", "high")}
    names = [column for column in rows if column not in {*KEYS, *bounds} and rows[column].notna().any()]
    if rows.empty or not names:
        return
    columns = min(COLUMNS, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.4 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    for axis, name in zip(axes.flat, names, strict=False):
        curve = rows[rows[name].notna()]
        axis.plot(curve["step"], curve[name], "o-", markersize=4.0, color="tab:blue")
        if f"{name}.low" in rows:
            axis.fill_between(curve["step"], curve[f"{name}.low"], curve[f"{name}.high"], color="tab:blue", alpha=0.2)
        if axis.dataLim.ymin >= 0:
            axis.set_ylim(bottom=0.0)
        axis.grid(alpha=0.3)
        axis.set_title(name, fontsize="medium")
        axis.set_xlabel("step")
    save_figure(figure, path)
