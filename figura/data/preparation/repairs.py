"""What preparation repaired: counted by kind, with an example of each, and listed row by row in `repaired.csv`."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from figura.data.preparation.manifest import write_rejected

REPAIRED = "repaired.csv"
MOST = 10_000
"""Rows of `repaired.csv` of one kind."""


class Repaired(NamedTuple):
    """A row of `repaired.csv`: the file, the record's id or name, the kind of repair, the value before and after."""

    file: str
    record: str
    kind: str
    before: str = ""
    after: str = ""


class Repairs:
    """The repairs of a dataset, or of a split. The first `MOST` of a kind are listed; all are counted."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.rows: list[Repaired] = []

    def add(self, kind: str, example: str) -> None:
        """Count a repair of this kind; `example` says where and what, for the first of its kind."""
        self.counts[kind] += 1
        self.examples.setdefault(kind, example)

    def add_row(self, row: Repaired) -> None:
        """Count a repair and list it."""
        if self.counts[row.kind] < MOST:
            self.rows.append(row)
        change = f": {row.before} -> {row.after}" if row.before or row.after else ""
        self.add(row.kind, f"{row.file} {row.record}{change}")

    def join(self, other: "Repairs") -> None:
        """Count and list those of another part of the dataset, too."""
        self.counts += other.counts
        self.examples = other.examples | self.examples
        self.rows += other.rows

    def lines(self, word: str = "repaired") -> list[str]:
        """Return one line a kind, the most frequent first."""
        return [f"{word}: {count} {kind} (e.g. {self.examples[kind]})" for kind, count in self.counts.most_common()]

    def as_statistics(self) -> dict[str, dict[str, Any]]:
        """Return kind -> its count and an example, sorted by kind."""
        return {kind: {"count": count, "example": self.examples[kind]} for kind, count in sorted(self.counts.items())}

    def write(self, path: Path) -> None:
        """Write the listed repairs as CSV with a header; nothing if there are none."""
        if self.rows:
            write_rejected(path, Repaired._fields, self.rows)
