"""Write the history of a training as tables for plots, and plot the histories of one or more trainings."""

from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from figura.base.checksums import refuse_damaged
from figura.base.errors import UserError
from figura.base.files import read_bytes, replacing, write_text

if TYPE_CHECKING:  # loaded where something is drawn: evaluations run where it is not installed
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Histories = tuple[pd.DataFrame, pd.DataFrame]  # a run's history: training rows and validation rows

TRAINING, VALIDATION = {"linewidth": 1.0}, {"marker": "o", "markersize": 4.0, "linewidth": 1.8}
WIDE_RANGE = 30.0  # an axis is logarithmic if its values are positive and span more than this ratio


def read_histories(run: Path) -> Histories:
    """Read `history/train.csv` and `history/validation.csv` of a run; an empty cell was not computed.

    A value that is not finite, which may happen in half-precision validation, also becomes an empty cell, with a
    printed note.

    Raises:
        UserError: a file is missing, damaged, or not a table of numbers with a finite `step` in each row.
    """
    train, validation = (_read_history(run / "history" / f"{split}.csv") for split in ("train", "validation"))
    return train, validation


def _read_history(path: Path) -> pd.DataFrame:
    advice = "training writes it when it ends; run train again"
    content = read_bytes(path, advice)
    refuse_damaged(path)
    if (content and not content.endswith(b"\n")) or len({line.count(b",") for line in content.splitlines()}) > 1:
        raise UserError(f"{path}: no table of numbers: its last line is cut off, or rows differ in length; {advice}")
    try:
        table = pd.read_csv(BytesIO(content), keep_default_na=False, na_values=[""])
    except (ValueError, OverflowError, MemoryError) as error:  # pandas: not a table or not text
        raise UserError(f"{path}: no table of numbers: {error}; {advice}") from None
    if "step" not in table or table["step"].isna().any():
        raise UserError(f"{path}: no column 'step', or it has empty cells; {advice}")
    gaps = []
    for column in table:
        try:
            values = table[column].to_numpy(dtype=np.float64)  # parses nan and inf, too
        except (ValueError, OverflowError):
            raise UserError(f"{path}: column {str(column)!r} holds texts, or too large numbers; {advice}") from None
        if (wrong := table[column].notna().to_numpy() & ~np.isfinite(values)).any():
            if column == "step":
                raise UserError(f"{path}: column 'step' holds {values[wrong][0]}; a finite number is needed; {advice}")
            gaps.append(f"{column} at step {', '.join(map(str, table['step'][wrong][:3]))}")
            table[column] = np.where(wrong, np.nan, values)
    if gaps:
        more = f", and {len(gaps) - 5} more columns" if len(gaps) > 5 else ""
        print(f"{path}: not finite, and a gap in the curves: {'; '.join(gaps[:5])}{more}", flush=True)
    return table


def losses_of(history: pd.DataFrame) -> list[str]:
    """Return the names of the losses in a history."""
    return [str(column).removesuffix(".raw") for column in history if str(column).endswith(".raw")]


def write_curves(train: pd.DataFrame, validation: pd.DataFrame, folder: Path, mark: str = "") -> None:
    """Write the histories as three tables for plots, with the columns `step`, `name`, `series` and `value`.

    `losses.csv` has the series training, validation and (effective) weight of each loss, `contributions.csv` weight x
    loss, `updates.csv` learning rate, gradient norm and skipped updates of each optimization step. Names, which title
    the panels, begin with `mark`.
    """
    tables = {
        "losses": [(train, "raw", "training"), (validation, "raw", "validation"), (train, "weight", "weight")],
        "contributions": [(train, "weighted", "weight x loss")],
        "updates": [
            (train, "lr", "learning rate"),
            (train, "grad_norm", "gradient norm"),
            (train, "skipped", "skipped updates"),
        ],
    }
    for table, columns in tables.items():
        curves = pd.concat([_curves(*column) for column in columns])
        curves["name"] = mark + curves["name"]
        write_text(folder / f"{table}.csv", curves.to_csv(index=False, lineterminator="\n"))


def _curves(history: pd.DataFrame, ending: str, series: str) -> pd.DataFrame:
    """Return the columns `<name>.<ending>` of a history in long format: step, name, series, value."""
    names = {str(column): str(column).removesuffix(f".{ending}") for column in history.filter(regex=rf"\.{ending}$")}
    long = history[["step", *names]].rename(columns=names).melt("step", var_name="name").dropna()
    return long.assign(series=series)[["step", "name", "series", "value"]]


def draw_curves(train: pd.DataFrame, validation: pd.DataFrame, path: Path, title: str = "") -> None:
    """Plot each loss of one training over the steps, training and validation, with an optional title."""
    draw_losses({title: (train, validation)}, path)


