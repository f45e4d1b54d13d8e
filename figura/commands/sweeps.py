"""The results of a sweep: the experiments of `dvc exp show --json`, the parameters they vary, and their metrics."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pandas as pd

from figura.base.errors import UserError, nearest
from figura.recipe.dotted_keys import leaves
from figura.recipe.trial import KEY

MAIN = "params.yaml"
ABSENT = "-"
"""Stands for a parameter that is unknown or that an experiment does not have (it removed a loss, say)."""


class Estimate(NamedTuple):
    """A metric with its interval; `low` and `high` are NaN without one."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        interval = f" [{self.low:.4g}, {self.high:.4g}]" if math.isfinite(self.low + self.high) else ""
        return f"{self.value:.4g}{interval}"


@dataclass(frozen=True)
class Experiment:
    """One experiment, or the commit that the experiments started from.

    Attributes:
        name: DVC's name for it.
        state: `baseline`, `done`, `failed`, `queued` or `running`.
        params: values by the names that `-S` takes, `losses.KL.weight` or `recipes/pose.yaml:losses.caf.weight`.
        metrics: values by file and dotted key, `metrics/vunet.json:l1_person.value`.
        error: DVC's error message, if any.
        rev: the hash of its commit.
    """

    name: str
    state: str
    params: Mapping[str, Any]
    metrics: Mapping[str, float]
    error: str = ""
    rev: str = ""

    def value(self, key: str) -> Any:
        """Return a parameter."""
        return self.params.get(key, ABSENT)

    def estimate(self, metric: str) -> Estimate | None:
        """Return a metric with the interval from its siblings `low` and `high`; None if missing or not finite."""
        if not math.isfinite(self.metrics.get(metric, math.nan)):
            return None
        stem = metric.removesuffix(".value")
        bounds = [
            self.metrics.get(f"{stem}.{end}", math.nan) if stem != metric else math.nan for end in ("low", "high")
        ]
        return Estimate(self.metrics[metric], *bounds)


@dataclass(frozen=True)
class Sweep:
    """The experiments that started from one commit, sorted by the parameters they vary."""

    baseline: Experiment
    experiments: Sequence[Experiment]

    @property
    def done(self) -> list[Experiment]:
        """The experiments that have metrics."""
        return [one for one in self.experiments if one.state == "done"]

    @property
    def varied(self) -> list[str]:
        """The parameters in which the experiments differ from each other, or if there are none, from the baseline."""
        return _differing(self.experiments) or _differing([self.baseline, *self.experiments])

    @property
    def axes(self) -> list[str]:
        """The varied parameters of `done`, one for each group that changes together (the kind of three losses, say)."""
        chosen: dict[tuple[int, ...], str] = {}
        for key in _differing(self.done) or self.varied:
            values = [sortable(one.value(key)) for one in self.done]
            chosen.setdefault(tuple(values.index(value) for value in values), key)
        return list(chosen.values())


