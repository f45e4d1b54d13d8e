"""Plots a sweep: a metric over one parameter, over two (lines or a heat map), or over each of several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from figura.commands.sweeps import Estimate, Experiment, Sweep, formatted, is_number, labels_of, sortable
from figura.report.curves import WIDE_RANGE, save_figure

MOST_LINES = 3
"""Two parameters are plotted as lines if one of them has at most this many values, else as a heat map."""

Point = tuple[Experiment, Estimate]


def draw_sweep(sweep: Sweep, metrics: Sequence[str], path: Path) -> None:
    """Draw a row of panels for each metric; bars show intervals, the dashed line and its band show the baseline.

    A full grid over two parameters becomes lines or a heat map. Otherwise each parameter has a panel with all
    experiments.
    """
    axes = sweep.axes
    together = len(axes) == 2 and _is_full_grid(sweep.done, axes)
    columns = 1 if together else max(len(axes), 1)
    size = (max(7.0, 4.0 * columns), 0.4 + 3.4 * len(metrics))
    figure, panels = plt.subplots(len(metrics), columns, figsize=size, squeeze=False, layout="constrained")
    for row, (metric, label) in zip(panels, labels_of(metrics).items(), strict=True):
        points = [(one, estimate) for one in sweep.done if (estimate := one.estimate(metric)) is not None]
        row[0].set_ylabel(label)
        if together:
            _draw_both(row[0], points, axes, sweep.baseline, metric, label)
            continue
        for panel, key in zip(row, axes, strict=False):
            _draw_line(panel, points, key, "C0", joined=len(axes) == 1)
            _draw_baseline(panel, sweep.baseline, metric)
    save_figure(figure, path)


def _values(experiments: Sequence[Experiment], key: str) -> list[Any]:
    """The distinct values of a parameter, sorted."""
    return sorted({sortable(v): v for v in (e.value(key) for e in experiments)}.values(), key=sortable)


def _is_full_grid(experiments: Sequence[Experiment], axes: Sequence[str]) -> bool:
    """Whether every value of one parameter was tried with every value of the other, exactly once."""
    cells = {tuple(sortable(one.value(key)) for key in axes) for one in experiments}
    return len(cells) == len(experiments) == np.prod([len(_values(experiments, key)) for key in axes])


def _draw_both(
    panel: Axes, points: Sequence[Point], axes: Sequence[str], baseline: Experiment, metric: str, label: str
) -> None:
    """Draw a metric over two parameters that form a full grid."""
    group, along = sorted(axes, key=lambda key: len(_values([one for one, _ in points], key)))
    groups = _values([one for one, _ in points], group)
    if len(groups) > MOST_LINES:
        _draw_grid(panel, points, (group, along), label)
        return
    for place, value in enumerate(groups):
        of_group = [point for point in points if sortable(point[0].value(group)) == sortable(value)]
        _draw_line(
            panel, of_group, along, f"C{place}", joined=True, label=formatted(value),
            shift=place - (len(groups) - 1) / 2,
        )  # fmt: skip
    _draw_baseline(panel, baseline, metric)
    panel.legend(title=group, fontsize="small", title_fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_grid(panel: Axes, points: Sequence[Point], axes: tuple[str, str], label: str) -> None:
    """Draw a heat map with a cell for each pair of values, and the metric written in it."""
    rows, columns = (_values([one for one, _ in points], key) for key in axes)
    cells = np.full((len(rows), len(columns)), np.nan)
    for one, estimate in points:
        row, column = (_place(values, one.value(key)) for values, key in zip((rows, columns), axes, strict=True))
        cells[row, column] = estimate.value
    image = panel.imshow(cells, aspect="auto", origin="lower", cmap="viridis")
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for (row, column), value in np.ndenumerate(cells):
        if np.isfinite(value):
            colour = "black" if value > middle else "white"
            panel.text(column, row, f"{value:.4g}", ha="center", va="center", color=colour, fontsize="small")
    panel.set_yticks(range(len(rows)), [formatted(value) for value in rows])
    panel.set_xticks(range(len(columns)), [formatted(value) for value in columns])
    panel.set(xlabel=axes[1], ylabel=axes[0])
    panel.figure.colorbar(image, ax=panel, label=label)


def _place(values: Sequence[Any], value: Any) -> int:
    return [sortable(one) for one in values].index(sortable(value))


def _draw_line(
    panel: Axes, points: Sequence[Point], key: str, colour: str, *, joined: bool, label: str = "", shift: float = 0.0
) -> None:
    """Draw points with intervals over a parameter. Values that are words are placed side by side and not joined.

    `shift` moves a group's intervals sideways, in hundredths of the axis, so that groups do not cover each other.
    """
    values = _values([one for one, _ in points], key)
    numeric = all(is_number(value) for value in values)
    ordered = sorted(points, key=lambda point: sortable(point[0].value(key)))
    own = [one.value(key) for one, _ in ordered]
    x = np.array([float(value) if numeric else _place(values, value) for value in own])
    wide = numeric and len(x) > 0 and 0 < x.min() < x.max() / WIDE_RANGE
    if wide:
        panel.set_xscale("log")
        x = x * (x.max() / x.min()) ** (shift / 100)
    elif len(x):
        x = x + shift / 100 * (float(np.ptp(x)) or 1.0)
    if not numeric:
        panel.set_xticks(range(len(values)), [formatted(value) for value in values])
    y = np.array([estimate.value for _, estimate in ordered])
    bounds = np.array([[one.value - one.low, one.high - one.value] for _, one in ordered]).T
    bars = np.nan_to_num(bounds).clip(min=0) if len(y) else None
    style = "o-" if joined and numeric else "o"
    panel.errorbar(
        x, y, yerr=bars, fmt=style, color=colour, markersize=4, linewidth=1.2, capsize=2, label=label or None
    )
    panel.set_xlabel(key)
    panel.grid(alpha=0.3)


def _draw_baseline(panel: Axes, baseline: Experiment, metric: str) -> None:
    """Draw the metric of the commit that the experiments started from."""
    if (estimate := baseline.estimate(metric)) is None:
        return
    panel.axhline(estimate.value, color="0.4", linestyle="--", linewidth=1, label=f"baseline ({baseline.name})")
    if np.isfinite([estimate.low, estimate.high]).all():
        panel.axhspan(estimate.low, estimate.high, color="0.5", alpha=0.12, linewidth=0)
