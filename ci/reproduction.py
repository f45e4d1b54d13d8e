"""What a rerun reproduced: metrics and data hashes beside the committed ones, a row each with a verdict."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ci.tolerances import Tolerance, Tolerances
from models.base.error_collector import ErrorCollector
from models.base.errors import UserError
from models.base.yaml12 import parse_yaml

DATA_STAGES = "prepare@"
INTERVAL = {"value", "low", "high"}
FAILING = ("violated", "vanished")
SIGNS = {"both": "±", "higher_is_better": "-", "lower_is_better": "+"}


class Figure(NamedTuple):
    """A metric, with half the width of its bootstrap interval where it has one."""

    value: Any
    half_width: float | None = None


class Results(NamedTuple):
    """Metrics by dotted name, `vunet.reconstruction.l1`, and the hashes of what the data stages wrote, by path."""

    figures: dict[str, Figure]
    hashes: dict[str, str]


@dataclass(frozen=True)
class Row:
    """One line of the table, as text.

    `verdict` is identical, within (its tolerance), better (beyond it, where only worse is minded), violated, vanished, new
    or ignored.
    """

    metric: str
    committed: str
    reproduced: str
    difference: str
    tolerance: str
    verdict: str


def read_results(metrics: Mapping[str, str], lock: str, where: str) -> Results:
    """Return what files hold.

    Args:
        metrics: texts of metrics files by their paths.
        lock: text of `dvc.lock`.
        where: ` of HEAD`, say, for the messages.

    Raises:
        UserError: a file is not what its name says.
    """
    figures: dict[str, Figure] = {}
    for path, text in metrics.items():
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}{where}: not valid JSON: {error}") from None
        if not isinstance(content, dict):
            raise UserError(f"{path}{where}: found {type(content).__name__}, expected a map of metrics")
        figures |= _figures(content, f"{PurePosixPath(path).stem}.")
    return Results(figures, outputs(lock, where, DATA_STAGES))


def outputs(lock: str, where: str, prefix: str = "") -> dict[str, str]:
    """Return the hashes, by path, of what stages wrote whose names begin with `prefix`; `lock` and `where` as above."""
    content = parse_yaml(lock, f"dvc.lock{where}")
    try:
        stages = content["stages"]
        outs = [out for name, stage in stages.items() if name.startswith(prefix) for out in stage["outs"]]
        return {out["path"]: out[out.get("hash", "md5")] for out in outs}
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(f"dvc.lock{where}: not what DVC writes: {error!r}") from None


def _figures(content: Mapping[str, Any], prefix: str) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for key, value in content.items():
        if not isinstance(value, Mapping):
            found[f"{prefix}{key}"] = Figure(value)
        elif value.keys() == INTERVAL:
            low, high = value["low"], value["high"]
            half_width = (high - low) / 2 if is_number(low) and is_number(high) else None
            found[f"{prefix}{key}"] = Figure(value["value"], half_width)
        else:
            found |= _figures(value, f"{prefix}{key}.")
    return found


def compare(committed: Results, reproduced: Results, tolerances: Tolerances) -> list[Row]:
    """Return a row for each output of a data stage and each metric; what failed comes first.

    Raises:
        UserError: a pattern fits no metric, or no rule or no width is given for one.
    """
    names = list(dict.fromkeys([*committed.figures, *reproduced.figures]))
    tolerances.check_used(names)
    errors = ErrorCollector(tolerances.path)
    rows = [
        compare_hashes(path, committed.hashes.get(path), reproduced.hashes.get(path))
        for path in dict.fromkeys([*committed.hashes, *reproduced.hashes])
    ]
    for name in names:
        pattern = tolerances.pattern(name)
        rule = tolerances.rules[pattern]
        before, now = committed.figures.get(name), reproduced.figures.get(name)
        if before and rule and is_number(before.value) and rule.width(*before) is None:
            errors.add(pattern, f"{name} has no interval; absolute or relative must say how far it may be")
        else:
            rows.append(compare_figures(name, before, now, rule))
    errors.raise_any()
    return sorted(rows, key=lambda row: row.verdict not in FAILING)


def compare_hashes(path: str, before: str | None, now: str | None) -> Row:
    """Return the row of what a data stage wrote: nothing but the same hash will do."""
    verdict = "vanished" if now is None else "new" if before is None else "identical" if now == before else "violated"
    return Row(path, (before or "")[:8], (now or "")[:8], "", "exact", verdict)


def compare_figures(name: str, before: Figure | None, now: Figure | None, rule: Tolerance | None) -> Row:
    """Return the row of a metric; `rule` None: it is not compared."""
    first, second = ("" if one is None else said(one.value) for one in (before, now))
    if rule is None or before is None or now is None:
        verdict = "ignored" if rule is None else "new" if before is None else "vanished"
        return Row(name, first, second, "", "", verdict)
    if not is_number(before.value) or not is_number(now.value):
        same = type(before.value) is type(now.value) and before.value == now.value
        return Row(name, first, second, "", "exact", "identical" if same else "violated")
    width = rule.width(*before)
    assert width is not None, "compare() refuses it"
    difference = now.value - before.value
    if now.value == before.value or (math.isnan(now.value) and math.isnan(before.value)):
        difference, verdict = 0.0, "identical"
    elif abs(difference) <= width:
        verdict = "within"
    else:
        verdict = "better" if math.isfinite(difference) and rule.forgives(difference) else "violated"
    tolerance = f"{SIGNS[rule.direction]}{width:.3g}" if width else "exact"
    return Row(name, first, second, f"{difference:+.3g}" if difference else "0", tolerance, verdict)


def is_number(value: Any) -> bool:
    """Whether it is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def said(value: Any) -> str:
    """Return a metric's value as text, floats to six digits."""
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
