"""What a reader of the figures and curves would say: better than the baseline or not, overfitted, stopped too early."""

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from figura.recipe.check_metrics import GAINS
from figura.report.curves import losses_of
from figura.report.interfaces import Estimate
from figura.report.intervals import Floats

RISE, FALL = 0.02, 0.05
"""Shares of a loss's whole fall: a rise of validation, and a fall in the last quarter of training, that count."""
DIVERGED = 10.0  # times its first row


def verdict(gain: Mapping[str, float]) -> str:
    """Return what an interval of the gain over the baseline says; a gain above 0 is an improvement."""
    word = "better than" if gain["low"] > 0 else "worse than" if gain["high"] < 0 else "no better than"
    return f"{word} the baseline"


def verdicts(full: Mapping[str, Mapping[str, Estimate]]) -> dict[str, str]:
    """Return the verdict on each headline that has one, given the figures in `metrics/full`."""
    return {name: verdict(gain) for name, gain in full.get(GAINS, {}).items()}


def losses_to_judge(recipe: Mapping[str, Any]) -> set[str]:
    """Return the losses of an expanded recipe's steps that train a network which evaluation runs.

    A discriminator is not evaluated: its losses may fall because it wins, which is no reason to train longer.
    """
    steps, chains = recipe["steps"], [mode.get("injectors", {}) for mode in recipe["evaluate"]["modes"].values()]
    evaluated = {injector.get("network") for chain in chains for injector in chain.values()}
    judged = {name for name, step in steps.items() if evaluated & {*step["trains"]}}
    return {name for name, loss in recipe["losses"].items() if loss.get("step", next(iter(steps))) in judged}


def judge_curves(train: pd.DataFrame, validation: pd.DataFrame, losses: Collection[str]) -> list[str]:
    """Return at most one line on the curves of a training, as of `curves.read_histories`.

    A training has *diverged* if at its end the largest of `losses`, raw value times last weight, is `DIVERGED` times
    its first row. Else only the loss that fell most is judged, by the same product: what deceives a discriminator
    neither falls nor needs to. It is *overfitted* if its validation has a minimum before the end, is now higher by
    `RISE` of the fall from the first training row to that minimum, and training fell since. Or validation came within
    `RISE` of its minimum in the first half of the training, and training fell by as much since. It is *unfinished* if
    quarters of training have ever lower means, the last one by `FALL` of the whole fall and two standard errors, and
    validation is lowest at the end.
    """
    ends = {name: _ends(train, name) for name in losses_of(train) if name in losses}
    largest = max(ends, key=lambda one: ends[one][1] * ends[one][2], default="")
    if largest and 0 < DIVERGED * ends[largest][0] < ends[largest][1]:
        first, last, _ = ends[largest]
        return [f"{largest}: rises from {first:.3g} to {last:.3g}: diverged; lower the learning rate"]
    falls = {name: (first - last) * weight for name, (first, last, weight) in ends.items()}
    name = max(falls, key=lambda one: falls[one], default="")
    if not name or not falls[name] > 0:
        return []
    (steps, values), (at, checked) = (_curve(table, name) for table in (train, validation))
    turn = int(np.argmin(checked)) if len(checked) else 0
    if turn < len(checked) - 1:
        fall = values[0] - checked[turn]
        flat = int(np.argmax(checked <= checked[turn] + RISE * fall))
        since, halves = values[steps > at[turn]], np.array_split(values[steps > at[flat]], 2)
        before = values[steps <= at[turn]][-max(len(since), 1) :]
        if checked[-1] - checked[turn] >= RISE * fall > 0 and _fell(before, since):
            rise = f"validation rises from step {at[turn]} on ({checked[turn]:.3g} to {checked[-1]:.3g})"
            remedy = "overfitted; keep the best (`train.keep`), or train fewer steps"
            return [f"{name}: {rise}, and training still falls: {remedy}"]
        if fall > 0 and at[flat] < steps[-1] / 2 and _fell(halves[0], halves[1], RISE * fall):
            flatness = f"validation has not improved since step {at[flat]}"
            return [f"{name}: {flatness}, and training still falls: train fewer steps, or add data"]
        return []
    quarters = np.array_split(values, 4) if len(values) >= 4 else []
    means = [float(one.mean()) for one in quarters]
    if means and all(later < earlier for earlier, later in pairwise(means)):
        fall = values[0] - means[3]
        if _fell(quarters[2], quarters[3], FALL * fall):
            share = f"{(means[2] - means[3]) / fall:.0%}"
            return [
                f"{name}: still falls at the end, in the last quarter by {share} of the whole fall: train more steps"
            ]
    return []


def _curve(history: pd.DataFrame, name: str) -> tuple[Floats, Floats]:
    """Return steps and raw values of a loss; none if the history lacks it."""
    column = f"{name}.raw"
    rows = history[["step", column]].dropna() if column in history else history.iloc[:0]
    return rows["step"].to_numpy(), rows.iloc[:, -1].to_numpy()


def _ends(train: pd.DataFrame, name: str) -> tuple[float, float, float]:
    """Return the first row of a loss, the mean of its last quarter, and its last weight; zeros without two rows."""
    values = train[f"{name}.raw"].dropna().to_numpy()
    weights = train[f"{name}.weight"].dropna().to_numpy() if f"{name}.weight" in train else np.ones(1)
    if len(values) < 2:
        return 0.0, 0.0, 0.0
    last = values[-max(len(values) // 4, 1) :].mean()
    return float(values[0]), float(last), float(weights[-1]) if len(weights) else 1.0


def _fell(before: Floats, after: Floats, least: float = 0.0) -> bool:
    """Whether the mean fell by `least` and two standard errors, which count as 0 where a side has a single value."""
    if not len(before) or not len(after):
        return False
    errors = sum(float(one.var(ddof=1)) / len(one) for one in (before, after) if len(one) > 1)
    fall = before.mean() - after.mean()
    return bool(fall >= least and fall > 2 * np.sqrt(errors))
