"""Networks of other packages, by their own names, where these are functions: `timm.create_model`.

`figura.recipe.types` loads this module by name if a type is no class of figura's own kind. Each function here returns a
class that takes the arguments of the type, so that a recipe is checked as against a class of figura's.
"""

import inspect
import types
import typing
from functools import cache
from typing import Any

from torch import nn


@cache
def network_of(function: Any) -> type[nn.Module] | None:
    """Return a class whose constructor returns the module that a function makes; None for anything else.

    A function counts if its return annotation is `torch.nn.Module` or a subclass.
    """
    returns = _hints(function).get("return") if inspect.isfunction(function) else None
    if not (isinstance(returns, type) and issubclass(returns, nn.Module)):
        return None

    def new(_: type, *_args: Any, **arguments: Any) -> Any:
        made = function(**arguments)
        if not isinstance(made, nn.Module):
            raise TypeError(f"gives a {type(made).__name__}; a torch.nn.Module is needed")
        return made

    return _class(function, returns, {"__new__": new}, inspect.signature(function), _hints(function))


def _class(kind: Any, base: Any, content: dict[str, Any], arguments: inspect.Signature, hints: dict[str, Any]) -> Any:
    """Return a subclass with the name of `kind` and a constructor of these arguments."""
    init = content.setdefault("__init__", lambda self, **given: None)
    init.__annotations__ = hints
    named = {"adapts": kind, "__signature__": arguments, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return types.new_class(kind.__name__, (base,), exec_body=lambda body: body.update(named | content))


def _hints(function: Any) -> dict[str, Any]:
    """Return the annotations of a function; {} if some of its names exist for type checkers alone."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}
