"""Complete a recipe before it is checked, so that recipes need no repetition.

1. `data.common` holds arguments of all entries of `data.train` and `data.validation`; keys of an entry take precedence.
2. `evaluate.data` holds the datasets of eval-dump. An entry named like one of `data.validation` inherits its keys; if
   `evaluate.data` is missing or empty, evaluation uses `data.validation`. An entry of another `type` inherits nothing.
3. Facts of the training data, such as its skeleton, are arguments of classes that list them in `from_data`: a network's
   number of fields, the joints of a decoder, and those of other datasets, which are thereby checked to be the same. A
   value in the recipe takes precedence.

Everything works on plain values as loaded from YAML, and ignores malformed entries, which the check reports.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from figura.base.error_collector import ErrorCollector
from figura.recipe.types import (
    CALLBACK,
    COMPARISON,
    DATASET,
    INJECTOR,
    LOSS,
    NETWORK,
    PHOTOS,
    PICTURE,
    SCORE,
    Slot,
    check_arguments,
    find_type,
)

Content = dict[str, Any]
BESIDE = ("type", "weight", "schedule")  # keys of a `data` entry that are not arguments


def with_data(content: Content, errors: ErrorCollector) -> Content:
    """Return the content with `data.common` in every dataset, and with a complete `evaluate.data`.

    The origin of each inherited value is recorded in `errors`.
    """
    data = content.get("data")
    if not isinstance(data, dict):
        return content
    common = data.get("common")
    if common is None:
        common = {}
    elif not isinstance(common, dict):
        errors.add("data.common", f"found {common!r}; expected a map of arguments that all datasets share")
        common = {}
    splits = {
        split: _inheriting(data[split], f"data.{split}", {}, common, errors)
        for split in ("train", "validation")
        if split in data
    }
    content = {**content, "data": {key: value for key, value in data.items() if key != "common"} | splits}
    evaluate = content.get("evaluate")
    if isinstance(evaluate, dict) and "validation" in splits:
        validation = splits["validation"]
        own = evaluate.get("data") or None
        if own is None:
            errors.origins["evaluate.data"] = "data.validation"
        judged = validation if own is None else _inheriting(own, "evaluate.data", _map(validation), common, errors)
        content["evaluate"] = {**evaluate, "data": judged}
    return content


def facts_of(content: Content, errors: ErrorCollector) -> Content:
    """Return the facts of the training datasets by name, except those in which datasets differ.

    A fact that a dataset itself takes from the data is that of the first dataset: the others are checked against it, or
    override it in the recipe. If a dataset is declared wrongly, which the check reports, facts are marked as unknown in
    `errors`.
    """
    facts: Content = {}
    different: set[str] = set()
    entries = _map(_map(content.get("data")).get("train"))
    if not entries:
        errors.facts_known = False
    for entry in entries.values():
        kind: Any = _kind(entry, DATASET)
        faults = ErrorCollector(Path())
        if kind is not None:
            arguments = {key: value for key, value in entry.items() if key not in BESIDE}
            check_arguments(kind, arguments, "", faults)
        if kind is None or faults.count:
            errors.facts_known = False
        else:
            own = kind.facts(arguments)
            taken = getattr(kind, "from_data", ())
            different |= {name for name, fact in own.items() if name not in taken and facts.get(name, fact) != fact}
            facts = own | facts
    return {name: fact for name, fact in facts.items() if name not in different}


def with_facts(content: Content, facts: Mapping[str, Any], parts: Collection[str]) -> Content:
    """Return the content with the facts that the declarations of `parts` (`load.PARTS`) take from the data."""
    for path, slot in _places(content, parts):
        content = _at(content, path, slot, facts)
    return content


def _places(content: Content, parts: Collection[str]) -> Iterator[tuple[tuple[str, ...], Slot]]:
    """Yield the path of each map of declarations, with its slot; `*` matches any key."""
    if not {"train", "evaluate", "predict"}.isdisjoint(parts):
        yield ("networks",), NETWORK
        yield ("data", "validation"), DATASET
    if "train" in parts:
        yield ("data", "train"), DATASET
        yield ("losses",), LOSS
        yield ("steps", "*", "injectors"), INJECTOR
        yield ("callbacks",), CALLBACK
    if not {"evaluate", "predict"}.isdisjoint(parts):
        yield ("evaluate", "data"), DATASET
        yield ("evaluate", "modes", "*", "injectors"), INJECTOR
        yield ("evaluate", "grids", "*", "injectors"), INJECTOR
    if "predict" in parts:
        yield ("predict", "injectors"), INJECTOR
        yield ("predict", "compare"), COMPARISON
        if "predict" in content:
            yield ("predict",), PHOTOS
    if "metrics" in parts:
        yield ("metrics", "scores"), SCORE
        yield ("metrics", "pictures"), PICTURE


def _at(value: Any, path: tuple[str, ...], slot: Slot, facts: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    if not path:
        return {name: _filled(entry, slot, facts) for name, entry in value.items()}
    first, *rest = path
    names = value.keys() if first == "*" else value.keys() & {first}
    return {**value, **{name: _at(value[name], tuple(rest), slot, facts) for name in names}}


def _filled(entry: Any, slot: Slot, facts: Mapping[str, Any]) -> Any:
    """Return an entry with the facts that it takes from the data."""
    kind = _kind(entry, slot)
    if kind is None:
        return entry
    wanted = (name for name in getattr(kind, "from_data", ()) if name in facts and name not in entry)
    return entry | {name: facts[name] for name in wanted}


def _kind(entry: Any, slot: Slot) -> type | None:
    """Return the class that an entry declares, or None if there is no such class."""
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
        return None
    return find_type(entry["type"], slot, "", ErrorCollector(Path()))


def _inheriting(entries: Any, key: str, parents: Content, common: Content, errors: ErrorCollector) -> Any:
    """Return each entry, found at `key`, with the keys of its parent of the same name, or without one, of `common`."""
    if not isinstance(entries, dict):
        return entries
    complete = dict(entries)
    for name, entry in entries.items():
        if isinstance(entry, dict):
            inherited = _inherited(name, entry, parents, common)
            source = f"data.validation.{name}" if name in parents else "data.common"
            errors.origins |= {f"{key}.{name}.{one}": f"{source}.{one}" for one in inherited if one not in entry}
            complete[name] = {**inherited, **entry}
    return complete


def _inherited(name: str, entry: Content, parents: Content, common: Content) -> Content:
    """Return the keys of an entry's parent; empty if its class differs from the entry's."""
    if name not in parents:
        return common
    parent = _map(parents[name])
    return {} if entry.get("type", parent.get("type")) != parent.get("type") else parent


def _map(value: Any) -> Content:
    return value if isinstance(value, dict) else {}
