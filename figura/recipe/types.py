"""Construct the objects declared in a recipe, such as `{type: images.L1, background: 0.2}`."""

import builtins
import importlib
import importlib.util
import inspect
import json
import os
import sys
import sysconfig
import traceback
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
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)

from figura.base.error_collector import ErrorCollector, NestedError, expectation
from figura.base.errors import after_signal, install, memory_asked, one_line
from figura.recipe.schema import Declaration, Recipe
from figura.recipe.stand_ins import annotations, is_stand_in
from figura.systems import PACKAGE as SYSTEMS
from figura.systems import classes_in, full_name, modules_below

INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of the standard library and of packages."""


@dataclass(frozen=True)
class Slot:
    """A kind of declaration: an entry that must be a subclass of `base_name`, which is imported at the first lookup.

    A class in the package `home` is declared by its bare name. All others have dotted names, looked up first in
    `models` (`figura.systems`), then as an absolute import (`torch.optim.Adam`, `mypackage.losses.Wing`). In `models`,
    the package suffices: `images.L1` is the class `L1` of any module in `models.images`. With `adapter_name`, functions
    and other packages' classes count, too, as far as it makes a subclass of the base of them (`stand_ins.py`).
    """

    what: str
    base_name: str
    home: str | None = None
    adapter_name: str | None = None  # of a function that makes a class of this kind from another package's part

    @cached_property
    def base(self) -> builtins.type:
        """The base class of all types in this slot."""
        module, _, name = self.base_name.rpartition(".")
        return typing.cast(builtins.type, getattr(importlib.import_module(module), name))

    def adapted(self, part: Any) -> builtins.type | None:
        """Return the class that stands for a function, or for a class of another package, in this slot; or None."""
        ours = isinstance(part, type) and part.__module__.partition(".")[0] in (SYSTEMS, "figura")
        if self.adapter_name is None or ours:
            return None
        module, _, name = self.adapter_name.rpartition(".")
        return typing.cast(builtins.type | None, getattr(importlib.import_module(module), name)(part))

    def includes(self, kind: builtins.type) -> bool:
        """Whether a class is a subclass of the base; False, without importing the base, if it is not imported yet."""
        return self.base_name.rpartition(".")[0] in sys.modules and issubclass(kind, self.base)


SCHEDULE = Slot("schedule", "figura.interfaces.Schedule", home="figura.schedules")
INJECTOR = Slot("injector", "figura.interfaces.Injector", "figura.injectors", "figura.engine.package_parts.injector_of")
DATASET = Slot("dataset", "figura.interfaces.ExampleDataset")
PHOTOS = Slot("photos", "figura.prediction.inputs.PhotoExamples")
COMPARISON = Slot("comparison", "figura.prediction.comparison.Comparison")
NETWORK = Slot("network", "torch.nn.Module", adapter_name="figura.engine.package_parts.network_of")
LOSS = Slot("loss", "figura.interfaces.Loss", adapter_name="figura.engine.package_parts.loss_of")
OPTIMIZER = Slot("optimizer", "torch.optim.Optimizer", home="figura.optimizers")
CALLBACK = Slot("callback", "figura.interfaces.Callback")
SCORE = Slot("score", "figura.report.interfaces.Score", adapter_name="figura.report.package_scores.score_of")
PICTURE = Slot("picture", "figura.report.interfaces.Picture")
TRUSTED_ONLY = "FIGURA_TRUSTED_TYPES_ONLY"  # environment variable set by `figura.recipe.trusted`
OTHERS = (
    "albumentations", "diffusers", "kornia", "lpips", "piq", "pytorch_optimizer", "segmentation_models_pytorch",
    "spandrel", "timm", "torchvision",
)  # fmt: skip
"""Packages whose parts a recipe may name (docs/your_own_code.md); no other name is proposed to pip."""
LONGEST_NAME = 200  # characters of a type name


def find_type(name: str, slot: Slot, key: str, errors: ErrorCollector) -> builtins.type | None:
    """Return the class that `name` refers to in `slot`, or None after adding an error at `key`."""
    package, _, attribute = name.rpartition(".")
    if not _is_dotted(name) or (not package and slot.home is None):
        here = errors.hint(slot.what, name) or "a dotted name, such as 'images.L1' or 'mypackage.losses.Wing'"
        errors.add(key, f"found {name!r}; expected {here}")
        return None
    modules, kinds = [], list[Any]()
    try:
        for candidate in _candidates(package) if package else [str(slot.home)]:
            if not kinds and (module := _import(candidate)) is not None:  # import another package only if necessary
                modules.append(module)
                kinds = [kind for _, kind in _parts(module, attribute)]
    except _BrokenModuleError as error:
        errors.add(key, f"{slot.what} {name!r}: {error}")
        return None
    if not modules:
        first = package.partition(".")[0]
        absent = first in OTHERS and not os.environ.get(TRUSTED_ONLY) and importlib.util.find_spec(first) is None
        nowhere = f"there is no module {package!r}, in models or elsewhere"
        why = f"{first} is not installed; {install(first)}" if absent else nowhere
        errors.add(key, f"{slot.what} {name!r}: {why}")
        return None
    for kind in kinds:
        if _fits(kind, slot):
            return typing.cast(builtins.type, kind)
        if (adapted := slot.adapted(kind)) is not None:
            return adapted
    if kinds:
        ours = errors.hint(slot.what, name)
        why = f" ({_why_not(kinds[0], slot)})" if ours is None else f"; here: {ours}"
        errors.add(key, f"{name!r} is no {slot.what}{why}")
        return None
    prefix = f"{package}." if package else ""
    there = [one for module in modules for one in _parts(module)]
    known = {prefix + called for called, kind in there if _fits(kind, slot) or slot.adapted(kind)}
    errors.add_unknown(key, name, known, slot.what)
    return None


def _candidates(package: str) -> list[str]:
    """Return the names under which a type's package may be imported, in lookup order.

    With trusted types only, these are figura's package and PyTorch.
    """
    if os.environ.get(TRUSTED_ONLY):
        return [package if package.partition(".")[0] == "torch" else full_name(package, shipped_only=True)]
    return list(dict.fromkeys([full_name(package), package]))


def _parts(module: Any, name: str | None = None) -> Iterator[tuple[str, Any]]:
    """Yield classes by name, of a module or of all modules in a package of `models`, then functions of the module.

    With `name`, only those. A module is imported only if its source defines such a class, so a recipe loads only the
    code it names. With trusted types only, there are no functions.
    """
    public = [name] if name else [one for one in vars(module) if not one.startswith("_")]
    yield from ((one, kind) for one in public if isinstance(kind := getattr(module, one, None), type))
    ours = module.__name__.partition(".")[0] in (SYSTEMS, "figura")
    for folder in map(Path, getattr(module, "__path__", ()) if ours else ()):
        for parts, path in modules_below(folder):
            if names := [one for one in classes_in(path) if (one == name if name else not one.startswith("_"))]:
                home = _import(".".join((module.__name__, *parts)))
                yield from ((one, getattr(home, one)) for one in names)
    if not os.environ.get(TRUSTED_ONLY):
        yield from ((one, found) for one in public if inspect.isroutine(found := getattr(module, one, None)))


def _why_not(kind: Any, slot: Slot) -> str:
    if isinstance(kind, type) or slot.adapter_name is None:
        return f"it is no {slot.base.__name__}"
    if slot is SCORE:
        return "it is a function; a class of torchmetrics counts"
    if slot is INJECTOR:
        return "functions of Python's own library are none"
    return f"a function counts if it is annotated to return a torch.{'nn.Module' if slot is NETWORK else 'Tensor'}"


def _is_dotted(name: str) -> bool:
    return len(name) <= LONGEST_NAME and all(part.isidentifier() for part in name.split("."))


class _BrokenModuleError(Exception):
    """A module raised an error while being imported; the message has the error and its location."""


def _import(name: str) -> Any:
    """Return a module, or None if there is none. Raises _BrokenModuleError if its code raises."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # third-party code, perhaps a script
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(f"{missing}.")):
            return None
        if after_signal(error):
            raise
        raise _BrokenModuleError(
            one_line(f"the import of {name} fails{_place(error)}: {type(error).__name__}: {error}")
        ) from error


