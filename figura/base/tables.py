"""Tables as lines of text."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows, which may differ in length, as lines with aligned columns."""
    count = max((len(row) for row in rows), default=0)
    full = [(*row, *[""] * (count - len(row))) for row in rows]
    widths = [max(len(row[column]) for row in full) for column in range(count)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in full]
