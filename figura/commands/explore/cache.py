"""What is made from files and takes long: datasets and networks, shared by all clients."""

import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from figura.base.manifest import MANIFEST
from figura.base.yaml12 import read_yaml
from figura.recipe.expansion import extended_files
from figura.recipe.schema import DatasetEntry

T = TypeVar("T")


class Cache:
    """What was made from files, by key, until a file changes. Two threads that ask for the same make it once.

    Of more than `capacity` things, that which was not asked for longest goes first.
    """

    def __init__(self, capacity: int = 12) -> None:
        self._capacity, self._lock = capacity, threading.RLock()
        self._entries: dict[tuple[str, ...], tuple[object, Any]] = {}

    def get(self, key: tuple[str, ...], files: Collection[Path], make: Callable[[], T]) -> T:
        """Return what `make` returned for this key, or returns now if one of the files is another one."""
        with self._lock:
            version, entry = [_version(path) for path in files], self._entries.pop(key, None)
            if entry is None or entry[0] != version:
                entry = None  # two versions at once may be more than memory has
                entry = version, make()
            self._entries[key] = entry
            if len(self._entries) > self._capacity:
                del self._entries[next(iter(self._entries))]
            return cast(T, entry[1])


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


CACHE = Cache()


def recipe_files(path: Path) -> list[Path]:
    """Return the file of a recipe, and those with entries that it extends. Raises like `read_yaml`."""
    return [path, *sorted(extended_files(read_yaml(path)))]


def manifests(entries: Iterable[DatasetEntry]) -> list[Path]:
    """Return the files that tell whether the data of these datasets have changed."""
    return [Path(str(entry.arguments["root"]), MANIFEST) for entry in entries if "root" in entry.arguments]
