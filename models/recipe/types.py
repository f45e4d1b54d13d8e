"""From a declaration in a recipe, `{type: images.L1, background: 0.2}`, to the object it names."""

import builtins
import importlib
import inspect
import json
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import (
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    TypeAdapter,
    ValidationError,
)

from models.base.error_collector import ErrorCollector, expectation
from models.recipe.schema import Declaration, Recipe


@dataclass(frozen=True)
class Slot:
    """A place of the recipe and what may stand there: subclasses of `base_name`, imported when one is looked up.

    `home` is the package whose classes go by their bare name; other types are dotted names, looked up in `models` first,
    then as an absolute import (`torch.optim.Adam`, `mypackage.losses.Wing`). Below `models` the package is enough:
    `images.L1` is the class `L1` of whichever module of `models.images` defines it.
    """

    what: str
    base_name: str
    home: str | None = None

    @cached_property
    def base(self) -> builtins.type:
        """The class that everything in this place is a subclass of."""
        module, _, name = self.base_name.rpartition(".")
        return typing.cast(builtins.type, getattr(importlib.import_module(module), name))

    def includes(self, kind: builtins.type) -> bool:
        """Whether a class is a subclass of the base, which cannot be where nobody has loaded the base."""
        return self.base_name.rpartition(".")[0] in sys.modules and issubclass(kind, self.base)


SCHEDULE = Slot("schedule", "models.interfaces.Schedule", home="models.schedules")
INJECTOR = Slot("injector", "models.interfaces.Injector", home="models.ops")
DATASET = Slot("dataset", "models.interfaces.Examples")
PHOTOS = Slot("photos", "models.prediction.inputs.PhotoExamples")
NETWORK = Slot("network", "torch.nn.Module")
LOSS = Slot("loss", "models.interfaces.Loss")
OPTIMIZER = Slot("optimizer", "torch.optim.Optimizer", home="models.optimizers")
CALLBACK = Slot("callback", "models.interfaces.Callback")
SCORE = Slot("score", "models.report.interfaces.Score")
PICTURE = Slot("picture", "models.report.interfaces.Picture")
ANY_NAME = r"[A-Za-z]\w*"
NESTED = (SCHEDULE, INJECTOR)  # what may be declared among the arguments of something


def find_type(name: str, slot: Slot, key: str, errors: ErrorCollector) -> builtins.type | None:
    """Return the class that `name` means in `slot`, or None after noting what is wrong at `key`."""
    package, _, attribute = name.rpartition(".")
    if not package and slot.home is None:
        errors.add(key, f"found {name!r}; expected a dotted name, such as 'images.L1' or 'mypackage.losses.Wing'")
        return None
    places = [f"models.{package}", package] if package else [str(slot.home)]
    modules = [module for module in map(_import, places) if module is not None]
    if not modules:
        errors.add(key, f"{slot.what} {name!r}: there is no module {package!r}, in models or elsewhere")
        return None
    for module in modules:
        for kind in _classes(module, attribute):
            if _fits(kind, slot):
                return kind
            errors.add(key, f"{name!r} is no {slot.what} (it is no {slot.base.__name__})")
            return None
    prefix = f"{package}." if package else ""
    known = {prefix + kind.__name__ for module in modules for kind in _classes(module) if _fits(kind, slot)}
    errors.add_unknown(key, name, known, slot.what)
    return None


def find_class(name: str) -> builtins.type | None:
    """Return the class that `name` means anywhere in a recipe, None for what is no class (`type: jpeg`)."""
    package, _, attribute = name.rpartition(".")
    homes = [slot.home for slot in (SCHEDULE, INJECTOR, OPTIMIZER) if slot.home]
    modules = map(_import, [f"models.{package}", package] if package else homes)
    return next((kind for module in modules if module is not None for kind in _classes(module, attribute)), None)


def _classes(module: Any, name: str | None = None) -> Iterator[builtins.type]:
    """Yield the classes of a module, or of the modules of a package of `models`; only those of one name, if it is given.

    A module is imported only where its text defines such a class: a recipe loads no more code than it names.
    """
    public = [name] if name else [one for one in vars(module) if not one.startswith("_")]
    yield from (kind for one in public if isinstance(kind := getattr(module, one, None), type))
    if not module.__name__.startswith("models.") or not hasattr(module, "__path__"):
        return
    pattern = re.compile(rf"^class ({name or ANY_NAME})\b", re.MULTILINE)
    for folder in map(Path, module.__path__):
        for path in sorted(folder.rglob("*.py")):
            if defined := pattern.findall(path.read_text(encoding="utf-8")):
                parts = path.relative_to(folder).with_suffix("").parts
                home = importlib.import_module(".".join((module.__name__, *parts)))
                yield from (getattr(home, one) for one in defined)


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
    errors: ErrorCollector,
    given: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the keyword arguments with which `kind` can be called, NESTED constructed; faults go to `errors`.

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
        if name not in parameters and name in getattr(kind, "renamed", {}):
            errors.add(f"{key}.{name}", f"this key is now called {kind.renamed[name]!r}")  # type: ignore[attr-defined]
            continue
        if name not in parameters:
            errors.add_unknown(f"{key}.{name}", name, [*parameters, *beside], f"argument of {kind.__name__}")
            continue
        hint = hints.get(parameters[name].name, Any)
        found = len(errors.lines)
        for slot in NESTED:
            if _may_hold(hint, slot):
                value = _with_constructed(value, slot, f"{key}.{name}", errors)
        if len(errors.lines) == found:
            value = _conforming(value, hint, f"{key}.{name}", errors)
        checked[parameters[name].name] = value
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in arguments:
            errors.add(f"{key}.{name}", f"missing; {kind.__name__} needs it")
    return checked


