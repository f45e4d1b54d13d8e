"""Values that the command line sets in a recipe: `--set evaluate.batch_size=1`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figura.base.error_collector import ErrorCollector, shown
from figura.base.errors import UserError
from figura.base.yaml12 import DEEPEST, parse_yaml
from figura.recipe.expansion import expanded


def overridden(
    content: dict[str, Any], assignments: Sequence[str], sections: Sequence[str], path: Path
) -> dict[str, Any]:
    """Return the content of a recipe's file after `key=value` assignments; keys are dotted, values are YAML 1.2.

    An assignment changes one key of an entry that extends another, and keeps the others.

    Missing maps are created: the recipe check reports misspelt keys. `content` is not modified.

    Raises:
        UserError: an assignment without this form, outside `sections`, with more than `DEEPEST` names, with a value
            that is not YAML, or with a key inside a value that is not a map; an entry that extends what is not there.
    """
    if assignments:
        errors = ErrorCollector(path)
        content = expanded(content, errors)
        errors.raise_any()
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
