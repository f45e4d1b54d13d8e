"""Evaluates model folders as they appear, each once: a dump of each, one table of their figures, one picture of that.

<checkpoint>/      its dump
evaluations.csv    one row an evaluated checkpoint: `checkpoint`, `step`, its figures
evaluations.png    the figures over the steps
"""

import csv
import io
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from models.base.errors import UserError
from models.base.files import write_text
from models.dump import Dump
from models.evaluation.trained import load_trained, refuse_foreign, with_split, write_dump
from models.recipe.schema import Recipe
from models.report.curves import save_figure
from models.report.metrics import compute_metrics, flattened
from models.training.checkpoints import models_in, step_of

KEYS = ("checkpoint", "step")
TABLE, PICTURE = "evaluations.csv", "evaluations.png"
COLUMNS = 4  # of panels


class Evaluations:
    """Evaluates the model folders in `folder` into `output`, as the recipe asks; on `split`, if it is given.

    What stands in the table is not evaluated again, whatever its name now stands for: another training needs another
    `output`.

    Raises:
        UserError: several processes were started, which might see different checkpoints.
    """

    def __init__(self, folder: Path, output: Path, asked: Recipe, split: str | None = None) -> None:
        if (processes := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
            raise UserError(f"a folder of checkpoints is evaluated by one process, found {processes}: start one only")
        self.folder, self.output, self.asked, self.split = folder, output, asked, split
        self.evaluated = 0
        self._waiting: set[str] = set()  # those of which it was said that they are incomplete

    def once(self) -> None:
        """Evaluate all that are there.

        Raises:
            UserError: there is none, or, when all others are done, some cannot be read.
        """
        if not models_in(self.folder):
            raise UserError(f"{self.folder}: neither a model folder (no recipe.yaml) nor a folder of such folders")
        if faults := self.scan():
            raise UserError("\n".join(faults.values()))
        print(f"{self.evaluated} evaluated; see {self.output / TABLE}")

    def watch(self, seconds: float) -> None:
        """Evaluate all that are there, and look again that long after the last look began, until interrupted (Ctrl-C)."""
        print(f"watching {self.folder} every {seconds:g} s; Ctrl-C ends it", flush=True)
        try:
            while True:
                start = time.monotonic()
                for name, fault in self.scan().items():
                    if name not in self._waiting:
                        print(f"{name}: not complete yet, tried again at each look: {fault}", flush=True)
                        self._waiting.add(name)
                time.sleep(max(0.0, start + seconds - time.monotonic()))
        except KeyboardInterrupt:
            print(f"\ninterrupted; {self.evaluated} evaluated; see {self.output / TABLE}", flush=True)

    def scan(self) -> dict[str, str]:
        """Evaluate those that are not in the table yet; return, by name, why others cannot be read (yet).

        Raises:
            UserError: what no wait can help: a dataset, an injector or a score finds a fault, something else than a dump
                stands where one would go.
        """
        done = {row["checkpoint"] for row in read_rows(self.output / TABLE)}
        faults: dict[str, str] = {}
        for model in models_in(self.folder):
            if model.name in done:
                continue
            try:
                recipe, networks = load_trained(model, self.asked)
            except UserError as fault:
                faults[model.name] = str(fault)
                continue
            dump = self.output / model.name
            refuse_foreign(dump)
            write_dump(recipe if self.split is None else with_split(recipe, self.split), networks, dump)
            figures = flattened(compute_metrics(self.asked, Dump(dump)))
            append_row(self.output / TABLE, {"checkpoint": model.name, "step": step_of(model.name), **figures})
            draw_evaluations(self.output / TABLE, self.output / PICTURE)
            self.evaluated += 1
            print(f"{model.name}: " + ", ".join(f"{n} {v:.5g}" for n, v in figures.items()), flush=True)
        return faults


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table as texts, none where there is no file.

    Raises:
        UserError: it has no column `checkpoint`.
    """
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if "checkpoint" not in (reader.fieldnames or ()):
            raise UserError(f"{path}: no column `checkpoint`; it is no table of evaluations, choose another --output")
        return list(reader)


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row to a table, atomically; the others keep their texts, new columns come last."""
    rows = [*read_rows(path), row]
    columns = list(dict.fromkeys([*KEYS, *(column for one in rows for column in one)]))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, buffer.getvalue())


def draw_evaluations(table: Path, path: Path) -> None:
    """Draw each figure of a table over the steps, a panel each, with its interval; rows without a step are left out."""
    rows = pd.read_csv(table, dtype={"checkpoint": str}).dropna(subset="step").sort_values("step")
    bounds = {f"{column}.{bound}" for column in rows for bound in ("low", "high")}
    names = [column for column in rows if column not in {*KEYS, *bounds} and rows[column].notna().any()]
    if rows.empty or not names:
        return
    columns = min(COLUMNS, len(names))
    lines = -(-len(names) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(3.2 * columns, 2.4 * lines), squeeze=False, layout="constrained"
    )
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
