"""YAML as DVC reads it: version 1.2, in which `3e-4` is a number, `no` a text, and a key stands once."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from models.base.errors import UserError


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping of plain values (no tags, no objects).

    Raises:
        UserError: no such file, not YAML, a key that stands twice, or not a mapping at the top; with line and column.
    """
    try:
        content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        what = "a key stands twice" if isinstance(error, DuplicateKeyError) else "not valid YAML"
        raise UserError(f"{path}{where}: {what}: {str(error.problem).splitlines()[0]}") from None
    except YAMLError as error:
        raise UserError(f"{path}: not valid YAML: {error}") from None
    try:
        json.dumps(content, default=str)
    except (TypeError, ValueError):
        raise UserError(f"{path}: a key that is no plain text, or an alias inside what it stands for") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: found {type(content).__name__}, expected a mapping of sections")
    return content


def to_yaml(content: dict[str, Any]) -> str:
    """Write plain values as YAML 1.2, block style, keys in their order."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 120
    buffer = StringIO()
    yaml.dump(content, buffer)
    return buffer.getvalue()
