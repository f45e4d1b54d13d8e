"""The part of GitHub's and GitLab's expression languages that the project's files use."""

import re
from collections.abc import Callable, Mapping
from typing import Any

TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*'|\"[^\"]*\")|(?P<regex>/(?:[^/\\]|\\.)+/)|(?P<word>\$?[A-Za-z_][\w.*-]*)"
    r"|(?P<sign>&&|\|\||==|!=|=~|!|\(|\)|,))"
)
Functions = Mapping[str, Callable[..., Any]]


def evaluate(expression: str, values: Mapping[str, Any], functions: Functions | None = None) -> Any:
    """Return the value of an expression; names that `values` (nested) lacks are '' as on GitHub; raises ValueError."""
    tokens, place = [], 0
    expression = expression.strip()
    while place < len(expression):
        match = TOKEN.match(expression, place)
        if not match:
            raise ValueError(f"cannot read {expression[place:]!r}")
        tokens.append((match.lastgroup, match[match.lastgroup or 0]))
        place = match.end()
    parser = _Parser(tokens, values, functions or {})
    value = parser.either()
    if parser.tokens:
        raise ValueError(f"cannot read {parser.tokens} of {expression!r}")
    return value


class _Parser:
    """Recursive descent over the tokens that are left; `||` binds weakest, `!` strongest."""

    def __init__(self, tokens: list, values: Mapping[str, Any], functions: Functions) -> None:
        self.tokens, self.values, self.functions = tokens, values, functions

    def next_is(self, *signs: str) -> str | None:
        if self.tokens and self.tokens[0][1] in signs:
            return self.tokens.pop(0)[1]
        return None

    def either(self) -> Any:
        value = self.both()
        while self.next_is("||"):
            other = self.both()
            value = value or other
        return value

    def both(self) -> Any:
        value = self.comparison()
        while self.next_is("&&"):
            other = self.comparison()
            value = value and other
        return value

    def comparison(self) -> Any:
        value = self.single()
        if sign := self.next_is("==", "!=", "=~"):
            other = self.single()
            return bool(re.search(other, value)) if sign == "=~" else (value == other) == (sign == "==")
        return value

    def single(self) -> Any:
        if self.next_is("!"):
            return not self.single()
        if self.next_is("("):
            value = self.either()
            assert self.next_is(")")
            return value
        kind, text = self.tokens.pop(0)
        if kind in ("text", "regex"):
            return text[1:-1]
        if self.next_is("("):
            arguments = []
            while not self.next_is(")"):
                arguments.append(self.either())
                self.next_is(",")
            return self.functions[text](*arguments)
        return self.look_up(text.removeprefix("$"))

    def look_up(self, name: str) -> Any:
        if name in ("true", "false"):
            return name == "true"
        value: Any = self.values
        keys = name.split(".")
        for position, key in enumerate(keys):
            if key == "*":
                return [item[keys[position + 1]] for item in value]
            value = value.get(key, "") if isinstance(value, Mapping) else ""
        return value
