"""Collect all errors of a file, to report them at once."""

import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeGuard

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from figura.base.errors import UserError, closest, nearest, one_line, printable

LONGEST = 80  # characters of a value in a message
LISTED = 20  # errors shown per file; the others are counted
JUDGED = 1000  # errors examined per file

OF_TIME = (".start", ".end", ".after")  # keys that take a share of the training, too
VALIDATED = re.compile(r"function-(?:after|before|wrap)\[.*?\(\), (.*)\]")
PHRASES = {
    "String should match pattern '^[A-Za-z_][A-Za-z0-9_]*$'": "a name of letters, digits and underscores",
    "List should have": "a list of",
    "Tuple should have": "a list of",
    "Dictionary should have": "a map of",
    " after validation": "",
    "Field required": "one value more",
    "an object": "a map",
    "a dictionary": "a map",
    "an array": "a list",
    "a list or a tuple": "a list",
}


class Place(NamedTuple):
    """A resolved pydantic location.

    `key` omits parts that are not keys of the content: members of unions, and the marker of a map's keys. `schemas` are
    those of the map with the last key. `branches` are the unions on the path: their keys, and the member that the error
    is about.
    """

    key: tuple[str, ...]
    schemas: list[type[BaseModel]]
    branches: tuple[tuple[tuple[str, ...], str], ...]


@dataclass
class ErrorCollector:
    """The errors of one file, one per line: dotted key, what was found, what is allowed.

    `hint(kind, word)` returns figura's name for another system's word; `kind` is `key`, `schedule`, ... `origins` maps
    the keys of inherited values to where they are written; their errors are reported there, once. `facts_known` is
    false if facts of the training data are unknown (`recipe/completion.py`). `count` is the number of errors, including
    those covered by another line. Lines after the first `JUDGED` are only counted, in `more`.
    """

    file: Path
    lines: list[str] = field(default_factory=list)
    hint: Callable[[str, str], str | None] = lambda what, word: None
    origins: dict[str, str] = field(default_factory=dict)
    facts_known: bool = True
    count: int = 0
    more: int = 0

    def add(self, key: str, message: str) -> None:
        """Add an error at the dotted `key`."""
        self.count += 1
        if len(self.lines) >= JUDGED:
            self.more += 1
            return
        line = printable(f"{self.file}: {one_line(self._written(key))}: {message}")
        if line not in self.lines:
            self.lines.append(line)

    def add_unknown(self, key: str, word: str, allowed: Iterable[str], what: str) -> None:
        """Add that `word` is not `allowed`, with figura's name for it or the nearest spelling."""
        if (here := self.hint(what, word)) is not None:
            self.add(key, f"unknown {what} {word!r}; here: {here}")
            return
        choices = sorted(allowed) if len(self.lines) < LISTED else []  # further lines are not shown
        self.add(key, f"unknown {what} {word!r}{nearest(word, choices)}; allowed: {', '.join(choices) or 'none'}")

    def add_below(self, key: str, inner: "ErrorCollector") -> None:
        """Add the errors of a map inside `key`, whose keys are relative to it."""
        for line in inner.lines:
            below, _, message = line.removeprefix(f"{inner.file}: ").partition(": ")
            self.add(f"{key}.{below}", message)

    def add_invalid(self, error: ValidationError, annotation: Any, prefix: str = "") -> None:
        """Add pydantic's errors about a value at `prefix`, one line per key.

        For a union, only the best matching member is reported.
        """
        details = error.errors(include_url=False)
        self.more += len(details[JUDGED:])
        faults = _of_best_branches([(locate(annotation, one["loc"]), one) for one in details[:JUDGED]])
        said: dict[str, list[tuple[Place, ErrorDetails]]] = {}
        for place, detail in faults:
            last = 1 if detail["type"] == "missing" and isinstance(detail["loc"][-1], int) else 0  # a tuple too short
            key = ".".join([*([prefix] if prefix else []), *place.key[: len(place.key) - last]])
            said.setdefault(key, []).append((place, detail))
        for key, same in said.items():
            self._add_fault(key or "the file", same)

    def _add_fault(self, key: str, same: Sequence[tuple[Place, ErrorDetails]]) -> None:
        (place, detail), name = same[0], same[0][0].key[-1] if same[0][0].key else ""
        renamed = {old: new for schema in place.schemas for old, new in getattr(schema, "renamed", {}).items()}
        keys = [info.alias or one for schema in place.schemas for one, info in schema.model_fields.items()]
        if detail["type"] == "extra_forbidden" and name in renamed:
            self.add(key, f"this key is now called {renamed[name]!r}")
        elif detail["type"] == "extra_forbidden":
            self.add_unknown(key, name, keys, "key")
        elif detail["type"] == "missing" and self._lacks_base(key):
            self.count += 1
        elif detail["type"] == "missing" and place.schemas:
            there = closest(name, [str(one) for one in detail["input"] if one not in keys])
            misspelt = there is not None and closest(there, keys) == name  # rather than another key
            self.add(key, "missing; it has no default" + (f"; is {there!r} a misspelling?" if misspelt else ""))
        elif detail["type"] == "value_error":
            self.add(key, str(detail["ctx"]["error"]))
        else:
            expected = dict.fromkeys(expectation(one["msg"]) for _, one in same)
            if len(expected) > 1:
                expected.pop(OTHER, None)
            share = _share(detail["input"]) if key.endswith(OF_TIME) and "an integer" in expected else None
            written = f"; a share of the training is written {share}" if share else ""
            if isinstance(detail["input"], list) and re.fullmatch(r"losses\.\w+\.weight", key):
                written = "; those of classes go below `args`, {weight: [...]}"
            self.add(key, f"found {shown(detail['input'])}; expected {' or '.join(sorted(expected))}{written}")

    def _lacks_base(self, key: str) -> bool:
        """Whether the entry with this key extends one that was not found, which the key may come from."""
        start = f"{self.file}: {key.rpartition('.')[0]}.extends: "
        return any(line.startswith(start) for line in self.lines)

    def _written(self, key: str) -> str:
        """Return the key where the value at `key` is written."""
        parts = key.split(".")
        for end in range(len(parts), 0, -1):
            if (origin := self.origins.get(".".join(parts[:end]))) is not None:
                return self._written(".".join([origin, *parts[end:]]))
        return key

    def raise_any(self, end: str = "") -> None:
        """If there are errors, raise a UserError with the first `LISTED` lines, the number of others, and `end`."""
        if self.lines:
            others = len(self.lines) - LISTED + self.more
            more = [f"{self.file}: and {others:,} more"] if others > 0 else []
            raise UserError("\n".join([*self.lines[:LISTED], *more, *([end] if end else [])]))


