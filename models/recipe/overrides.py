"""Values of a recipe changed at the command line: `evaluate.modes.poses.injectors.draw.style.boxes=true`."""

from collections.abc import Sequence
from typing import Any

from models.base.errors import UserError
from models.base.yaml12 import parse_yaml


def overridden(content: dict[str, Any], assignments: Sequence[str], sections: Sequence[str]) -> dict[str, Any]:
    """Return a recipe's content with `key=value` assignments made; keys are dotted, values YAML (1.2).

    Maps that are missing on the way are made: checking the recipe afterwards tells a misspelt key. `content` stays.

    Raises:
        UserError: not of this form, not in one of the `sections`, a value that is not YAML, or a key inside something
            that is no map.
    """
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        names = key.split(".")
        if not equals or names[0] not in sections:
            raise UserError(
                f"--set {assignment}: expected key=value with a dotted key of {' or '.join(sections)}, such as "
                f"{sections[0]}.batch_size=1"
            )
        value = parse_yaml(text, f"--set {assignment}", place=False)
        content = _with(content, names, value, assignment)
    return content


def _with(content: Any, names: list[str], value: Any, assignment: str) -> dict[str, Any]:
    if content is not None and not isinstance(content, dict):
        raise UserError(f"--set {assignment}: {names[0]!r} would be a key of {content!r}, which is no map")
    first, *rest = names
    found = dict(content or {})
    return {**found, first: _with(found.get(first), rest, value, assignment) if rest else value}