def read_sweep(shown: Any, rev: str = "HEAD", only: str = "*") -> Sweep:
    """Return the experiments of a commit.

    Args:
        shown: the parsed output of `dvc exp show --json`.
        rev: the commit: its name, the beginning of its hash, or HEAD for the first one in `shown`.
        only: pattern of names (`kl-*`); other experiments are left out.

    Raises:
        UserError: `shown` has another layout, lacks the commit, or lists no such experiment of it.
    """
    try:
        commits = [entry for entry in shown if entry["rev"] != "workspace"]
        chosen = next(
            (entry for entry in commits if rev in ("HEAD", entry["name"]) or entry["rev"].startswith(rev)), None
        )
        if chosen is None:
            names = ", ".join(entry["name"] or entry["rev"][:7] for entry in commits)
            raise UserError(f"--rev {rev}: no such commit in what `dvc exp show` gave; there are {names or 'none'}")
        baseline = _experiment(chosen, chosen["name"] or chosen["rev"][:7], "baseline")
        experiments = [_experiment(one["revs"][0], one["name"], _state(one)) for one in chosen["experiments"] or ()]
    except (TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise UserError(f"not the output of `dvc exp show --json`: {error!r}") from error
    matching = [one for one in experiments if fnmatchcase(one.name, only)]
    if not matching:
        names = ", ".join(one.name for one in experiments) or "none"
        raise UserError(f"no experiment {only!r} started from {baseline.name}; there are {names}")
    varied = Sweep(baseline, matching).varied
    return Sweep(baseline, sorted(matching, key=lambda one: [sortable(one.value(key)) for key in varied]))


def _parsed(text: str, file: str) -> dict[str, Any]:
    """Return the metrics in a file. Raises UserError if it holds no map as JSON."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--metric {file}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"--metric {file}: found {type(content).__name__}; expected a map of metrics")
    return content


def _state(entry: Mapping[str, Any]) -> str:
    state = (entry.get("executor") or {}).get("state")
    if entry["revs"][0].get("error"):
        return "failed"
    return "done" if state in (None, "success") else str(state)


def _experiment(entry: Mapping[str, Any], name: str | None, state: str) -> Experiment:
    data, error = entry.get("data") or {}, entry.get("error") or {}
    params = {
        key if file == MAIN else f"{file}:{key}": value
        for file, content in (data.get("params") or {}).items()
        for key, value in leaves(content.get("data") or {})
    }
    metrics = {
        f"{file}:{key}": float(value)
        for file, content in (data.get("metrics") or {}).items()
        for key, value in leaves(content.get("data") or {})
        if is_number(value)
    }
    measured = metrics if state in ("baseline", "done") else {}  # queued experiments show the baseline's metrics
    return Experiment(name or entry["rev"][:7], state, params, measured, str(error.get("msg") or ""), entry["rev"])


def with_files(sweep: Sweep, files: Collection[str], read: Callable[[str, str], str | None]) -> Sweep:
    """Return the sweep with the metrics of files that DVC does not show, such as metrics/full/vunet.json.

    Args:
        sweep: the experiments; those without results get no metrics.
        files: paths in the repository.
        read: returns the JSON text of a file, given (hash of a commit, path); None if it has no such file.
    """

    def read_all(one: Experiment) -> Experiment:
        if one.state not in ("baseline", "done"):
            return one
        texts = {file: read(one.rev, file) for file in files}
        numbers = {
            f"{file}:{key}": float(value)
            for file, text in texts.items()
            if text is not None
            for key, value in leaves(_parsed(text, file))
            if is_number(value)
        }
        return replace(one, metrics={**one.metrics, **numbers})

    return Sweep(read_all(sweep.baseline), [read_all(one) for one in sweep.experiments])


def _differing(experiments: Sequence[Experiment]) -> list[str]:
    known = [one for one in experiments if one.params]
    keys = dict.fromkeys(key for one in known for key in one.params)
    return [key for key in keys if len({sortable(one.value(key)) for one in known}) > 1]


def is_number(value: Any) -> bool:
    """Whether `value` is an int or a float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def formatted(value: Any) -> str:
    """Return a value as a string, the same for 1 and 1.0; numbers with five digits."""
    return f"{value:.5g}" if is_number(value) else value if isinstance(value, str) else json.dumps(value)


def sortable(value: Any) -> tuple[int, float, str]:
    """Return a sort key: numbers by size first, then everything else by its text; equal for 1 and 1.0."""
    return (0, float(value), "") if is_number(value) else (1, 0.0, formatted(value))


def check_metrics(sweep: Sweep, wanted: Sequence[str]) -> None:
    """Raise UserError for the first metric that neither the baseline nor any experiment has."""
    known = dict.fromkeys(key for one in (sweep.baseline, *sweep.experiments) for key in one.metrics)
    offered = [key for key in known if not key.endswith((".low", ".high"))]
    for metric in wanted:
        if metric not in known:
            of_file = [key for key in offered if key.partition(":")[0] == metric.partition(":")[0]]
            listed = "\n  ".join(of_file or offered) or "none"
            raise UserError(f"--metric {metric}: no such metric{nearest(metric, offered)}; there are\n  {listed}")


def labels_of(metrics: Sequence[str]) -> dict[str, str]:
    """Return short names: without `.value` and the file's folder and suffix; without the file if there is only one."""
    files = [metric.partition(":")[0] for metric in metrics]
    stems = ["" if len(set(files)) == 1 else f"{PurePosixPath(file).stem}:" for file in files]
    keys = [metric.partition(":")[2].removesuffix(".value") for metric in metrics]
    return {metric: f"{stem}{key}" for metric, stem, key in zip(metrics, stems, keys, strict=True)}


def table_of(sweep: Sweep, metrics: Sequence[str]) -> pd.DataFrame:
    """Return one row for each experiment, the baseline first: name, state, varied parameters, metrics.

    A metric's columns are its label, `.low` and `.high` if an interval is known, and `.change` from the baseline.
    """
    rows = []
    for one in (sweep.baseline, *sweep.experiments):
        row: dict[str, Any] = {"name": one.name, "state": one.state}
        row |= {key: one.value(key) for key in sweep.varied}
        for metric, label in labels_of(metrics).items():
            estimate, start = one.estimate(metric) or Estimate(math.nan), sweep.baseline.estimate(metric)
            row |= {label: estimate.value, f"{label}.low": estimate.low, f"{label}.high": estimate.high}
            row[f"{label}.change"] = estimate.value - start.value if start and one.state == "done" else math.nan
        rows.append(row)
    table = pd.DataFrame(rows)
    empty = [name for name in table if str(name).endswith((".low", ".high")) and table[name].isna().all()]
    return table.drop(columns=empty)


def printed(table: pd.DataFrame, sweep: Sweep, metrics: list[str]) -> str:
    """Return the table as text, intervals in brackets, with the extremes of each metric and the errors."""
    shown, lines = table.copy(), []
    for metric, label in labels_of(metrics).items():
        estimates = [one.estimate(metric) for one in (sweep.baseline, *sweep.experiments)]
        shown = shown.drop(columns=[f"{label}.low", f"{label}.high"], errors="ignore")
        shown[label] = ["" if one is None else str(one) for one in estimates]
        shown[f"{label}.change"] = ["" if pd.isna(value) else f"{value:+.3g}" for value in shown[f"{label}.change"]]
        values = sorted((e.value, one.name) for one in sweep.experiments if (e := one.estimate(metric)))
        if values:
            (low, first), (high, last) = values[0], values[-1]
            lines.append(f"{label}: lowest {low:.4g} ({first}), highest {high:.4g} ({last})")
    files = dict.fromkeys(metric.partition(":")[0] for metric in metrics)
    lines += [
        f"{one.name}: {file} is that of a try, no result"
        for one in (sweep.baseline, *sweep.experiments)
        for file in files
        if any(key.startswith(f"{file}:{KEY}.") for key in one.metrics)
    ]
    lines += [f"{e.name} failed: {e.error} (dvc queue logs {e.name})" for e in sweep.experiments if e.error]
    return "\n".join([shown.map(formatted).to_string(index=False), *lines])
