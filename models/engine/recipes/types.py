"""From a declaration in a recipe, `{type: images.L1, background: 0.2}`, to the object it names."""

import builtins
import importlib
import inspect
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import (
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    TypeAdapter,
    ValidationError,
)

from models.engine.injecting.injection import Injector
from models.engine.problems import Problems, expectation
from models.engine.schedules import Schedule


@dataclass(frozen=True)
class Slot:
    """A place of the recipe and what may stand there.

    `home` is the module whose classes go by their bare name (the engine's own); other types are dotted names, looked up
    in `models` first (`images.L1` is `models.images.L1`), then as an absolute import (`torch.optim.Adam`).
    """

    what: str
    base: builtins.type
    home: str | None = None


SCHEDULE = Slot("schedule", Schedule, home="models.engine.schedules")
INJECTOR = Slot("injector", Injector, home="models.engine.injecting.injectors")
NESTED = (SCHEDULE, INJECTOR)  # what may be declared among the arguments of something


def find_type(name: str, slot: Slot, key: str, problems: Problems) -> builtins.type | None:
    """Return the class that `name` means in `slot`, or None after noting what is wrong at `key`."""
    if "." not in name and slot.home is None:
        problems.add(key, f"found {name!r}; expected a dotted name, such as 'images.L1' or 'mypackage.losses.Wing'")
        return None
    modules = [slot.home] if "." not in name else [f"models.{name.rpartition('.')[0]}", name.rpartition(".")[0]]
    attribute = name.rpartition(".")[2]
    loaded = [module for module in map(_import, filter(None, modules)) if module is not None]
    if not loaded:
        problems.add(
            key, f"{slot.what} {name!r}: there is no module {name.rpartition('.')[0]!r}, in models or elsewhere"
        )
        return None
    for module in loaded:
        found = getattr(module, attribute, None)
        if _fits(found, slot):
            return typing.cast(builtins.type, found)
        if isinstance(found, type):
            problems.add(key, f"{name!r} is no {slot.what} (it is no {slot.base.__name__})")
            return None
    exported = {n for module in loaded for n in _names(module) if _fits(getattr(module, n), slot)}
    home = f"{name.rpartition('.')[0]}." if "." in name else ""
    problems.add_unknown(key, name, [home + n for n in exported], slot.what)
    return None


def _names(module: Any) -> set[str]:
    """Return the public names of a module, those that it loads only when asked for included."""
    return {name for name in {*vars(module), *getattr(module, "__all__", ())} if not name.startswith("_")}


def _import(name: str) -> Any:
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise


def _fits(value: Any, slot: Slot) -> bool:
    return isinstance(value, type) and issubclass(value, slot.base) and value is not slot.base


def check_arguments(
    kind: builtins.type,
    arguments: Mapping[str, Any],
    key: str,
    problems: Problems,
    given: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the keyword arguments with which `kind` can be called, NESTED constructed; faults go to `problems`.

    Every argument must be a parameter of the constructor and fit its annotation (strictly: no text for a number); every
    parameter without default must be there, but for those in `given`, which the engine supplies. A parameter that ends
    in an underscore (`from_`) is written without it. `beside` are keys that the entry has apart from its arguments, as
    spellings to suggest.
    """
    parameters = {
        name.rstrip("_"): parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and name not in given
    }
    hints = typing.get_type_hints(kind.__init__)  # type: ignore[misc]
    checked = {}
    for name, value in arguments.items():
        if name not in parameters:
            problems.add_unknown(f"{key}.{name}", name, [*parameters, *beside], f"argument of {kind.__name__}")
            continue
        hint = hints.get(parameters[name].name, Any)
        found = len(problems.lines)
        for slot in NESTED:
            if _may_hold(hint, slot):
                value = _with_constructed(value, slot, f"{key}.{name}", problems)
        if len(problems.lines) == found:
            value = _conforming(value, hint, f"{key}.{name}", problems)
        checked[parameters[name].name] = value
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in arguments:
            problems.add(f"{key}.{name}", f"missing; {kind.__name__} needs it")
    return checked


def _may_hold(hint: Any, slot: Slot) -> bool:
    """Whether an annotation is, or has in it, the slot's base, or `Any` for a schedule; elsewhere `type` is any key."""
    if hint is Any:
        return slot is SCHEDULE
    if isinstance(hint, type) and issubclass(hint, slot.base):
        return True
    return any(_may_hold(part, slot) for part in typing.get_args(hint))


def _with_constructed(value: Any, slot: Slot, key: str, problems: Problems) -> Any:
    """Construct what stands in `value` as `{type: Linear, ...}`."""
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        return construct(value["type"], {k: v for k, v in value.items() if k != "type"}, slot, key, problems)
    if isinstance(value, dict):
        return {name: _with_constructed(part, slot, f"{key}.{name}", problems) for name, part in value.items()}
    return value


def _conforming(value: Any, hint: Any, key: str, problems: Problems) -> Any:
    """Return `value` in the form that the annotation asks for (a YAML list as a tuple); faults go to `problems`."""
    if hint is Any:
        return value
    if _holds_constructed(value):  # its own arguments are checked; what stands beside it is not yet
        plain = {name: part for name, part in value.items() if not _is_constructed(part)}
        return {**value, **_conforming(plain, hint, key, problems)} if plain else value
    try:
        adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
        return value  # a third-party annotation that says nothing checkable
    constructed = _is_constructed(value)
    try:
        if constructed:
            return adapter.validate_python(value)
        return adapter.validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        expected = {expectation(detail["msg"]) for detail in error.errors()}
        found = f"one {type(value).__name__}" if constructed else repr(value)
        problems.add(key, f"found {found}; expected {' or '.join(sorted(expected))}")
        return value


def _is_constructed(value: Any) -> bool:
    return isinstance(value, (Schedule, Injector)) or _holds_constructed(value)


def _holds_constructed(value: Any) -> bool:
    return isinstance(value, dict) and any(_is_constructed(part) for part in value.values())


def construct(
    name: str,
    arguments: Mapping[str, Any],
    slot: Slot,
    key: str,
    problems: Problems,
    *,
    beside: tuple[str, ...] = (),
    **given: Any,
) -> Any:
    """Return the object that a declaration names, or None after noting what is wrong.

    `given` are constructor arguments that the engine supplies. A ValueError of the constructor is a problem of the
    declaration, not of the program.
    """
    found = len(problems.lines)
    kind = find_type(name, slot, f"{key}.type", problems)
    if kind is None:
        return None
    checked = check_arguments(kind, arguments, key, problems, tuple(given), beside)
    if len(problems.lines) > found:
        return None
    try:
        return kind(**checked, **given)
    except ValueError as error:
        problems.add(key, f"{name}: {error}")
        return None


def checked_call(kind: builtins.type, arguments: Mapping[str, Any], key: str, **given: Any) -> Any:
    """Call `kind` with arguments that stand in a map inside a declaration, checked as those of a declaration are.

    Raises:
        ValueError: everything that is wrong with them, under `key`.
    """
    problems = Problems(Path(kind.__name__))
    checked = check_arguments(kind, arguments, key, problems, tuple(given))
    if problems.lines:
        raise ValueError("; ".join(line.removeprefix(f"{problems.file}: ") for line in problems.lines))
    return kind(**checked, **given)
