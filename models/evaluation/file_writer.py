"""Writes the files of a dump in threads, beside the networks: encoding, hashing and writing release Python's lock."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from torch import Tensor

from models.dump import converted, write_converted

MOST_THREADS = 4


class FileWriter:
    """Writes values to files of a folder, given by paths relative to it; has threads inside `with`.

    An error ends the block only when `checksums` asks for the file. Files that still wait are then not written. Values
    stay in memory, converted, until they are written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS), "dump")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def add(self, path: str, value: Tensor) -> Future[str]:
        """Begin to write a value, which may change afterwards. Raises UserError as `dump.converted`."""
        target = self.folder / path
        return self._threads.submit(write_converted, target, converted(target, value))


def checksums(files: Mapping[str, Future[str]]) -> dict[str, str]:
    """Return the SHA-256 of files by their paths, when all are written. Raises UserError as `dump.write_converted`."""
    return {path: file.result() for path, file in files.items()}
