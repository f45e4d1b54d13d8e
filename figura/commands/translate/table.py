"""The table of another trainer, `models/SYSTEM/translate_*.md`: what each of its keys is here, or why there is none.

Rows of the sections "Taken over" go into the recipe as they are (of "other names", options are read as the ones that
they name); all rows are reasons for what was not taken over.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from figura.commands.translate.reading import value_of

OPTION = re.compile(r"`([^`]+)`(?: \(([^;)]*)[^)]*\))?")
"""A key, and its default there in parentheses; `off` is that of an option without a value."""
VALUE = re.compile(r"([\w.]+) → (\[.*?\]|[^,]+)")  # a value there, and what it is here


class Row(NamedTuple):
    """A key that goes into the recipe as it is."""

    here: list[str]
    default: Any
    """None: the recipe's value stays unless the key is given."""
    values: Mapping[Any, Any]
    """Here, by value there; others are refused, or stay if one of these is the text `null`."""


class Table(NamedTuple):
    """The rows of a system."""

    said: dict[str, str]
    """What is said about a key; one that stands in several sections also has `SECTION/key`."""
    taken: dict[str, dict[str, Row]]
    """By what follows "Taken over: " in a section's title, and by key."""
    switches: set[str]
    """Options without a value."""

    def describe(self, key: str) -> str | None:
        """Return what is said about a key, or `SECTION/key`; else about its longest beginning with a `*` behind it."""
        stars = [name for name in self.said if name.endswith("*") and key.startswith(name[:-1])]
        plain = self.said.get(key, self.said.get(key.rpartition("/")[2]))
        return plain or (self.said[max(stars, key=len)] if stars else None)


def table_of(module: ModuleType) -> Path:
    """Return the file of a system's table, which lies beside its module."""
    return Path(str(module.__file__)).with_suffix(".md")


@cache
def read_table(path: Path) -> Table:
    """Read a table, whose second column is prose about the default, or belongs to the answer."""
    table = Table({}, {}, set())
    section, header = "", list[str]()
    for line in path.read_text("utf-8").splitlines():
        section = line.removeprefix("## ") if line.startswith("## ") else section
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        first, header = not header, (header or cells) if cells else []
        if first or len(cells) < 3:
            continue
        part = section.removeprefix("Taken over").removeprefix(": ")
        said = "; ".join(filter(None, cells[2:] if header[1].startswith("default") else cells[1:]))
        for option, default in OPTION.findall(cells[0]):
            name = option.split()[0].rstrip(":")
            table.switches.update([name] if default in ("off", "false") else [])
            if section != part or not part:
                here, known = re.findall(r"`([^`]+)`", cells[1]), None if default in ("", "off") else value_of(default)
                values = {value_of(old): value_of(new) for old, new in VALUE.findall(cells[1])}
                table.taken.setdefault(part, {})[name] = Row(here, known, values)
                said += f" ({part})" if part else ""
            table.said.setdefault(name, said)
            table.said.setdefault(f"{section}/{name}", said)
    return table
