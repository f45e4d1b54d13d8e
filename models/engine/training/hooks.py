"""The hooks of a training loop: methods of a `Trainer`, or callables in their place, and what reaches them."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from models.engine.errors import UserError, nearest


class Hooks:
    """Calls each hook with what it asks for by the names of its parameters.

    A hook is a method of `owner`, or the callable given for it, which gets `owner` first. `offers` says what each may
    ask for; beside that it gets the keywords under its name in `callback_kwargs`, and those only.

    Raises:
        UserError: keywords for an unknown callback, a keyword that the hook does not take, or a parameter without
            default that nobody gives.
    """

    def __init__(
        self,
        owner: Any,
        offers: Mapping[str, Iterable[str]],
        callables: Mapping[str, Callable[..., Any] | None],
        callback_kwargs: Mapping[str, Mapping[str, Any]],
    ) -> None:
        for name in callback_kwargs:
            if name not in offers:
                raise UserError(
                    f"callback_kwargs: unknown callback {name!r}{nearest(name, offers)}; there are {', '.join(offers)}"
                )
        self._owner, self._callables = owner, callables
        self._keywords = {name: dict(callback_kwargs.get(name, {})) for name in offers}
        self._asked = {name: self._check(name, list(offered)) for name, offered in offers.items()}

    def __call__(self, name: str, offered: Mapping[str, Any]) -> Any:
        """Call a hook and return what it returns; `offered` holds the values of what was offered for it."""
        callback = self._callables.get(name)
        arguments = {key: offered[key] for key in self._asked[name]} | self._keywords[name]
        return callback(self._owner, **arguments) if callback else getattr(self._owner, name)(**arguments)

    def _check(self, name: str, offered: list[str]) -> list[str]:
        """Return which of `offered` the hook asks for."""
        callback, keywords = self._callables.get(name), self._keywords[name]
        hook = callback or getattr(self._owner, name)
        parameters = list(inspect.signature(hook).parameters.values())[bool(callback) :]
        title = f"{name} ({getattr(hook, '__qualname__', type(hook).__name__)})"
        named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        for keyword in keywords:
            if keyword not in named and not takes_any:
                raise UserError(f"callback_kwargs.{title} takes no {keyword!r}{nearest(keyword, named)}")
        for parameter in named.values():
            if parameter.default is parameter.empty and parameter.name not in [*offered, *keywords]:
                raise UserError(
                    f"{title} needs {parameter.name!r}{nearest(parameter.name, offered)}, which nobody gives; it may ask "
                    f"for {', '.join(offered)}, or get it through callback_kwargs.{name}"
                )
        return [key for key in offered if key in named and key not in keywords]
