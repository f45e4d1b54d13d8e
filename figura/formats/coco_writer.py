"""Write files in COCO's format, of which memory never holds more than a record."""

import json
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from figura.base.files import replacing
from figura.formats.coco import RECORDS


def to_json(value: Any, strict: bool = True) -> str:
    """Return canonical JSON: compact, sorted keys, ASCII; raises ValueError for NaN and infinity if `strict`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=not strict)


class Spool:
    """Sorts records by id in a temporary file below `folder`; memory holds three integers per record."""

    def __init__(self, folder: Path) -> None:
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by __exit__
        self.ids, self.starts, self.lengths = array("q"), array("q"), array("q")
        self.end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def add(self, record: dict[str, Any], strict: bool = True) -> None:
        """Add a record with an integer `id`; raises ValueError for NaN or infinity if `strict`."""
        line = to_json(record, strict).encode()
        self.ids.append(record["id"])
        self.starts.append(self.end)
        self.lengths.append(len(line))
        self.end += self.file.write(line)

    def lines(self) -> Iterator[bytes]:
        """Yield the records as JSON, sorted by id. Add no records afterwards."""
        at = -1
        for place in np.argsort(np.asarray(self.ids, dtype=np.int64), kind="stable").tolist():
            if at != self.starts[place]:  # a seek would drop what is buffered
                self.file.seek(self.starts[place])
            yield self.file.read(self.lengths[place])
            at = self.starts[place] + self.lengths[place]


def write_coco(path: Path, head: dict[str, Any], *records: Iterable[bytes]) -> None:
    """Write a COCO file atomically: `head`, then images, and annotations if any, in the same order, one per line."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(to_json(head).encode()[:-1])
        for section, lines in zip(RECORDS, records, strict=False):
            file.write(f'{"," if head or section != RECORDS[0] else ""}"{section}":['.encode())
            for number, line in enumerate(lines):
                file.write((b",\n" if number else b"\n") + line)
            file.write(b"]")
        file.write(b"}\n")
