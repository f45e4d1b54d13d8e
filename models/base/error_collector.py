"""Collects all errors of a file, so that people see them at once."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from models.base.errors import UserError, nearest

Model = TypeVar("Model", bound=BaseModel)

PHRASES = {
    "String should match pattern '^[A-Za-z_][A-Za-z0-9_]*$'": "a name of letters, digits and underscores",
    "List should have": "a list of",
    "Dictionary should have": "a map of",
    " after validation": "",
    "Field required": "one value more",
    "an object": "a map",
    "a dictionary": "a map",
}


@dataclass
class ErrorCollector:
    """The errors of one file, a line each: dotted key, what was found, what is allowed."""

    file: Path
    lines: list[str] = field(default_factory=list)

    def add(self, key: str, message: str) -> None:
        """Add an error at the dotted `key`."""
        self.lines.append(f"{self.file}: {key}: {message}")

    def add_unknown(self, key: str, word: str, allowed: Iterable[str], what: str) -> None:
        """Add that `word` is none of the `allowed`, with the nearest spelling."""
        choices = sorted(allowed)
        self.add(key, f"unknown {what} {word!r}{nearest(word, choices)}; allowed: {', '.join(choices) or 'none'}")

    def raise_any(self) -> None:
        """Raise one UserError with all lines, if there are any."""
        if self.lines:
            raise UserError("\n".join(self.lines))


def validated(model: type[Model], content: dict[str, Any], errors: ErrorCollector, prefix: str = "") -> Model | None:
    """Check plain values against a schema, strictly: no text becomes a number, no number a boolean.

    Errors go to `errors`. If all of them are unknown keys, the other keys are still returned, so that later checks can
    add more errors; otherwise None.
    """
    try:
        return model.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False)
    for detail in details:
        _report(detail, content, model, errors, prefix)
    if any(detail["type"] != "extra_forbidden" for detail in details):
        return None
    for detail in details:
        content = _without(content, detail["loc"])
    return validated(model, content, errors, prefix)


def _report(detail: ErrorDetails, content: Any, model: type[BaseModel], errors: ErrorCollector, prefix: str) -> None:
    location = [str(part) for part in detail["loc"] if part != "[key]"]
    key = ".".join(([prefix] if prefix else []) + location) or "the file"
    sections = _sections(model, detail["loc"][:-1])
    renamed = {old: new for section in sections for old, new in getattr(section, "renamed", {}).items()}
    if detail["type"] == "extra_forbidden" and location[-1] in renamed:
        errors.add(key, f"this key is now called {renamed[location[-1]]!r}")
    elif detail["type"] == "extra_forbidden":
        errors.add_unknown(key, location[-1], _keys(sections), "key")
    elif detail["type"] == "missing":
        before = [old for old, new in renamed.items() if new == location[-1]]
        errors.add(key, "missing; it has no default" + "".join(f"; it was called {old!r} before" for old in before))
    elif detail["type"] == "value_error":
        errors.add(key, str(detail["ctx"]["error"]))
    else:
        errors.add(key, f"found {detail['input']!r}; expected {expectation(detail['msg'])}")


def expectation(message: str) -> str:
    """Return what pydantic's `message` asks for, in our words."""
    if "JsonOrPython" in message:  # a class that no YAML value can be
        return "another form"
    allowed = message.removeprefix("Input should be ").replace("a valid", "a").replace("a integer", "an integer")
    for phrase, ours in PHRASES.items():
        allowed = allowed.replace(phrase, ours)
    return allowed


def _sections(model: Any, location: Sequence[int | str]) -> list[type[BaseModel]]:
    """Return the schemas at `location`, following fields, maps and unions."""
    candidates = [model]
    for part in location:
        candidates = [one for candidate in candidates for one in _below(candidate, part)]
    return [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]


def _keys(sections: Iterable[type[BaseModel]]) -> list[str]:
    return [info.alias or name for section in sections for name, info in section.model_fields.items()]


def _below(annotation: Any, part: int | str) -> list[Any]:
    arguments = getattr(annotation, "__args__", ())
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {info.alias or name: info for name, info in annotation.model_fields.items()}
        return _expanded(fields[str(part)].annotation) if str(part) in fields else []
    return [one for argument in arguments[-1:] for one in _expanded(argument)]


def _expanded(annotation: Any) -> list[Any]:
    if getattr(annotation, "__origin__", None) is None and hasattr(annotation, "__args__"):  # X | None
        return [one for argument in annotation.__args__ for one in _expanded(argument)]
    return [annotation]


def _without(content: Any, location: Sequence[int | str]) -> Any:
    first, *rest = location
    if isinstance(content, list):
        return [_without(value, rest) if place == first and rest else value for place, value in enumerate(content)]
    if first not in content:
        return content
    if not rest:
        return {key: value for key, value in content.items() if key != first}
    return {**content, first: _without(content[first], rest)}
