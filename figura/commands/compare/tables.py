"""Tables of text, for a terminal and as Markdown. A table is its rows, the first of them the head."""

import re
from collections.abc import Sequence

Table = Sequence[Sequence[str]]


def as_text(table: Table) -> str:
    """Return a table in aligned columns, the first to the left and the others to the right."""
    first, *widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], widths, strict=True))])
        for row in table
    )


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
