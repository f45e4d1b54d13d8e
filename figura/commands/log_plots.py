"""Reads the logs of saved runs, and plots losses, learning rates, gradient norms and speed of several together."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figura.base.errors import UserError
from figura.commands.live_log import Points, log_curves
from figura.recipe.trial import KEY, is_try
from figura.report.curves import (
    TRAINING,
    VALIDATION,
    add_legend,
    colours_of,
    draw_losses,
    fit_axis,
    losses_of,
    read_histories,
    save_figure,
)

LEAST_RATE = 1e-4
"""The axis ends at this fraction of the highest learning rate: a schedule that decays to 0 would take all of it."""

STYLES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")


class Log(NamedTuple):
    """The history and the live log of a run.

    Attributes:
        train: `step`; `.raw`, `.weight`, `.weighted` of each loss; `.lr`, `.grad_norm`, `.skipped` of each step.
        validation: `step`; `.raw` of each loss.
        live: the curves of the live log; none without it.
    """

    train: pd.DataFrame
    validation: pd.DataFrame
    live: Mapping[str, Points]


def read_log(run: Path) -> Log:
    """Read `history/*.csv` of a run folder, and `live/log.jsonl` if it exists; of a try, `try/live/log.jsonl`.

    Raises:
        UserError: the history is missing, or a file has another format.
    """
    train, validation = (table.astype("float64") for table in read_histories(run))
    needed = [f"{name}.{kind}" for name in losses_of(train) for kind in ("weight", "weighted")]
    if not needed or not set(needed) <= set(train):
        path = run / "history" / "train.csv"
        raise UserError(f"{path}: no loss in it; columns <loss>.raw, .weight and .weighted are needed")
    folder = run / KEY if is_try(run / "model") else run
    return Log(train, validation, log_curves(folder / "live" / "log.jsonl"))


def total_loss(train: pd.DataFrame, validation: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the weighted sum of all losses for each row of training and of validation.

    A validation row takes each loss's weight from the training row (the window) that contains its step.
    """
    whole = [name for name in losses_of(train) if "." not in name]  # not their components
    parts = {}
    for name in whole:
        weights = train[["step", f"{name}.weight"]].dropna()
        if f"{name}.raw" in validation and len(weights):
            window = np.searchsorted(weights["step"], validation["step"]).clip(max=len(weights) - 1)
            parts[name] = validation[f"{name}.raw"] * weights[f"{name}.weight"].to_numpy()[window]
    of_training = train[[f"{name}.weighted" for name in whole]].sum(axis=1, min_count=1)
    return of_training, pd.DataFrame(parts, index=validation.index).sum(axis=1, min_count=1)


class Curve(NamedTuple):
    """A curve of a run: `values` for the rows of `table`; `name` separates several curves of a run in one panel."""

    label: str
    table: pd.DataFrame
    values: pd.Series
    name: str = ""
    validation: bool = False


def draw_logs(logs: Mapping[str, Log], folder: Path) -> tuple[Path, Path]:
    """Plot labelled runs into two files: `losses.png`, a panel for each loss, and `training.png`; return both."""
    losses, training = folder / "losses.png", folder / "training.png"
    draw_losses({label: (log.train, log.validation) for label, log in logs.items()}, losses)
    draw_training(logs, training)
    return losses, training


def draw_training(logs: Mapping[str, Log], path: Path) -> None:
    """Plot labelled runs over the steps: total loss, learning rates, gradient norms, speed.

    Each step of a recipe (generator, discriminator) has its own line style. Panels without a curve are left out.
    """
    speeds = {label: log.live["images_per_second"] for label, log in logs.items() if "images_per_second" in log.live}
    panels = {
        "total loss, weighted": list(_totals(logs)),
        "learning rate": list(_of_steps(logs, ".lr")),
        "gradient norm": list(_of_steps(logs, ".grad_norm")),
        "images per second": [
            Curve(label, pd.DataFrame({"step": steps}), pd.Series(values)) for label, (steps, values) in speeds.items()
        ],
    }
    panels = {title: curves for title, curves in panels.items() if curves}
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(11.0, 0.5 + 3.0 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    colours = colours_of(logs)
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        axis.set(title=title, xlabel="step")
        _draw_panel(axis, curves, colours)
        if title == "learning rate":
            _as_rates(axis)
    add_legend(figure, list(logs))
    save_figure(figure, path)


def _draw_panel(axis: Axes, curves: list[Curve], colours: Mapping[str, tuple[str, str]]) -> None:
    names = list(dict.fromkeys(curve.name for curve in curves))
    styles = {name: STYLES[index % len(STYLES)] for index, name in enumerate(names)}
    for curve in curves:
        look: dict[str, Any] = VALIDATION if curve.validation else TRAINING
        shown = curve.values.notna()
        colour = colours[curve.label][curve.validation]
        axis.plot(curve.table["step"][shown], curve.values[shown], color=colour, linestyle=styles[curve.name], **look)
    fit_axis(axis)
    if len(names) > 1:
        handles = [Line2D([], [], color="0.4", linestyle=styles[name], label=name, linewidth=1) for name in names]
        axis.legend(handles=handles, fontsize="small")


def _as_rates(axis: Axes) -> None:
    high = axis.dataLim.ymax
    if high > 0:
        axis.set_yscale("log")
        axis.set_ylim(bottom=max(axis.dataLim.minposy, high * LEAST_RATE) / 1.5, top=high * 1.5)


def _totals(logs: Mapping[str, Log]) -> Iterator[Curve]:
    for label, log in logs.items():
        train, validation = total_loss(log.train, log.validation)
        yield Curve(label, log.train, train)
        yield Curve(label, log.validation, validation, validation=True)


def _of_steps(logs: Mapping[str, Log], ending: str) -> Iterator[Curve]:
    for label, log in logs.items():
        for column in log.train:
            if str(column).endswith(ending):
                yield Curve(label, log.train, log.train[column], str(column).removesuffix(ending))
