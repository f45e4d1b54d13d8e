"""Write a dump: files encoded in threads, while networks run; and these, table rows and records from all ranks.

All are ordered by turn, the unit of work of one rank. A single rank writes its turns directly. With several, each
streams its turns to a part file, one line per turn and then its files, and rank 0 merges the parts.
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

from figura.base.archive_writer import ArchiveWriter
from figura.base.checksums import SUMS, sum_lines
from figura.base.distributed import raise_on_all_ranks
from figura.dump import EXAMPLES, GrowingFile, RecordsFile, Table, archive_of, converted, encoded, write_file, writing

Turn = tuple[int, int]  # (0, index) for a batch; (1, index) for a row of the first grid, (2, index) of the second, ...
Entry = tuple[str, Any]
"""Path of a file in the dump, and a row (.csv) or a list of records (.json) for it; for `FILES`, the contents of files
by path; for `SUMS`, the SHA-256 of files that are there."""
FILES = "files"
PART_FILES = ".parts"
MOST_THREADS = 4


class Encoder:
    """Encodes values as files, by path relative to a folder, in threads that run inside `with`.

    Encoding releases the GIL. Values that wait at the end of `with` are dropped.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS), "dump")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def add(self, path: str, value: Tensor) -> Future[bytes]:
        """Start encoding a value, which may change afterwards. Raises UserError like `dump.converted`."""
        return self._threads.submit(encoded, converted(self.folder / path, value))


class Output:
    """Writes a dump; `examples.csv` appears last, when the dump is complete. Memory is constant in the number of turns.

    The constructor is collective. Inside `with`, each rank adds its turns in order; then rank 0 calls `finish`.
    """

    def __init__(self, folder: Path, accelerator: Accelerator) -> None:
        self.folder, self._parts = folder, folder / PART_FILES
        self._files: dict[str, Table | RecordsFile] = {}
        self._archives: dict[str, ArchiveWriter] = {}
        self._sums: dict[str, str] = {}
        self._part_files = [self._parts / str(rank) for rank in range(accelerator.num_processes)]
        self._fault, self._alone = self._parts / "fault", accelerator.num_processes == 1
        with raise_on_all_ranks():
            if accelerator.is_main_process:
                shutil.rmtree(self._parts, ignore_errors=True)  # left by a failed evaluation
                self._files[EXAMPLES] = Table(folder / EXAMPLES)
        if not self._alone:
            own = self._part_files[accelerator.process_index]
            with raise_on_all_ranks(), writing(own):
                self._parts.mkdir(parents=True, exist_ok=True)
                self._part = own.open("wb")

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
            return
        content, files = list[Entry](), list[bytes]()
        for name, entry in entries:
            if name == FILES:
                files += entry.values()
                content.append((name, {path: len(file) for path, file in entry.items()}))
            else:
                content.append((name, _texts(entry) if name.endswith(".csv") else entry))
        with writing(Path(self._part.name)):
            self._part.writelines([json.dumps([turn, content]).encode(), b"\n", *files])

    def finish(self, texts: Mapping[str, str]) -> None:
        """Merge and remove the parts, and write `texts`, by file name; this completes the dump."""
        if not self._alone:
            for _, entries in heapq.merge(*map(_turns, self._part_files), key=lambda turn: turn[0]):
                self._write(entries)
            shutil.rmtree(self._parts)
        for archive in self._archives.values():
            with writing(archive.path):
                archive.end()
            self._sums |= archive.sums
        self._sums |= {name: write_file(self.folder / name, text.encode("utf-8")) for name, text in texts.items()}
        examples = self._files.pop(EXAMPLES)
        for name, file in self._files.items():
            self._sums[name] = file.end()
            file.publish()
        self._sums[EXAMPLES] = examples.end()
        checksums = GrowingFile(self.folder / SUMS)
        checksums.write(sum_lines(self._sums))
        checksums.close()
        examples.publish()

    def _write(self, entries: Iterable[Entry]) -> None:
        for name, content in entries:
            if name == SUMS:
                self._sums |= content
            elif name == FILES:
                for path, file in content.items():
                    self._write_file(path, file)
            else:
                if name not in self._files:
                    target = self.folder / name
                    self._files[name] = Table(target) if target.suffix == ".csv" else RecordsFile(target)
                self._files[name].add(content)

    def _write_file(self, path: str, content: bytes) -> None:
        name = archive_of(path)
        with writing(self.folder / f"{name}.zip"):
            if name not in self._archives:
                self._archives[name] = ArchiveWriter(self.folder, name)
            self._archives[name].add(path, content)


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells as CSV text: JSON does not preserve every value."""
    return {name: "" if value is None else str(value) for name, value in row.items()}


def _turns(part: Path) -> Iterator[tuple[list[int], list[Entry]]]:
    with part.open("rb") as file:
        for line in file:
            turn, entries = json.loads(line)
            for place, (name, entry) in enumerate(entries):
                if name == FILES:
                    entries[place] = name, {path: file.read(size) for path, size in entry.items()}
            yield turn, entries
