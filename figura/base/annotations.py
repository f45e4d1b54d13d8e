"""Resolve pydantic's error locations in type annotations, and find stand-ins for invalid values."""

import json
import re
import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, TypeGuard

from pydantic import BaseModel, TypeAdapter, ValidationError

_VALIDATED = re.compile(r"function-(?:after|before|wrap)\[.*?\(\), (.*)\]")


class Place(NamedTuple):
    """A resolved pydantic location.

    `key` omits parts that are not keys of the content: members of unions, and the marker of a map's keys. `schemas` are
    those of the map with the last key. `branches` are the unions on the path: their keys, and the member that the error
    is about.
    """

    key: tuple[str, ...]
    schemas: list[type[BaseModel]]
    branches: tuple[tuple[tuple[str, ...], str], ...]


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
    while (validated := _VALIDATED.fullmatch(tag)) is not None:
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


def with_stand_ins(annotation: Any, value: Any) -> Any:
    """Return plain values that match `annotation`, with stand-ins for invalid or missing ones, so checks can go on.

    A stand-in is a field's default, None if allowed, an empty map or list, or 1.
    """
    try:
        return TypeAdapter(annotation).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError:
        if isinstance(value, dict):
            for kind in alternatives(annotation):
                if is_schema(kind):
                    return _constructed(kind, value)
                if typing.get_origin(kind) is dict:
                    inner = typing.get_args(kind)[1]
                    return {str(key): with_stand_ins(inner, part) for key, part in value.items()}
    return _stand_in(annotation)


def _constructed(model: type[BaseModel], content: dict[str, Any]) -> BaseModel:
    values = {}
    for name, info in model.model_fields.items():
        annotation = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
        if (key := info.alias or name) in content:
            values[name] = with_stand_ins(annotation, content[key])
        elif info.is_required():
            values[name] = _stand_in(annotation)
    extra = model.model_config.get("extra") == "allow"
    known = {info.alias or name for name, info in model.model_fields.items()}
    arguments = {str(key): value for key, value in content.items() if extra and key not in known}
    return model.model_construct(**values, **arguments)


def _stand_in(annotation: Any) -> Any:
    members = typing.get_args(annotation.__origin__ if typing.get_origin(annotation) is Annotated else annotation)
    if types.NoneType in members:
        return None
    kind = alternatives(annotation)[0]
    if is_schema(kind):
        return _constructed(kind, {})
    origin = typing.get_origin(kind) or kind
    if origin is typing.Literal:
        return typing.get_args(kind)[0]
    if origin in (dict, list, tuple, str):
        return origin()
    return origin(1) if origin in (int, float, bool) else None