def _place(error: BaseException) -> str:
    """Return ` at FILE:LINE`: of the syntax error, or the innermost traceback line outside packages."""
    if isinstance(error, SyntaxError):
        return f" at {error.filename}:{error.lineno}" if error.filename else ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if one.filename != __file__ and not one.filename.startswith((*INSTALLED, "<"))]
    last = (own or frames)[-1]
    return f" at {last.filename}:{last.lineno}"


def _fits(value: Any, slot: Slot) -> bool:
    return isinstance(value, type) and issubclass(value, slot.base) and value is not slot.base


def check_arguments(
    kind: builtins.type,
    arguments: Mapping[str, Any],
    key: str,
    errors: ErrorCollector,
    supplied: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the keyword arguments to call `kind` with, nested declarations constructed; errors go to `errors`.

    Every argument must be a parameter of the constructor and match its annotation (strictly: no text for a number).
    Every parameter without default is needed, except those in `supplied`, which the engine adds. A parameter that ends
    in an underscore (`from_`) is written without it. `beside` are the entry's other keys, for spelling suggestions.
    A part of another package that takes further keywords (`**kwargs`) gets them as they are.
    """
    if (option := os.environ.get(TRUSTED_ONLY)) and (package := getattr(kind, "passes_arguments_to", None)):
        errors.add(key, f"{kind.__name__} passes its arguments to {package}; {option} takes no class that does")
        return {}
    every = inspect.signature(kind).parameters
    parameters = {
        name.rstrip("_"): parameter
        for name, parameter in every.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and name not in supplied
    }
    takes_more = is_stand_in(kind) and any(parameter.kind is parameter.VAR_KEYWORD for parameter in every.values())
    hints = annotations(kind.__init__)  # type: ignore[misc]
    renamed: Mapping[str, str] = getattr(kind, "renamed", {})
    checked = {}
    for name, value in arguments.items():
        if name not in parameters:
            if takes_more:
                checked[name] = value
            elif name in renamed:
                errors.add(f"{key}.{name}", f"this key is now called {renamed[name]!r}")
            else:
                errors.add_unknown(f"{key}.{name}", name, [*parameters, *beside], f"argument of {kind.__name__}")
            continue
        hint = hints.get(parameters[name].name, Any)
        before = errors.count
        if _may_hold_schedules(hint):
            value = _with_schedules(value, f"{key}.{name}", errors)
        if errors.count == before:
            value = _conforming(value, hint, f"{key}.{name}", errors)
        checked[parameters[name].name] = value
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in arguments:
            taken = "; this key is the entry's own, so the argument needs another name" if name in beside else ""
            errors.add(f"{key}.{name}", f"missing; {kind.__name__} needs it{taken}")
    return checked


def check_declaration(
    entry: Declaration, slot: Slot, key: str, errors: ErrorCollector, supplied: tuple[str, ...] = ()
) -> builtins.type | None:
    """Check the arguments of a declaration; return its class, or None after adding an error if there is no class."""
    kind = find_type(entry.type, slot, f"{key}.type", errors)
    if kind is not None:
        check_arguments(kind, entry.arguments, key, errors, supplied, tuple(type(entry).model_fields))
    return kind


def _may_hold_schedules(hint: Any) -> bool:
    """Whether an annotation is `Any`, or is or contains a schedule."""
    if hint is Any or (isinstance(hint, type) and SCHEDULE.includes(hint)):
        return True
    return any(map(_may_hold_schedules, typing.get_args(hint)))


def _with_schedules(value: Any, key: str, errors: ErrorCollector) -> Any:
    """Construct the schedules (`{type: Linear, ...}`) inside `value`."""
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        return construct(value["type"], {k: v for k, v in value.items() if k != "type"}, SCHEDULE, key, errors)
    if isinstance(value, dict):
        return {name: _with_schedules(part, f"{key}.{name}", errors) for name, part in value.items()}
    return value


def _conforming(value: Any, hint: Any, key: str, errors: ErrorCollector) -> Any:
    """Return `value` converted to its annotation (a YAML list to a tuple); errors go to `errors`."""
    if hint is Any:
        return value
    if _holds_constructed(value):  # constructed objects are already checked, their sibling values are not
        plain = {name: part for name, part in value.items() if not _is_constructed(part)}
        return {**value, **_conforming(plain, hint, key, errors)} if plain else value
    if (adapter := _adapter(hint)) is None:
        return value
    constructed = _is_constructed(value)
    try:
        if constructed:
            return adapter.validate_python(value)
        return adapter.validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        if _is_instance(value, adapter):
            return value
        if constructed:
            expected = {expectation(detail["msg"]) for detail in error.errors()}
            errors.add(key, f"found one {type(value).__name__}; expected {' or '.join(sorted(expected))}")
        else:
            errors.add_invalid(error, hint, key)
        return value


def _is_instance(value: Any, adapter: TypeAdapter[Any]) -> bool:
    """Tell if `value` conforms as it is: an annotation such as numbers.Number, a class, takes nothing from JSON."""
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def _adapter(hint: Any) -> TypeAdapter[Any] | None:
    """Return a validator of an annotation, or None if pydantic does not support it."""
    for config in (ConfigDict(arbitrary_types_allowed=True), None):
        try:
            return TypeAdapter(hint, config=config)
        except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
            return None
        except PydanticUserError:  # models, dataclasses and typed dictionaries bring their own config
            continue
    return None


def _is_constructed(value: Any) -> bool:
    return SCHEDULE.includes(type(value)) or _holds_constructed(value)


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
    **supplied: Any,
) -> Any:
    """Construct the object of a declaration; return None after adding errors.

    `supplied` are constructor arguments from the engine. A ValueError, OverflowError or out-of-memory error in the
    constructor is reported as an error of the declaration.
    """
    before = errors.count
    kind = find_type(name, slot, f"{key}.type", errors)
    if kind is None:
        return None
    checked = check_arguments(kind, arguments, key, errors, tuple(supplied), beside)
    if errors.count > before:
        return None
    try:
        return kind(**checked, **supplied)
    except NestedError as error:
        errors.add_below(key, error.errors)
    except (MemoryError, RuntimeError) as error:
        if (asked := memory_asked(error)) is None and not is_stand_in(kind):
            raise
        errors.add(key, one_line(f"{name}: {error}") if asked is None else f"{name}: {asked}; make it smaller")
    except (ValueError, OverflowError) as error:
        lacking = [one for one in getattr(kind, "from_data", ()) if one not in checked]
        if not lacking or errors.facts_known:  # otherwise, the facts of the data may be what is missing
            errors.add(key, f"{name}: {'; '.join(map(str.strip, str(error).splitlines()))}")
    except Exception as error:
        if not is_stand_in(kind) or after_signal(error):
            raise
        errors.add(key, one_line(f"{name}: {type(error).__name__}: {error}"))
    return None


def build(entry: Declaration, slot: Slot, key: str, file: Path = Path("recipe"), **supplied: Any) -> Any:
    """Construct the object of a declaration in a checked recipe; for `supplied`, see `construct`.

    `file` is the recipe's path, for messages.

    Raises:
        UserError: all its errors.
    """
    errors = ErrorCollector(file)
    built = construct(entry.type, entry.arguments, slot, key, errors, **supplied)
    errors.raise_any()
    return built


def checked_call(kind: builtins.type, arguments: Mapping[str, Any], key: str, **supplied: Any) -> Any:
    """Call `kind` with arguments from a map nested in a declaration, checked in the same way.

    Raises:
        NestedError: all errors, under `key`.
    """
    errors = ErrorCollector(Path(kind.__name__))
    checked = check_arguments(kind, arguments, key, errors, tuple(supplied))
    if errors.lines:
        raise NestedError(errors)
    return kind(**checked, **supplied)


def build_schedule(entry: Declaration, key: str, errors: ErrorCollector) -> Any:
    """Construct a schedule."""
    return construct(entry.type, entry.arguments, SCHEDULE, key, errors)


def batch_names(entries: Mapping[str, Declaration]) -> list[str]:
    """Return the names that all datasets provide, in the order of the first dataset."""
    provided = [_provided(entry) for entry in entries.values()]
    return [name for name in provided[0] if all(name in others for others in provided)]


def partial_names(recipe: Recipe) -> frozenset[str]:
    """Return the names that only some datasets of a split provide; losses that read a missing one are skipped."""
    partial: set[str] = set()
    for entries in (recipe.data.train, recipe.data.validation):
        provided = [set(_provided(entry)) for entry in entries.values()]
        partial |= set[str]().union(*provided) - provided[0].intersection(*provided)
    return frozenset(partial)


def _provided(entry: Declaration) -> tuple[str, ...]:
    kind: Any = find_type(entry.type, DATASET, "", ErrorCollector(Path()))
    return tuple(kind.provides(entry.arguments))
