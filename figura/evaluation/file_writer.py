"""Write the files of a dump in threads, while networks run: encoding, hashing and writing release the GIL."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from torch import Tensor

from figura.dump import converted, write_converted

MOST_THREADS = 4


class FileWriter:
    """Writes values to files, by path relative to a folder; its threads run inside `with`.

    An error is raised only when `checksums` waits for the file. Pending files are then not written. Converted values
    stay in memory until written.
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
