"""The folder of raw data of a dataset."""

from dataclasses import dataclass
from pathlib import Path

from figura.base.errors import UserError
from figura.formats.records import UnusableError
from figura.preparation.pictures import inside


@dataclass(frozen=True)
class RawFolder:
    """The folder of raw data of a dataset. `key` is the dotted key of its settings, for errors."""

    folder: Path
    key: str
    seed: int

    def path(self, path: str, key: str) -> Path:
        """Return a path below the folder, with links resolved; raises UserError if it leaves the folder."""
        try:
            return inside(self.folder, path, self.folder)
        except UnusableError as fault:
            link = fault.detail.removeprefix(path)
            raise UserError(f"{self.key}.{key}: {path} leaves the source {self.folder}{link}") from fault

    def directory(self, path: str, key: str) -> Path:
        """Return a folder below the folder; raises UserError if there is none."""
        folder = self.path(path, key)
        if not folder.is_dir():
            raise UserError(f"{self.key}.{key}: no folder {folder}")
        return folder