def check_declaration(
    entry: Declaration, slot: Slot, key: str, errors: ErrorCollector, given: tuple[str, ...] = ()
) -> builtins.type | None:
    """Return the class of a declaration whose arguments are checked too, None after noting that there is no such class."""
    kind = find_type(entry.type, slot, f"{key}.type", errors)
    if kind is not None:
        check_arguments(kind, entry.arguments, key, errors, given, tuple(type(entry).model_fields))
    return kind


def _may_hold(hint: Any, slot: Slot) -> bool:
    """Whether an annotation is, or has in it, the slot's base, or `Any` for a schedule; elsewhere `type` is any key."""
    if hint is Any:
        return slot is SCHEDULE
    if isinstance(hint, type) and slot.includes(hint):
        return True
    return any(_may_hold(part, slot) for part in typing.get_args(hint))


def _with_constructed(value: Any, slot: Slot, key: str, errors: ErrorCollector) -> Any:
    """Construct what stands in `value` as `{type: Linear, ...}`."""
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        return construct(value["type"], {k: v for k, v in value.items() if k != "type"}, slot, key, errors)
    if isinstance(value, dict):
        return {name: _with_constructed(part, slot, f"{key}.{name}", errors) for name, part in value.items()}
    return value


def _conforming(value: Any, hint: Any, key: str, errors: ErrorCollector) -> Any:
    """Return `value` in the form that the annotation asks for (a YAML list as a tuple); faults go to `errors`."""
    if hint is Any:
        return value
    if _holds_constructed(value):  # its own arguments are checked; what stands beside it is not yet
        plain = {name: part for name, part in value.items() if not _is_constructed(part)}
        return {**value, **_conforming(plain, hint, key, errors)} if plain else value
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
        errors.add(key, f"found {found}; expected {' or '.join(sorted(expected))}")
        return value


def _is_constructed(value: Any) -> bool:
    return any(slot.includes(type(value)) for slot in NESTED) or _holds_constructed(value)


def _holds_constructed(value: Any) -> bool:
    return isinstance(value, dict) and any(_is_constructed(part) for part in value.values())


def construct(
    name: str,
    arguments: Mapping[str, Any],
    slot: Slot,
    key: str,
    errors: ErrorCollector,
    *,
    beside: tuple[str, ...] = (),
    **given: Any,
) -> Any:
    """Return the object that a declaration names, or None after noting what is wrong.

    `given` are constructor arguments that the engine supplies. A ValueError of the constructor is a problem of the
    declaration, not of the program.
    """
    found = len(errors.lines)
    kind = find_type(name, slot, f"{key}.type", errors)
    if kind is None:
        return None
    checked = check_arguments(kind, arguments, key, errors, tuple(given), beside)
    if len(errors.lines) > found:
        return None
    try:
        return kind(**checked, **given)
    except ValueError as error:
        errors.add(key, f"{name}: {error}")
        return None


def build(entry: Declaration, slot: Slot, key: str, **given: Any) -> Any:
    """Return the object that a declaration of a checked recipe names; `given` as in `construct`.

    Raises:
        UserError: everything that is wrong with it.
    """
    errors = ErrorCollector(Path("recipe"))
    instance = construct(entry.type, entry.arguments, slot, key, errors, **given)
    errors.raise_any()
    return instance


def checked_call(kind: builtins.type, arguments: Mapping[str, Any], key: str, **given: Any) -> Any:
    """Call `kind` with arguments that stand in a map inside a declaration, checked as those of a declaration are.

    Raises:
        ValueError: everything that is wrong with them, under `key`.
    """
    errors = ErrorCollector(Path(kind.__name__))
    checked = check_arguments(kind, arguments, key, errors, tuple(given))
    if errors.lines:
        raise ValueError("; ".join(line.removeprefix(f"{errors.file}: ") for line in errors.lines))
    return kind(**checked, **given)


def build_schedule(entry: Declaration | None, key: str, errors: ErrorCollector) -> Any:
    """Construct a schedule; none means a constant 1."""
    if entry is None:
        return construct("Constant", {}, SCHEDULE, key, errors)
    return construct(entry.type, entry.arguments, SCHEDULE, key, errors)


def batch_names(entries: Mapping[str, Declaration]) -> list[str]:
    """Return the names that every one of these datasets provides, in the order of the first."""
    provided = [_provided(entry) for entry in entries.values()]
    return [name for name in provided[0] if all(name in others for others in provided)]


def partial_names(recipe: Recipe) -> frozenset[str]:
    """Return the names that only some datasets of a split provide: a loss that reads one counts where it is there."""
    found: set[str] = set()
    for entries in (recipe.data.train, recipe.data.validation):
        provided = [set(_provided(entry)) for entry in entries.values()]
        found |= set[str]().union(*provided) - provided[0].intersection(*provided)
    return frozenset(found)


def _provided(entry: Declaration) -> tuple[str, ...]:
    kind: Any = find_type(entry.type, DATASET, "", ErrorCollector(Path()))
    return tuple(kind.provides(entry.arguments))
