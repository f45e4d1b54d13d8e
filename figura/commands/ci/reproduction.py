"""Compares a rerun's metrics and data hashes with the committed ones; each gets a row with a verdict."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.commands.ci.tolerances import Tolerance, Tolerances
from figura.formats.records import is_finite
from figura.pipeline.lock import outputs
from figura.recipe.trial import KEY

DATA_STAGES = "prepare@"
INTERVAL = {"value", "low", "high"}
FAILING = ("violated", "vanished")
SIGNS = {"both": "±", "higher_is_better": "-", "lower_is_better": "+"}


class Metric(NamedTuple):
    """A metric's value, with half the width of its bootstrap interval if it has one."""

    value: Any
    half_width: float | None = None


class Results(NamedTuple):
    """Metrics by dotted name, `vunet.reconstruction.l1`, hashes of the data stages' outputs by path, and the stems of
    files without a metric: a judge that sees nobody writes one.
    """

    metrics: dict[str, Metric]
    hashes: dict[str, str]
    empty: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Row:
    """One line of the table, as text.

    `verdict` is identical, within (its tolerance), better (beyond a one-sided tolerance, on the good side), violated,
    vanished, new or ignored.
    """

    metric: str
    committed: str
    reproduced: str
    difference: str
    tolerance: str
    verdict: str


def read_results(files: Mapping[str, str], lock: str, where: str) -> Results:
    """Parse metrics files and the lock file.

    Args:
        files: contents of the metrics files by path.
        lock: content of the lock file.
        where: suffix of paths in messages, such as ` of HEAD`.

    Raises:
        UserError: a file has another format, or holds the metrics of a try.
    """
    metrics: dict[str, Metric] = {}
    empty = set()
    for path, text in files.items():
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}{where}: not valid JSON: {error}") from None
        if not isinstance(content, dict):
            raise UserError(f"{path}{where}: found {type(content).__name__}, expected a map of metrics")
        if KEY in content:
            raise UserError(f"{path}{where}: metrics of a try, which no result is compared with; set train.try: false")
        of_file = _metrics(content, f"{PurePosixPath(path).stem}.")
        metrics |= of_file
        if not of_file:
            empty.add(PurePosixPath(path).stem)
    return Results(metrics, outputs(lock, where, DATA_STAGES), frozenset(empty))


def _metrics(content: Mapping[str, Any], prefix: str) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for key, value in content.items():
        if not isinstance(value, Mapping):
            metrics[f"{prefix}{key}"] = Metric(value)
        elif value.keys() == INTERVAL:
            low, high = value["low"], value["high"]
            half_width = (high - low) / 2 if is_finite([low, high]) else None
            metrics[f"{prefix}{key}"] = Metric(value["value"], half_width)
        else:
            metrics |= _metrics(value, f"{prefix}{key}.")
    return metrics


def compare(committed: Results, reproduced: Results, tolerances: Tolerances) -> list[Row]:
    """Return a row for each output of a data stage and each metric, failing rows first.

    Raises:
        UserError: a pattern matches no metric, or a metric has no rule, or its rule gives no width.
    """
    names = list(dict.fromkeys([*committed.metrics, *reproduced.metrics]))
    tolerances.check_used(names, committed.empty | reproduced.empty)
    errors = ErrorCollector(tolerances.path)
    rows = [
        compare_hashes(path, committed.hashes.get(path), reproduced.hashes.get(path))
        for path in dict.fromkeys([*committed.hashes, *reproduced.hashes])
    ]
    for name in names:
        pattern = tolerances.pattern(name)
        rule = tolerances.rules[pattern]
        before, now = committed.metrics.get(name), reproduced.metrics.get(name)
        if before and rule and is_finite([before.value]) and rule.width(*before) is None:
            errors.add(pattern, f"{name} has no interval; absolute or relative must say how far it may be")
        else:
            rows.append(compare_metrics(name, before, now, rule))
    errors.raise_any()
    return sorted(rows, key=lambda row: row.verdict not in FAILING)


def compare_hashes(path: str, before: str | None, now: str | None) -> Row:
    """Return the row of a data stage's output, which must have the same hash."""
    verdict = "vanished" if now is None else "new" if before is None else "identical" if now == before else "violated"
    return Row(path, (before or "")[:8], (now or "")[:8], "", "exact", verdict)


def compare_metrics(name: str, before: Metric | None, now: Metric | None, rule: Tolerance | None) -> Row:
    """Return the row of a metric; without a `rule` it is not compared."""
    first, second = ("" if one is None else formatted(one.value) for one in (before, now))
    if rule is None or before is None or now is None:
        verdict = "ignored" if rule is None else "new" if before is None else "vanished"
        return Row(name, first, second, "", "", verdict)
    if not is_finite([before.value, now.value]):  # a float here is NaN or infinite, and reproduces nothing
        same = type(before.value) is type(now.value) is not float and before.value == now.value
        return Row(name, first, second, "", "exact", "identical" if same else "violated")
    width = rule.width(*before)
    assert width is not None, "compare() refuses it"
    difference = float(now.value) - float(before.value)
    if now.value == before.value:
        verdict = "identical"
    elif abs(difference) <= width:
        verdict = "within"
    else:
        verdict = "better" if math.isfinite(difference) and rule.forgives(difference) else "violated"
    tolerance = f"{SIGNS[rule.direction]}{width:.3g}" if width else "exact"
    return Row(name, first, second, f"{difference:+.3g}" if difference else "0", tolerance, verdict)


def formatted(value: Any) -> str:
    """Return a metric's value as a string, floats with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
