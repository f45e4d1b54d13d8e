"""The text of a recipe, with a comment behind each line that came from another trainer's key."""

from collections.abc import Iterator, Mapping
from typing import Any

from figura.base.yaml12 import in_one_line, to_yaml

WIDTH = 118
COLUMN = 36  # where comments begin, behind shorter lines


def recipe_text(content: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """Return YAML of a recipe; `comments` are by dotted key. Maps that fit stand in one line."""
    sections = ["\n".join(_lines({name: value}, comments, "", "")) + "\n" for name, value in content.items()]
    return "\n".join(sections)


def _lines(section: Mapping[str, Any], comments: Mapping[str, str], prefix: str, indent: str) -> Iterator[str]:
    for key, value in section.items():
        path, start = f"{prefix}{key}", f"{indent}{in_one_line(key)}:"
        below = [text for where, text in comments.items() if f"{where}.".startswith(f"{path}.")]
        line = _with(f"{start} {in_one_line(value)}", below)
        if isinstance(value, Mapping) and value and (not indent or len(line) > WIDTH):
            yield _with(start, [comments[path]] if path in comments else [])
            yield from _lines(value, comments, f"{path}.", f"{indent}  ")
        elif len(line) <= WIDTH:
            yield line
        else:
            yield from (f"{indent}# {text}" for text in dict.fromkeys(below))
            yield from (f"{indent}{one}" for one in to_yaml({key: value}).splitlines())


def _with(line: str, comments: list[str]) -> str:
    said = ", ".join(dict.fromkeys(comments))
    return f"{line:<{COLUMN}}# {said}" if said and len(line) < COLUMN else f"{line}  # {said}" if said else line