def draw_losses(runs: Mapping[str, Histories], path: Path) -> None:
    """Plot each loss of labelled runs over the steps: training thin, validation with dots.

    A loss with components has a row of panels, with a column for each component; the other losses share rows. Panels
    show only the runs that have the loss. The effective weight is in the panel's title; if it changes or differs
    between runs, it is a dashed curve on the right-hand axis.
    """
    from matplotlib.figure import Figure

    rows = panels(dict.fromkeys(name for both in runs.values() for history in both for name in losses_of(history)))
    columns = max((len(row) for row in rows), default=1)
    size = (max(11.0, 3.6 * columns), 0.5 + 2.7 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(max(len(rows), 1), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for row, names in enumerate(rows):
        for axis, name in zip(axes[row], names, strict=False):
            if name:
                axis.set_axis_on()
                _draw_loss(axis, name, runs)
    add_legend(figure, list(runs))
    save_figure(figure, path)


def panels(names: Iterable[str]) -> list[list[str]]:
    """Arrange losses in rows: `caf` before its components `caf.vector`, each kind of component in its own column.

    Losses without components fill rows of the same length, or rows of two or three panels if no loss has components. An
    empty name is an empty panel.
    """
    heads: dict[str, list[str]] = {}
    for name in names:
        head, _, component = name.partition(".")
        heads.setdefault(head, []).append(component)
    kinds = list(dict.fromkeys(kind for components in heads.values() for kind in components if kind))
    rows = [
        [head, *(f"{head}.{kind}" if kind in components else "" for kind in kinds)]
        for head, components in heads.items()
        if any(components)
    ]
    plain = [head for head, components in heads.items() if not any(components)]
    length = 1 + len(kinds) if kinds else 2 if len(plain) in (1, 2, 4) else 3
    return rows + [plain[start : start + length] for start in range(0, len(plain), length)]


def colours_of(labels: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return each run's colours of training and validation: two for a single run, else the same for both."""
    names = list(labels)
    if len(names) == 1:
        return {names[0]: ("tab:blue", "tab:orange")}
    return {name: (f"C{index}", f"C{index}") for index, name in enumerate(names)}


def add_legend(figure: "Figure", labels: list[str]) -> None:
    """Add a legend above all panels: training, validation, and each run."""
    from matplotlib.lines import Line2D

    colours = colours_of(labels)
    one = colours[labels[0]] if len(labels) == 1 else ("0.4", "0.4")
    handles = [
        Line2D([], [], color=one[0], label="training", **TRAINING),  # type: ignore[arg-type]
        Line2D([], [], color=one[1], label="validation", **VALIDATION),  # type: ignore[arg-type]
    ]
    if len(labels) > 1:
        handles += [Line2D([], [], color=colours[label][0], linewidth=4, label=label) for label in labels]
    title = labels[0] or None if len(labels) == 1 else None
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 6), frameon=False, title=title)


def fit_axis(axis: "Axes") -> None:
    """Scale the left-hand axis: logarithmic for a wide positive range, else from 0 unless values are negative."""
    low, high = axis.dataLim.ymin, axis.dataLim.ymax
    if 0 < low < high / WIDE_RANGE:
        axis.set_yscale("log")
    elif low >= 0:
        axis.set_ylim(0.0, 1.06 * high or 1.0)
    axis.grid(alpha=0.3)


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure; equal figures have equal bytes."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, metadata={"Software": None})


def _draw_loss(axis: "Axes", name: str, runs: Mapping[str, Histories]) -> None:
    colours = colours_of(runs)
    weights: dict[str, pd.DataFrame] = {}
    for label, histories in runs.items():
        for history, colour, style in zip(histories, colours[label], (TRAINING, VALIDATION), strict=True):
            if f"{name}.raw" in history:
                curve = history[["step", f"{name}.raw"]].dropna()
                seen = style if len(curve) > 1 else VALIDATION  # a single point is no line
                axis.plot(curve["step"], curve[f"{name}.raw"], color=colour, **seen)  # type: ignore[arg-type]
        if f"{name}.weight" in histories[0]:
            weights[label] = histories[0][["step", f"{name}.weight"]].dropna()
    fit_axis(axis)
    axis.set_title(name, loc="left")
    axis.set_xlabel("step")
    values = {round(float(weight), 9) for curve in weights.values() for weight in curve[f"{name}.weight"]}
    if len(values) == 1:
        axis.set_title(f"× {values.pop():g}", loc="right", color="0.5", fontsize="medium")
    elif values:
        right = axis.twinx()
        for label, curve in weights.items():
            colour = "0.5" if len(runs) == 1 else colours[label][0]
            right.plot(curve["step"], curve[f"{name}.weight"], "--", color=colour, linewidth=1)
        right.set_ylim(bottom=min(0.0, right.dataLim.ymin))
        right.set_ylabel("effective weight", color="0.5")
