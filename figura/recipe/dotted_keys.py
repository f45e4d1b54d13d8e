"""Dotted keys of nested maps: `losses.KL.weight`, and on the command line `--set evaluate.batch_size=1`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from figura.base.error_collector import shown
from figura.base.errors import UserError
from figura.base.yaml12 import DEEPEST, parse_yaml


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


def overridden(content: dict[str, Any], assignments: Sequence[str], sections: Sequence[str]) -> dict[str, Any]:
    """Return a recipe's content after `key=value` assignments; keys are dotted, values are YAML 1.2.

    Missing maps are created: the recipe check reports misspelt keys. `content` is not modified.

    Raises:
        UserError: an assignment without this form, outside `sections`, with more than `DEEPEST` names, with a value
            that is not YAML, or with a key inside a value that is not a map.
    """
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        names = key.split(".")
        if not equals or names[0] not in sections:
            raise UserError(
                f"--set {assignment}: expected key=value with a dotted key of {' or '.join(sections)}, such as "
                f"{sections[0]}.batch_size=1"
            )
        if len(names) > DEEPEST:
            raise UserError(f"--set {assignment}: a key of {len(names)} names; at most {DEEPEST} are allowed")
        value = parse_yaml(text, f"--set {assignment}")
        content = _with(content, names, value, assignment)
    return content


def _with(content: Any, names: list[str], value: Any, assignment: str) -> dict[str, Any]:
    if content is not None and not isinstance(content, dict):
        raise UserError(f"--set {assignment}: {names[0]!r} would be a key of {shown(content)}, which is no map")
    first, *rest = names
    section = dict(content or {})
    return {**section, first: _with(section.get(first), rest, value, assignment) if rest else value}
