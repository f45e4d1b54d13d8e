"""Completes a recipe before it is checked, so that it says each thing once.

1. `data.common` holds arguments of all entries of `data.train` and `data.validation`; an entry's own keys win.
2. `evaluate.data` says what eval-dump runs on. An entry named like one of `data.validation` inherits its keys; if
   `evaluate.data` is missing or empty, evaluation uses `data.validation`. An entry of another `type` inherits nothing.
3. Facts of the training data, such as its skeleton, are arguments of what declares them in `from_data`: a network's
   number of fields, the joints of a decoder, and of further datasets, which so are checked to have the same joints. A
   value in the recipe wins.

Everything works on plain values, as YAML gives them, and passes over what is malformed: the check reports it.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from models.base.error_collector import ErrorCollector
from models.recipe.types import (
    CALLBACK,
    COMPARISON,
    DATASET,
    FACTS,
    INJECTOR,
    LOSS,
    NETWORK,
    PHOTOS,
    PICTURE,
    SCORE,
    Slot,
    arguments_for,
    check_arguments,
    find_type,
)

Content = dict[str, Any]
BESIDE = ("type", "weight")  # keys of an entry of `data` that are no arguments


def with_data(content: Content, errors: ErrorCollector) -> Content:
    """Return the content with `data.common` in every dataset, and with a whole `evaluate.data`.

    `errors` learns where each inherited value is written.
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
    splits = {split: _inheriting(data[split], {}, common) for split in ("train", "validation") if split in data}
    for split in splits:
        errors.origins.update(_origins(data[split], f"data.{split}", {}, common))
    content = {**content, "data": {key: value for key, value in data.items() if key != "common"} | splits}
    evaluate = content.get("evaluate")
    if isinstance(evaluate, dict) and "validation" in splits:
        validation = splits["validation"]
        own = evaluate.get("data") or None
        judged = validation if own is None else _inheriting(own, _map(validation), common)
        content["evaluate"] = {**evaluate, "data": judged}
        whole = {"evaluate.data": "data.validation"}
        errors.origins.update(whole if own is None else _origins(own, "evaluate.data", _map(validation), common))
    return content


def facts_of(content: Content, errors: ErrorCollector) -> Content:
    """Return the facts of the training datasets by name, but for those in which several datasets differ.

    A fact that a dataset itself takes from the data is the first one's: the others are checked against it, or say in
    the recipe that they differ. `errors` learns that facts are unknown if a dataset is declared wrongly, which the
    check reports.
    """
    facts: Content = {}
    different: set[str] = set()
    entries = _map(_map(content.get("data")).get("train"))
    if not entries:
        errors.mark_unread(FACTS)
    for entry in entries.values():
        kind: Any = _kind(entry, DATASET)
        faults = ErrorCollector(Path())
        if kind is not None:
            arguments = {key: value for key, value in entry.items() if key not in BESIDE}
            check_arguments(kind, arguments, "", faults)
        if kind is None or faults.count:
            errors.mark_unread(FACTS)
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
    """Yield the path of each map of declarations, with their slot; `*` stands for any key."""
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
    """Return an entry with the facts that it takes from the data, and with those that injectors inside it take."""
    kind = _kind(entry, slot)
    if kind is None:
        return entry
    inner = arguments_for(INJECTOR, kind) if slot is INJECTOR else ()
    filled = {name: _nested(value, facts) if name in inner else value for name, value in entry.items()}
    wanted = (name for name in getattr(kind, "from_data", ()) if name in facts and name not in entry)
    return filled | {name: facts[name] for name in wanted}


def _nested(value: Any, facts: Mapping[str, Any]) -> Any:
    """Return an injector, or a map of them, among the arguments of another one, with the facts that they take."""
    if not isinstance(value, dict) or isinstance(value.get("type"), str):
        return _filled(value, INJECTOR, facts)
    return {name: _nested(part, facts) for name, part in value.items()}


def _kind(entry: Any, slot: Slot) -> type | None:
    """Return the class that an entry declares; None if it declares none that exists."""
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
        return None
    return find_type(entry["type"], slot, "", ErrorCollector(Path()))


def _inheriting(entries: Any, parents: Content, common: Content) -> Any:
    """Return each entry with the keys of its parent, the one of the same name, or of `common` without a parent."""
    if not isinstance(entries, dict):
        return entries
    return {
        name: {**_inherited(name, entry, parents, common), **entry} if isinstance(entry, dict) else entry
        for name, entry in entries.items()
    }


def _inherited(name: str, entry: Content, parents: Content, common: Content) -> Content:
    """Return the keys of an entry's parent; none if they are arguments of another class than the entry's."""
    if name not in parents:
        return common
    parent = _map(parents[name])
    return {} if entry.get("type", parent.get("type")) != parent.get("type") else parent


def _origins(entries: Any, key: str, parents: Content, common: Content) -> dict[str, str]:
    """Return for the key of each inherited value of `entries`, which stand at `key`, the key where it is written."""
    inherited: dict[str, str] = {}
    for name, entry in _map(entries).items():
        source = f"data.validation.{name}" if name in parents else "data.common"
        values = _inherited(name, entry, parents, common) if isinstance(entry, dict) else {}
        inherited |= {f"{key}.{name}.{one}": f"{source}.{one}" for one in values if one not in entry}
    return inherited


def _map(value: Any) -> Content:
    return value if isinstance(value, dict) else {}
