"""Write many small files as members of a few ZIP archives (`archives.py`)."""

import hashlib
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from figura.base.archives import archive_name

MOST = 2**28
TIME = (1980, 1, 1, 0, 0, 0)  # the earliest time that zip supports


class _Archive(ZipFile):
    def __del__(self) -> None:
        """Leave an archive without its end if writing failed: `ZipFile` would write, and print what fails again."""


class ArchiveWriter:
    """Writes the archives of one name.

    Attributes:
        path: of the archive that is being written.
        sums: the SHA-256 of each finished archive, by path relative to the folder.

    Raises:
        OSError: from each method, if the disk is full or the folder cannot be written.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.sums = folder, name, dict[str, str]()
        self._begin()

    def _begin(self) -> None:
        self.path = self.folder / archive_name(self.name, len(self.sums) + 1)
        self._archive, self._size = _Archive(self.path, "w"), 0

    def add(self, member: str, content: bytes) -> None:
        """Write a member."""
        if self._size and self._size + len(content) > MOST:
            self.end()
            self._begin()
        info = ZipInfo(member, TIME)
        info.create_system, info.external_attr = 3, 0o644 << 16
        self._archive.writestr(info, content)
        self._size += len(content)

    def end(self) -> None:
        """Finish the archive."""
        self._archive.close()
        with self.path.open("rb") as file:
            self.sums[self.path.relative_to(self.folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
