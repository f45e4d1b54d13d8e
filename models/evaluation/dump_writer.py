"""What the processes of an evaluation write into one dump: rows of its tables, and records.

Each file has its rows in the order of the turns that gave them. One process writes them as they come; of several, each
streams its own into a part, one line a turn, and the main process merges the parts.
"""

import heapq
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from accelerate import Accelerator

from models.dump import EXAMPLES, RecordsFile, Table

Turn = tuple[int, int]  # (0, place) of a batch; (1, place) of a row of the first grid, (2, place) of the second, ...
Entry = tuple[str, Any]  # the path of a file in the dump, and a row (.csv) or a list of records (.json) for it
PARTS = ".parts"


class Output:
    """Writes a dump whose `examples.csv` appears when all else is there; memory does not grow with the turns.

    All processes make one, which waits for the others; inside `with`, each adds its turns in order; the main process then
    calls `finish`.
    """

    def __init__(self, folder: Path, accelerator: Accelerator) -> None:
        self.folder, self._parts = folder, folder / PARTS
        self._files: dict[str, Table | RecordsFile] = {}
        self._ours = [self._parts / f"{process}.jsonl" for process in range(accelerator.num_processes)]
        self._fault, self._alone = self._parts / "fault", accelerator.num_processes == 1
        if accelerator.is_main_process:
            shutil.rmtree(self._parts, ignore_errors=True)  # of an evaluation that failed
            self._files[EXAMPLES] = Table(folder / EXAMPLES)
        accelerator.wait_for_everyone()
        if not self._alone:
            self._parts.mkdir(parents=True, exist_ok=True)
            self._part = self._ours[accelerator.process_index].open("w", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._alone:
            self._part.close()
            if kind is not None:
                self._fault.touch()

    def given_up(self) -> bool:
        """Return whether another process has failed, so that more work is in vain."""
        return not self._alone and self._fault.exists()

    def add(self, turn: Turn, entries: Iterable[Entry]) -> None:
        """Write what a turn gave."""
        if self._alone:
            self._write(entries)
        else:
            content = [(name, _texts(entry) if name.endswith(".csv") else entry) for name, entry in entries]
            self._part.write(json.dumps([turn, content]) + "\n")

    def finish(self) -> None:
        """Merge the parts and remove them; then the dump is whole."""
        if not self._alone:
            for _, entries in heapq.merge(*map(_lines, self._ours), key=lambda line: line[0]):
                self._write(entries)
            shutil.rmtree(self._parts)
        instances = self._files.pop(EXAMPLES)
        for file in (*self._files.values(), instances):
            file.close()

    def _write(self, entries: Iterable[Entry]) -> None:
        for name, content in entries:
            if name not in self._files:
                path = self.folder / name
                self._files[name] = Table(path) if path.suffix == ".csv" else RecordsFile(path)
            self._files[name].add(content)


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells as CSV has them, which JSON would not give back in all cases."""
    return {name: "" if value is None else str(value) for name, value in row.items()}


def _lines(part: Path) -> Iterator[tuple[list[int], list[Entry]]]:
    with part.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
