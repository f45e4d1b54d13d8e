"""Hooks of a trainer get the values that they ask for by the names of their parameters."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from figura.base.errors import UserError, nearest


def by_parameter_names(
    name: str, hook: Callable[..., Any], offered: Sequence[str], keywords: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function of all `offered` values that calls `hook` with those it has parameters for.

    `keywords` are passed, too, and override offered values.

    Raises:
        UserError: the hook does not accept a keyword, or a parameter without default is neither offered nor a keyword.
    """
    parameters = list(inspect.signature(hook).parameters.values())
    title = f"{name} ({getattr(hook, '__qualname__', type(hook).__name__)})"
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for keyword in keywords:
        if keyword not in named and not takes_any:
            raise UserError(f"hook_kwargs.{title} takes no {keyword!r}{nearest(keyword, named)}")
    for parameter in named.values():
        if parameter.default is parameter.empty and parameter.name not in [*offered, *keywords]:
            raise UserError(
                f"{title} needs {parameter.name!r}{nearest(parameter.name, offered)}; it may ask for "
                f"{', '.join(offered)}, or get it through hook_kwargs.{name}"
            )
    wanted = [key for key in offered if key in named and key not in keywords]
    return lambda values: hook(**{key: values[key] for key in wanted}, **keywords)
