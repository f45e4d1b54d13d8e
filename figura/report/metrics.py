"""Compute a recipe's metrics from a dump."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import figura.report.package_scores  # noqa: F401  # loaded by name (recipe/types.py), so that stages depend on it
from figura.base.dotted_keys import value_at
from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.dump import Dump
from figura.recipe.schema import ERROR_KEY, Recipe
from figura.recipe.types import PICTURE, SCORE, build
from figura.report.interfaces import NotApplicableError, Picture, Score
from figura.report.resampling import LEAST_GROUPS, PairedBootstrap, PairedEstimate
from figura.report.sheets import finish

PLAIN = (int, float, str, list, tuple, type(None))  # types that JSON has
Metrics = dict[str, dict[str, Any]]  # score -> metric -> number or `{value, low, high}`


def build_scores(recipe: Recipe) -> dict[str, Score]:
    """Construct `metrics.scores`, by name."""
    return {n: build(entry, SCORE, f"metrics.scores.{n}", recipe.path) for n, entry in recipe.metrics.scores.items()}


def build_pictures(recipe: Recipe) -> dict[str, Picture]:
    """Construct `metrics.pictures`, by name."""
    return {
        n: build(entry, PICTURE, f"metrics.pictures.{n}", recipe.path) for n, entry in recipe.metrics.pictures.items()
    }


def compute_metrics(
    recipe: Recipe, dump: Dump, scores: Mapping[str, Score] | None = None, say: Callable[[str], object] = print,
    errors: ErrorCollector | None = None,
) -> Metrics:  # fmt: skip
    """Apply `scores` (by default all of `metrics.scores`) to a dump, with the bootstrap of `metrics`.

    A score that does not apply to the data is skipped, and the reason is passed to `say`. One that fails, whose metric
    is no finite, plain number, or which writes a key that marks a failure, is an error; the others are computed.

    Raises:
        UserError: all errors, unless `errors` collects them.
    """
    bootstrap = PairedBootstrap(recipe.metrics.bootstrap, recipe.metrics.confidence, recipe.seed)
    found, metrics = errors or ErrorCollector(recipe.path), Metrics()
    for name, score in (build_scores(recipe) if scores is None else scores).items():
        before, key = found.count, f"metrics.scores.{name}"
        try:
            computed = score(dump, bootstrap)
            _make_plain(computed)
        except NotApplicableError as error:
            say(f"{key}: left out: {error}")
            continue
        except UserError as error:
            found.add(key, str(error))
            continue
        for fault in _faults(computed):
            found.add(key, fault)
        if found.count == before:
            metrics[name] = computed
    if errors is None:
        found.raise_any()
    return metrics


def _make_plain(computed: Any) -> None:
    """Put Python's numbers in place of NumPy's and PyTorch's in nested dictionaries, whose own types stay."""
    for name, value in computed.items() if isinstance(computed, dict) else ():
        if getattr(value, "ndim", None) == 0:
            computed[name] = value.item()
        _make_plain(value)


def _faults(computed: Any) -> Iterator[str]:
    """Yield what is wrong with what a score gave."""
    if not isinstance(computed, Mapping):
        yield f"gives a {type(computed).__name__}; a score gives a map of numbers by their names"
        return
    for metric, value in flattened(computed).items():
        if not isinstance(value, PLAIN):
            yield f"its metric {metric!r} is a {type(value).__name__}; expected a number"
        if isinstance(value, float) and not math.isfinite(value):
            yield f"its metric {metric!r} is {value}; a score leaves out what it cannot compute"
        if ERROR_KEY in metric.split("."):
            what = f"it writes the metric {metric.removesuffix('.low').removesuffix('.high')!r}"
            yield f"{what}; a metrics file with a key {ERROR_KEY!r} counts as unreadable: rename it"


