"""Curves from the live log of a training, which may still go on; a curve has few points however long it is."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from figura.base.errors import UserError
from figura.base.files import read_bytes

MOST = 500  # points of a curve
LAST = 2**53  # no iteration is later: floats count no further
LOGGED = ("train", "weight", "lr", "grad_norm", "images_per_second", "seconds", "score")
"""What a live log tells, by the beginnings of its keys."""

Points = tuple[list[int], list[float]]
"""The steps of a curve, ascending, and its values; NaN where nothing was finite."""


def thin(steps: Sequence[float], values: Sequence[float]) -> Points:
    """Return a curve of at most `MOST` points: means over windows of equal length, each at the last step of its own."""
    window = max(1, -(-len(steps) // MOST))
    ends = [min(start + window, len(steps)) for start in range(0, len(steps), window)]
    parts = np.split(np.asarray(values, np.float64), ends[:-1])
    finite = [part[np.isfinite(part)] for part in parts]
    return [int(steps[end - 1]) for end in ends], [float(one.mean()) if len(one) else math.nan for one in finite]


def log_curves(path: Path) -> dict[str, Points]:
    """Return the curves in a live log: of every so many iterations losses, weights, rates, scores, speed; {} without.

    `validation_batch.*` are losses of the last validation batch. A resumed process repeats the steps after its resume
    point, a fresh one all steps; they replace the earlier ones, also those of a loss that the new recipe lacks. Lines
    that are no records, such as a half-written one, are left out.
    """
    try:
        lines = read_bytes(path).split(b"\n")
    except UserError:
        return {}
    curves: dict[str, Points] = {}
    begins = False
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            begins |= "process" in record
            begins &= not _add(curves, record, begins)
    return {name: thin(*curve) for name, curve in curves.items() if curve[0]}


def _add(curves: dict[str, Points], record: Mapping[str, Any], begins: bool) -> bool:
    """Add a record, the first of its process if `begins`; return whether it has a step."""
    step = record.get("step")
    if not isinstance(step, int | float) or not 0 <= step <= LAST:
        return False
    for earlier in curves.values() if begins else ():
        _cut(*earlier, step)
    for key, value in record.items():
        head, _, name = key.partition(".")
        curve = f"validation_batch.{name}" if head == "validation" else key if head in LOGGED else None
        if curve is None or type(value) not in (int, float) or abs(value) > sys.float_info.max:
            continue
        steps, values = curves.setdefault(curve, ([], []))
        _cut(steps, values, step)
        steps.append(int(step))
        values.append(float(value))
    return True


def _cut(steps: list[int], values: list[float], step: float) -> None:
    """Remove the points of a curve from a step on."""
    while steps and steps[-1] >= step:
        steps.pop()
        values.pop()
