"""Many small files as members of a few ZIP archives, uncompressed, so that reading a member is reading a file.

The archives of one name are `<name>.zip`, `<name>.2.zip`, ...: a new one begins where one would be too large.
Members lie in the order in which they are added, without times; so equal members give equal bytes.
"""

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_STORED, BadZipFile, ZipFile
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.files import open_regular, sha256

HEADER = 30  # bytes before the name of a member, the last four of them the lengths of the name and of what follows it


def archive_name(name: str, number: int) -> str:
    """Return the file name of the archive of this number, from 1."""
    return f"{name}.zip" if number == 1 else f"{name}.{number}.zip"


class _Index(NamedTuple):
    keys: NDArray[np.uint64]  # of the members' names, sorted
    places: NDArray[np.int64]  # start, size and CRC-32 of each


class ArchiveReader:
    """Reads members of the archives in a folder.

    An archive is checked when the first member is read, and takes 32 bytes of memory a member. No file stays open, so
    that threads, and forked or spawned processes, can share an instance.
    """

    def __init__(self, folder: Path, advice: str) -> None:
        self.folder, self.advice = folder, advice
        self._indices: dict[str, _Index] = {}  # by archive

    def read(self, name: str, member: str, sums: Mapping[str, str]) -> bytes | None:
        """Return a member of the archives of a name; None if there is none.

        Args:
            name: of the archives.
            member: its name.
            sums: the SHA-256 of each archive by file name, empty if unknown; others are not read.

        Raises:
            UserError: an archive is missing or damaged, or no archive of uncompressed members.
        """
        key = _key(member)
        for path, index in self._checked(name, sums):
            place = int(np.searchsorted(index.keys, key))
            if place < len(index.keys) and index.keys[place] == key:
                return self._content(path, member, *index.places[place].tolist())
        return None

    def names(self, name: str, sums: Mapping[str, str]) -> list[str]:
        """Return the members of the archives of a name, in order; raises UserError like `read`."""
        found: list[str] = []
        for path, _ in self._checked(name, sums):
            with open_regular(path, self.advice) as file:
                found += ZipFile(file).namelist()
        return found

    def _checked(self, name: str, sums: Mapping[str, str]) -> Iterator[tuple[Path, _Index]]:
        number = 1
        while (archive := archive_name(name, number)) in sums:
            if archive not in self._indices:
                self._indices[archive] = self._index(self.folder / archive, sums[archive])
            yield self.folder / archive, self._indices[archive]
            number += 1

    def _content(self, path: Path, member: str, start: int, size: int, crc: int) -> bytes:
        with open_regular(path, self.advice) as file:
            file.seek(start)
            content = file.read(size)
        if crc32(content) != crc:
            raise UserError(f"{path}: {member} is damaged: its checksum differs; {self.advice}")
        return content

    def _index(self, path: Path, digest: str) -> _Index:
        members = []
        with open_regular(path, self.advice) as file:
            if digest and sha256(path) != digest:
                raise UserError(f"{path}: damaged: its checksum differs; {self.advice}")
            end = os.fstat(file.fileno()).st_size
            try:
                for info in ZipFile(file).infolist():
                    file.seek(info.header_offset + HEADER - 4)
                    start = info.header_offset + HEADER + sum(struct.unpack("<2H", file.read(4)))
                    if info.compress_type != ZIP_STORED or start + info.file_size > end:
                        raise BadZipFile(f"{info.filename!r} is compressed or cut off")
                    members.append((_key(info.filename), start, info.file_size, info.CRC))
            # zipfile raises NotImplementedError for newer forms of ZIP
            except (BadZipFile, ValueError, OSError, struct.error, NotImplementedError, MemoryError) as error:
                raise UserError(f"{path}: no readable archive: {error}; {self.advice}") from None
        members.sort()
        places = np.array([place for _, *place in members], dtype=np.int64)
        return _Index(np.array([key for key, *_ in members], dtype=np.uint64), places)


def _key(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:8]))