def summarize(recipe: Recipe, metrics: Metrics, say: Callable[[str], object] = print) -> dict[str, dict[str, Any]]:
    """Return the numbers of `metrics.summary` by their short names: `{value, low, high, baseline}`.

    Metrics without an interval have no `low` and `high`, entries without `beside` no `baseline`. An entry whose score
    was skipped is skipped, too, with a line to `say`; a baseline whose score was skipped is omitted.

    Raises:
        UserError: a score has no such metric; one line for each.
    """
    errors = ErrorCollector(recipe.path)
    summary: dict[str, dict[str, Any]] = {}
    for name, entry in recipe.metrics.summary.items():
        key = f"metrics.summary.{name}"
        estimate = _estimate(metrics, entry.metric, f"{key}.metric", errors)
        baseline = {} if entry.beside is None else _estimate(metrics, entry.beside, f"{key}.beside", errors)
        if estimate:
            summary[name] = estimate | ({"baseline": baseline["value"]} if baseline else {})
        elif entry.metric.partition(".")[0] not in metrics:
            say(f"{key}: left out, as its score is")
    errors.raise_any()
    return summary


def gains(recipe: Recipe, metrics: Metrics) -> dict[str, dict[str, float]]:
    """Return by how much each headline is better than its baseline, `{value, low, high}`, with paired intervals.

    Only where both are of the same examples, enough of them (`LEAST_GROUPS`), and have intervals.
    """
    bootstrap = PairedBootstrap(recipe.metrics.bootstrap, recipe.metrics.confidence, recipe.seed)
    found: dict[str, dict[str, float]] = {}
    for name, entry in recipe.metrics.summary.items():
        ours, theirs = (_paired(recipe, metrics, key) for key in (entry.metric, entry.beside))
        if ours is None or theirs is None or ours[1] != theirs[1] or ours[0].groups != theirs[0].groups:
            continue
        if ours[0].groups >= LEAST_GROUPS:
            sign = 1 if entry.better == "higher" else -1
            found[name] = dict(bootstrap.combine([(sign, ours[0]), (-sign, theirs[0])]))
    return found


def _paired(recipe: Recipe, metrics: Metrics, key: str | None) -> tuple[PairedEstimate, list[Any]] | None:
    """Return the estimate at a dotted key, and which examples of the dump it is of; None without an interval."""
    score, value = (key or "").partition(".")[0], value_at(metrics, key or "")
    if not isinstance(value, PairedEstimate):
        return None
    return value, [recipe.metrics.scores[score].arguments.get(one) for one in ("mode", "where", "groups")]


def _estimate(metrics: Metrics, key: str, where: str, errors: ErrorCollector) -> dict[str, Any]:
    """Return the metric at a dotted key, `{value}` or `{value, low, high}`; empty if its score was skipped."""
    score, _, name = key.partition(".")
    if score not in metrics:
        return {}
    known = flattened(metrics[score])
    names = [one for one in known if not one.endswith((".low", ".high"))]
    if name not in names:
        errors.add_unknown(where, name, names, f"metric of {score!r}")
        return {}
    bounds = {end: known[f"{name}.{end}"] for end in ("low", "high") if f"{name}.{end}" in known}
    return {"value": known[name], **bounds}


def draw_pictures(
    recipe: Recipe, dump: Dump, folder: Path, header: str = "", say: Callable[[str], object] = print,
    errors: ErrorCollector | None = None,
) -> None:  # fmt: skip
    """Draw `metrics.pictures` into `folder`, except those that do not apply to the data (see `compute_metrics`).

    Each gets the text `header`, if any, as a line above it. The folder is created even if all are skipped: every
    output is expected.

    Raises:
        UserError: all errors, unless `errors` collects them; the other pictures are drawn.
    """
    found = errors or ErrorCollector(recipe.path)
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in build_pictures(recipe).items():
        try:
            picture(dump, folder / f"{name}.png")
            finish(folder / f"{name}.png", header, picture.suffix)
        except NotApplicableError as error:
            say(f"metrics.pictures.{name}: left out: {error}")
        except UserError as error:
            found.add(f"metrics.pictures.{name}", str(error))
    if errors is None:
        found.raise_any()


def flattened(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return plain values by dotted names: `people.AP`, and for intervals `people.AP.low` and `people.AP.high`."""
    flat: dict[str, Any] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if not isinstance(value, Mapping):
            flat[name] = value
        elif value.keys() == {"value", "low", "high"}:
            flat |= {name: value["value"], f"{name}.low": value["low"], f"{name}.high": value["high"]}
        else:
            flat |= flattened(value, f"{name}.")
    return flat
