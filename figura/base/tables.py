"""Tables: read from and written as CSV; as text, for a terminal and as Markdown, from rows whose first is the head."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.files import read_text, write_text

Table = Sequence[Sequence[str]]


def as_text(table: Table) -> str:
    """Return a table in aligned columns, the first to the left and the others to the right."""
    first, *widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], widths, strict=True))])
        for row in table
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows, which may differ in length, as lines with aligned columns."""
    count = max((len(row) for row in rows), default=0)
    full = [(*row, *[""] * (count - len(row))) for row in rows]
    widths = [max(len(row[column]) for row in full) for column in range(count)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in full]


def as_markdown(table: Table) -> str:
    """Return a table as Markdown, the first column as code and the others to the right."""
    head, *rows = table
    lines = [
        [plain(cell) for cell in head],
        ["---", *["---:"] * (len(head) - 1)],
        *([code(row[0]), *map(plain, row[1:])] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """Return a text for Markdown as code, or escaped if it has characters that end code or a cell of a table."""
    return plain(text) if not text or re.search(r"[`|\n]", text) else f"`{text}`"


def plain(text: str) -> str:
    """Return a text for Markdown in which nothing is markup, on one line."""
    return re.sub(r"([\\`*_<>|\[\]#])", r"\\\1", " ".join(text.split()))


def read_rows(path: Path, column: str, advice: str = "") -> list[dict[str, str]]:
    """Return the rows of a CSV file by column, as text; missing cells are empty.

    Raises:
        UserError: as `read_text`, or it is not a table or has no such column.
    """
    end = f"; {advice}" if advice else ""
    reader = csv.DictReader(io.StringIO(read_text(path, advice), newline=""), restval="", strict=True)
    try:
        rows, columns = list(reader), reader.fieldnames or ()
    except csv.Error as error:
        raise UserError(f"{path}: line {reader.line_num}: no table: {error}{end}") from None
    if column not in columns:
        raise UserError(f"{path}: no column {column!r}{end}")
    if longer := [index for index, row in enumerate(rows, start=1) if None in row]:
        raise UserError(f"{path}: row {longer[0]} has more cells than there are columns{end}")
    return rows


def write_rows(path: Path, first: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV file, atomically: the columns `first`, then others as they come; missing cells are empty."""
    buffer = io.StringIO()
    columns = dict.fromkeys([*first, *(column for row in rows for column in row)])
    writer = csv.DictWriter(buffer, list(columns), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, buffer.getvalue())