class NestedError(ValueError):
    """Errors of a map among the arguments of a declaration; their keys are relative to the declaration's."""

    def __init__(self, errors: ErrorCollector) -> None:
        super().__init__("; ".join(line.removeprefix(f"{errors.file}: ") for line in errors.lines))
        self.errors = errors


def shown(value: Any) -> str:
    """Return a value for a message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _share(value: Any) -> str | None:
    """Return the form that `figura.recipe.shares` reads, of a number such as 0.44, or of text such as `44 %`."""
    if isinstance(value, float) and 0 < value <= 1:
        return f"{100 * value:g}%"
    text = re.sub(r"\s", "", value) if isinstance(value, str) else ""
    return text if re.fullmatch(r"\d+(\.\d+)?%", text) else None


OTHER = "a declaration, {type: ...}"


def expectation(message: str) -> str:
    """Rephrase the requirement in pydantic's `message`."""
    if "JsonOrPython" in message or "instance of" in message:  # a class that YAML cannot express
        return OTHER
    allowed = message.removeprefix("Input should be ").replace("a valid", "a").replace("a integer", "an integer")
    allowed = allowed.replace("a array", "an array")
    for phrase, ours in PHRASES.items():
        allowed = allowed.replace(phrase, ours)
    return allowed


def locate(annotation: Any, location: Sequence[int | str]) -> Place:
    """Follow a location through models, maps, lists and unions."""
    kinds, schemas = alternatives(annotation), list[type[BaseModel]]()
    key: list[str] = []
    branches: list[tuple[tuple[str, ...], str]] = []
    for part in location:
        if part == "[key]":
            continue
        if len(kinds) > 1:  # pydantic adds the union member that it tried
            branches.append((tuple(key), str(part)))
            kinds = [kind for kind in kinds if _is_named(kind, str(part))][:1]
            continue
        schemas = [kind for kind in kinds if is_schema(kind)]
        key.append(str(part))
        kinds = [one for kind in kinds for one in _below(kind, part)]
    return Place(tuple(key), schemas, tuple(branches))


def alternatives(annotation: Any) -> list[Any]:
    """Return the members of a union without None, or the annotation itself, without metadata."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return alternatives(annotation.__origin__)
    if origin in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not types.NoneType]
        return [one for member in members for one in alternatives(member)]
    return [annotation]


def is_schema(kind: Any) -> TypeGuard[type[BaseModel]]:
    """Whether an annotation is a pydantic model."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_named(kind: Any, tag: str) -> bool:
    """Whether pydantic may call a member of a union `tag`: `Geometry`, `list[int]`, `literal['a']`.

    With a validator `check`, it is `function-after[check(), Geometry]`.
    """
    while (validated := VALIDATED.fullmatch(tag)) is not None:
        tag = validated[1]
    kind = typing.get_origin(kind) or kind
    name = str(getattr(kind, "__name__", kind))
    return tag == name or tag.lower().startswith(f"{name.lower()}[") or tag == f"constrained-{name}"


def _below(kind: Any, part: int | str) -> list[Any]:
    """Return the alternatives of the key `part` of a kind."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_schema(kind):
        fields = {info.alias or name: info for name, info in kind.model_fields.items()}
        return alternatives(fields[str(part)].annotation) if str(part) in fields else []
    if origin is tuple and arguments[-1] is not Ellipsis:
        return alternatives(arguments[part]) if isinstance(part, int) and part < len(arguments) else []
    if origin is tuple:
        return alternatives(arguments[0])
    return alternatives(arguments[-1]) if arguments else []


def _of_best_branches(faults: list[tuple[Place, ErrorDetails]]) -> list[tuple[Place, ErrorDetails]]:
    """Drop the faults of union members that match worse than another.

    A member with the form of the value and errors inside it matches better than one of another form; among these, the
    one with the fewest faults. If no member has the form, all are kept, with the same key.
    """
    for union in dict.fromkeys(union for place, _ in faults for union, _ in place.branches):
        members: dict[str, list[bool]] = {}  # whether each fault of a member lies below the union itself
        for place, _ in faults:
            if (tag := dict(place.branches).get(union)) is not None:
                members.setdefault(tag, []).append(len(place.key) > len(union))
        inside = {tag: len(below) for tag, below in members.items() if any(below)}
        if inside:
            best = min(inside, key=lambda tag: inside[tag])
            faults = [one for one in faults if dict(one[0].branches).get(union, best) == best]
    return faults
