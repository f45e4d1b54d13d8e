"""Classes that stand for parts of other packages, and take the same arguments (`types.Slot.adapted`)."""

import inspect
import types
import typing
from typing import Any


def stand_in(
    part: Any, base: Any, content: dict[str, Any], arguments: inspect.Signature, hints: dict[str, Any]
) -> Any:  # fmt: skip
    """Return a subclass of `base` with the name of `part`, and a constructor that shows these arguments and types."""
    init = content.setdefault("__init__", lambda self, **given: None)
    init.__annotations__ = hints
    shown = {"stands_for": part, "__signature__": arguments, "__module__": part.__module__, "__doc__": part.__doc__}
    return types.new_class(part.__name__, (base,), exec_body=lambda body: body.update(shown | content))


def is_stand_in(kind: type) -> bool:
    """Whether a class was made by `stand_in`."""
    return "stands_for" in vars(kind)


def annotations(function: Any) -> dict[str, Any]:
    """Return the annotations of a function; {} if some of its names exist for type checkers alone."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def parameters(function: Any, without: int = 0) -> list[inspect.Parameter]:
    """Return the parameters of a function, without the first ones."""
    return list(inspect.signature(function).parameters.values())[without:]
