"""The first answer of a training: what its recipe changes, told before PyTorch is imported.

A recipe is compared as it is written with the commit's, and with that of the last training in the run's folder, which
is kept in `live/params.yaml`.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from models.base.errors import UserError
from models.base.files import write_text
from models.base.yaml12 import parse_yaml, read_yaml, to_yaml
from models.recipe.resolved import RESULT_SECTIONS

FILE = "params.yaml"
MOST = 5
"""Changes that are listed of each comparison."""
LONGEST = 40  # characters of a value


def changes(path: Path, content: dict[str, Any], live: Path) -> list[str]:
    """Return lines that say in which settings of training a recipe differs from HEAD's and from the last training's.

    `content` is the recipe's at `path`; `live` is the folder in which `remember` keeps that of the last training.
    """
    lines: dict[tuple[str, ...], list[str]] = {}
    for name, other in (("HEAD", committed(path)), (f"the last training in {live.parent}", remembered(live))):
        if other is not None:
            lines.setdefault(tuple(differences(settings(other), settings(content))), []).append(name)
    if not lines:
        return [f"{path}: the first training in {live.parent}"]
    return [line for listed, names in lines.items() for line in _told(path, listed, names)]


def _told(path: Path, listed: tuple[str, ...], names: list[str]) -> list[str]:
    if not listed:
        return [f"{path}: no change of the training since {' and '.join(names)}"]
    more = [f"  and {len(listed) - MOST} more"] if len(listed) > MOST else []
    return [f"{path}, changed since {' and '.join(names)}:", *(f"  {one}" for one in listed[:MOST]), *more]


def settings(content: dict[str, Any]) -> dict[str, Any]:
    """Return the sections that training reads, as they are written."""
    return {section: content[section] for section in RESULT_SECTIONS if section in content}


def differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield `losses.KL.weight  1.0 -> 2` for each value that differs; a map that one side lacks is one value."""
    for key in dict.fromkeys([*before, *now]):
        first, second = before.get(key), now.get(key)
        if isinstance(first, dict) and isinstance(second, dict):
            yield from differences(first, second, f"{prefix}{key}.")
        elif key not in before or key not in now or first != second:
            old, new = (_shown(one[key]) if key in one else "absent" for one in (before, now))
            yield f"{prefix}{key}  {old} -> {new}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def committed(path: Path) -> dict[str, Any] | None:
    """Return a recipe's content at HEAD; None if git does not have it there, or as something else."""
    try:
        command = ["git", "-C", str(path.parent), "show", f"HEAD:./{path.name}"]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
        content = parse_yaml(text, str(path))
    except (OSError, ValueError, subprocess.SubprocessError, UserError):
        return None
    return content if isinstance(content, dict) else None


def remembered(live: Path) -> dict[str, Any] | None:
    """Return the settings of the last training; None if there was none, or if they cannot be read."""
    try:
        return read_yaml(live / FILE)
    except (OSError, UserError):
        return None


def remember(content: dict[str, Any], live: Path) -> None:
    """Keep a recipe's settings as those of the last training; where they cannot be written, print a warning."""
    try:
        write_text(live / FILE, to_yaml(settings(content)))
    except OSError as error:
        print(f"warning: {live / FILE} cannot be written, and is left out: {error.strerror}", flush=True)
