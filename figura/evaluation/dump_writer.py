"""Write a dump: files in threads, while networks run, and the table rows and records from all ranks.

Rows are ordered by turn, the unit of work of one rank. A single rank writes its turns directly. With several, each
streams its turns to a part file, one line per turn, and rank 0 merges the parts.
"""

import heapq
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from accelerate import Accelerator
from torch import Tensor

from figura.base.checksums import SUMS, sum_lines
from figura.base.distributed import raise_on_all_ranks
from figura.dump import EXAMPLES, GrowingFile, RecordsFile, Table, converted, write_converted, write_file, writing

Turn = tuple[int, int]  # (0, index) for a batch; (1, index) for a row of the first grid, (2, index) of the second, ...
Entry = tuple[str, Any]
"""Path of a file in the dump, and a row (.csv) or a list of records (.json) for it; for `SUMS`, the SHA-256 of
files by path."""
PART_FILES = ".parts"
MOST_THREADS = 4


class FileWriter:
    """Writes values to files, by path relative to a folder, in threads that run inside `with`.

    Encoding, hashing and writing release the GIL. An error is raised only when `checksums` waits for the file. Pending
    files are then not written. Converted values stay in memory until written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS), "dump")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def add(self, path: str, value: Tensor) -> Future[str]:
        """Start writing a value, which may change afterwards. Raises UserError like `dump.converted`."""
        target = self.folder / path
        return self._threads.submit(write_converted, target, converted(target, value))


def checksums(files: Mapping[str, Future[str]]) -> dict[str, str]:
    """Wait until all files are written; return their SHA-256 by path. Raises UserError like `dump.write_converted`."""
    return {path: file.result() for path, file in files.items()}


class Output:
    """Writes a dump; `examples.csv` appears last, when the dump is complete. Memory is constant in the number of turns.

    The constructor is collective. Inside `with`, each rank adds its turns in order; then rank 0 calls `finish`.
    """

    def __init__(self, folder: Path, accelerator: Accelerator) -> None:
        self.folder, self._parts = folder, folder / PART_FILES
        self._files: dict[str, Table | RecordsFile] = {}
        self._part_files = [self._parts / f"{rank}.jsonl" for rank in range(accelerator.num_processes)]
        self._fault, self._alone = self._parts / "fault", accelerator.num_processes == 1
        with raise_on_all_ranks():
            if accelerator.is_main_process:
                shutil.rmtree(self._parts, ignore_errors=True)  # left by a failed evaluation
                self._files[EXAMPLES] = Table(folder / EXAMPLES)
                self._checksums = GrowingFile(folder / SUMS)
        if not self._alone:
            own = self._part_files[accelerator.process_index]
            with raise_on_all_ranks(), writing(own):
                self._parts.mkdir(parents=True, exist_ok=True)
                self._part = own.open("w", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._alone:
            return
        if kind is None:
            with writing(Path(self._part.name)):
                self._part.close()
        else:
            with suppress(OSError):  # the disk may be full
                self._part.close()
            with suppress(OSError):
                self._fault.touch()

    def failed(self) -> bool:
        """Return whether another rank has failed, which makes further work useless."""
        return not self._alone and self._fault.exists()

    def add(self, turn: Turn, entries: Iterable[Entry]) -> None:
        """Write the entries of a turn."""
        if self._alone:
            self._write(entries)
        else:
            content = [(name, _texts(entry) if name.endswith(".csv") else entry) for name, entry in entries]
            with writing(Path(self._part.name)):
                self._part.write(json.dumps([turn, content]) + "\n")

    def finish(self, texts: Mapping[str, str]) -> None:
        """Merge and remove the parts, and write `texts`, by file name; this completes the dump."""
        if not self._alone:
            for _, entries in heapq.merge(*map(_lines, self._part_files), key=lambda line: line[0]):
                self._write(entries)
            shutil.rmtree(self._parts)
        sums = {name: write_file(self.folder / name, text.encode("utf-8")) for name, text in texts.items()}
        examples = self._files.pop(EXAMPLES)
        for name, file in self._files.items():
            sums[name] = file.end()
            file.publish()
        sums[EXAMPLES] = examples.end()
        self._checksums.write(sum_lines(sums))
        self._checksums.close()
        examples.publish()

    def _write(self, entries: Iterable[Entry]) -> None:
        for name, content in entries:
            if name == SUMS:
                self._checksums.write(sum_lines(content))
                continue
            if name not in self._files:
                path = self.folder / name
                self._files[name] = Table(path) if path.suffix == ".csv" else RecordsFile(path)
            self._files[name].add(content)


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells as CSV text: JSON does not preserve every value."""
    return {name: "" if value is None else str(value) for name, value in row.items()}


def _lines(part: Path) -> Iterator[tuple[list[int], list[Entry]]]:
    with part.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
