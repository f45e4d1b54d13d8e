"""Plots a sweep: each metric over each parameter that varies."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from figura.commands.sweeps import Estimate, Experiment, Sweep, formatted, is_number, labels_of, sortable
from figura.report.curves import WIDE_RANGE, save_figure

COLOURS = 10
"""Colours of matplotlib; more lines than this have one."""

Point = tuple[Experiment, Estimate]


def draw_sweep(sweep: Sweep, metrics: Sequence[str], path: Path) -> None:
    """Draw a row of panels for each metric, one for each parameter; the dashed line and its band show the baseline.

    Bars show intervals. Experiments that agree in all other parameters are joined; of two parameters, the legend says
    which values of the other one the lines have.
    """
    axes = sweep.axes
    columns = max(len(axes), 1)
    size = (max(7.0, 4.0 * columns), 0.4 + 3.4 * len(metrics))
    figure, panels = plt.subplots(len(metrics), columns, figsize=size, squeeze=False, layout="constrained")
    for row, (metric, label) in zip(panels, labels_of(metrics).items(), strict=True):
        points = [(one, estimate) for one in sweep.done if (estimate := one.estimate(metric)) is not None]
        row[0].set_ylabel(label)
        for panel, key in zip(row, axes, strict=False):
            _draw_panel(panel, points, key, [other for other in axes if other != key])
            _draw_baseline(panel, sweep.baseline, metric)
    save_figure(figure, path)


def _draw_panel(panel: Axes, points: Sequence[Point], key: str, others: Sequence[str]) -> None:
    """Draw a metric over a parameter, a line for each combination of values of the others."""
    values = sorted({sortable(v): v for v in (one.value(key) for one, _ in points)}.values(), key=sortable)
    numeric = all(is_number(value) for value in values)
    lines: dict[tuple[Any, ...], list[Point]] = defaultdict(list)
    for point in sorted(points, key=lambda point: [sortable(point[0].value(one)) for one in (*others, key)]):
        lines[tuple(formatted(point[0].value(one)) for one in others)].append(point)
    for number, (group, line) in enumerate(lines.items()):
        own = [one.value(key) for one, _ in line]
        x = [float(value) if numeric else [sortable(one) for one in values].index(sortable(value)) for value in own]
        bounds = np.array([[one.value - one.low, one.high - one.value] for _, one in line]).T
        panel.errorbar(
            x, [estimate.value for _, estimate in line], yerr=np.nan_to_num(bounds).clip(min=0),
            fmt="o-" if numeric else "o", color=f"C{number if len(lines) <= COLOURS else 0}", markersize=4,
            linewidth=1.2, capsize=2, label=group[0] if len(others) == 1 else None,
        )  # fmt: skip
    if not numeric:
        panel.set_xticks(range(len(values)), [formatted(value) for value in values])
    elif values and 0 < values[0] < values[-1] / WIDE_RANGE:
        panel.set_xscale("log")
    if len(others) == 1 and len(lines) <= COLOURS:
        panel.legend(title=others[0], fontsize="small", title_fontsize="small")
    panel.set_xlabel(key)
    panel.grid(alpha=0.3)


def _draw_baseline(panel: Axes, baseline: Experiment, metric: str) -> None:
    """Draw the metric of the commit that the experiments started from."""
    if (estimate := baseline.estimate(metric)) is None:
        return
    panel.axhline(estimate.value, color="0.4", linestyle="--", linewidth=1)
    if np.isfinite([estimate.low, estimate.high]).all():
        panel.axhspan(estimate.low, estimate.high, color="0.5", alpha=0.12, linewidth=0)
