"""Checks of `metrics`: scores and pictures exist, accept their arguments, and read what `evaluate` writes."""

from figura.base.error_collector import ErrorCollector
from figura.base.errors import closest
from figura.recipe.schema import ERROR_KEY, Declaration, Recipe
from figura.recipe.stand_ins import is_stand_in
from figura.recipe.trial import KEY
from figura.recipe.types import PICTURE, SCORE, check_declaration
from figura.systems import PACKAGE as SYSTEMS

GAINS = "gain"  # of headlines over their baselines, in metrics/full
RESERVED = {
    ERROR_KEY: f"a metrics file with a key {ERROR_KEY!r} counts as unreadable",
    KEY: "the metrics of a try stand below this key",
    GAINS: "gains over baselines stand below this key",
}


def check_metrics(recipe: Recipe, errors: ErrorCollector) -> None:
    """Check `metrics.scores`, `metrics.summary`, `metrics.pictures` and `runtime.scores`."""
    for name, score in recipe.metrics.scores.items():
        kind = check_declaration(score, SCORE, f"metrics.scores.{name}", errors)
        _of_dump(recipe, score, f"metrics.scores.{name}", errors)
        _of_mode(recipe, score, kind, f"metrics.scores.{name}", errors)
    for section, names in (("scores", recipe.metrics.scores), ("summary", recipe.metrics.summary)):
        for name in RESERVED.keys() & set(names):
            errors.add(f"metrics.{section}.{name}", f"{RESERVED[name]}; use another name")
    for name, picture in recipe.metrics.pictures.items():
        kind = check_declaration(picture, PICTURE, f"metrics.pictures.{name}", errors)
        _of_dump(recipe, picture, f"metrics.pictures.{name}", errors)
        _of_mode(recipe, picture, kind, f"metrics.pictures.{name}", errors)
    for name, headline in recipe.metrics.summary.items():
        for key, metric in (("metric", headline.metric), ("beside", headline.beside)):
            if metric is not None:
                _of_score(recipe, metric, f"metrics.summary.{name}.{key}", errors)
    for name in recipe.runtime.scores.names if recipe.runtime.scores else ():
        if name not in recipe.metrics.scores:
            errors.add_unknown("runtime.scores.names", name, recipe.metrics.scores, "score")


def _of_score(recipe: Recipe, metric: str, key: str, errors: ErrorCollector) -> None:
    """Check that a dotted key starts with a score; the rest is known only to the score."""
    score, _, rest = metric.partition(".")
    if score not in recipe.metrics.scores:
        errors.add_unknown(key, score, recipe.metrics.scores, "score")
    elif not rest:
        errors.add(key, f"found {metric!r}; expected the score and its metric, such as '{metric}.l1'")


def _of_dump(recipe: Recipe, entry: Declaration, key: str, errors: ErrorCollector) -> None:
    """Check that the `mode`, `grid` or `average` of a score or picture is one of `evaluate`."""
    evaluate = recipe.evaluate
    known = {"mode": list(evaluate.modes), "grid": list(evaluate.grids), "average": list(evaluate.averages)}
    for what, names in known.items():
        named = entry.arguments.get(what)
        if isinstance(named, str) and named not in names:
            errors.add_unknown(f"{key}.{what}", named, names, what)


def _of_mode(recipe: Recipe, entry: Declaration, kind: type | None, key: str, errors: ErrorCollector) -> None:
    """Check that the dump has what a score or picture reads of its mode.

    Of a class that is not figura's, only names that seem misspelt are told: other words may mean something else. The
    inputs of a package's metric may also be losses, ids and other columns.
    """
    mode = recipe.evaluate.modes.get(str(entry.arguments.get("mode")))
    if mode is None or kind is None:
        return
    ours, saved = kind.__module__.partition(".")[0] in (SYSTEMS, "figura"), {*recipe.evaluate.inputs, *mode.save}
    read = {what: entry.arguments.get(what) for what in ("image", "target", "mask")}
    inputs = entry.arguments.get("inputs") if is_stand_in(kind) else None
    read |= {f"inputs.{role}": name for role, name in (inputs.items() if isinstance(inputs, dict) else ())}
    for what, name in read.items():
        column = str(name).startswith("loss.") or str(name).endswith("_id") or name in ("index", "draw", "name")
        strict = ours or (what.startswith("inputs.") and not column)
        if isinstance(name, str) and name not in saved and (strict or closest(name, saved)):
            errors.add_unknown(f"{key}.{what}", name, saved, "name: the dump has no")
