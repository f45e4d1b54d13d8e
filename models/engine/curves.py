"""The history of a training as tables for DVC plots and as one picture."""

from pathlib import Path

import matplotlib
import pandas as pd

from models.engine.files import replacing, write_text

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def losses_of(history: pd.DataFrame) -> list[str]:
    """Return the names of the losses in a history."""
    return [str(column).removesuffix(".raw") for column in history if str(column).endswith(".raw")]


def write_curves(train: pd.DataFrame, validation: pd.DataFrame, folder: Path) -> None:
    """Write a CSV a curve, columns `step` and `value`: each loss raw, weighted, its weight, its validation mean; rates."""
    for history, prefix in ((train, ""), (validation, "validation.")):
        for column in history.columns.drop("step"):
            curve = history[["step", column]].dropna().rename(columns={column: "value"})
            write_text(folder / f"{prefix}{column}.csv", curve.to_csv(index=False, lineterminator="\n"))


def draw_curves(train: pd.DataFrame, validation: pd.DataFrame, path: Path) -> None:
    """Draw each loss over the steps, training and validation, with its effective weight on the right-hand axis."""
    names = losses_of(train)
    rows = -(-len(names) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(11, 3.2 * rows), squeeze=False, layout="constrained")
    for axis, name in zip(axes.flat, names, strict=False):
        axis.plot(train["step"], train[f"{name}.raw"], label="training", color="tab:blue")
        if f"{name}.raw" in validation:
            axis.plot(validation["step"], validation[f"{name}.raw"], "o-", label="validation", color="tab:orange")
        weight = axis.twinx()
        weight.plot(train["step"], train[f"{name}.weight"], "--", color="0.5", linewidth=1)
        weight.set_ylabel("effective weight", color="0.5")
        for one in (axis, weight):
            one.set_ylim(bottom=min(0.0, one.dataLim.ymin))
        axis.set(title=name, xlabel="step", ylabel="raw value")
        axis.grid(alpha=0.3)
        axis.legend(loc="upper right")
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, metadata={"Software": None})
    plt.close(figure)
