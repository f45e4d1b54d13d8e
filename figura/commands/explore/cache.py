"""What is made from files and takes long: datasets and networks, shared by all clients."""

import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")

CAPACITY = 12
"""Of the cache: datasets and networks that stay open."""


class Cache:
    """What was made from files, by key, until a file changes. Two threads that ask for the same make it once.

    What was not asked for longest goes first.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity, self._lock = capacity, threading.RLock()
        self._entries: dict[tuple[str, ...], tuple[object, Any]] = {}

    def get(self, key: tuple[str, ...], files: Collection[Path], make: Callable[[], T]) -> T:
        """Return what `make` returned for this key, or returns now if one of the files is another one."""
        with self._lock:
            version, earlier = [_version(path) for path in files], self._entries.pop(key, None)
            entry = earlier if earlier is not None and earlier[0] == version else None
            del earlier  # two versions at once may be more than memory has
            self._entries[key] = entry or (version, make())
            while len(self._entries) > self._capacity:
                del self._entries[next(iter(self._entries))]
            return cast(T, self._entries[key][1])


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


CACHE = Cache()
