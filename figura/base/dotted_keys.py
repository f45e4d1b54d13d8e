"""Dotted keys of nested maps: `losses.KL.weight`."""

from collections.abc import Iterator, Mapping
from typing import Any


def value_at(content: Any, key: str) -> Any:
    """Return the value at a dotted key; None if there is none."""
    for part in key.split("."):
        content = content.get(part) if isinstance(content, Mapping) else None
    return content


def leaves(section: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values inside nested maps with their dotted keys; a list or an empty map is a value."""
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def texts(section: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the strings inside nested maps and lists; list indices start at 0: `data.roots.0`."""
    for key, value in leaves(section, prefix):
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, list | tuple):
            yield from texts(dict(enumerate(value)), f"{key}.")
