"""Formats declarations of a recipe as short phrases."""

from collections.abc import Mapping
from typing import Any


def worded(entry: Mapping[str, Any]) -> str:
    """Format a declaration: `Linear 0 → 1, 500–1750`, or `WarmUp steps 30, then Cosine 1 → 0, 60–1100`."""
    options = dict(entry)
    kind = str(options.pop("type")).rpartition(".")[2]
    parts = []
    if {"start", "end", "from", "to"} <= options.keys():
        first, to, start, end = (options.pop(key) for key in ("from", "to", "start", "end"))
        parts = [f"{first:g} → {to:g}, {start}–{end}"]
    parts += [
        f"{key} {worded(v) if isinstance(v, Mapping) and 'type' in v else short(v)}" for key, v in options.items()
    ]
    return f"{kind} {', '.join(parts)}".strip()


def short(value: Any) -> str:
    """Format a value as in YAML, floats without trailing zeros."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    return f"[{', '.join(map(short, value))}]" if isinstance(value, list | tuple) else str(value)
