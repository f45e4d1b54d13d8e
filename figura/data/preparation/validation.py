"""What is wrong with raw records, and where their files are."""

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from figura.base.dvc_cache import dvc_cache
from figura.data.formats.records import UnusableError


class Rejected(NamedTuple):
    """A row of `rejected.csv`: the annotation file, `image` or `annotation`, the record's id, and why."""

    file: str
    kind: str
    id: str
    reason: str
    detail: str


def inside(folder: Path, name: str, root: Path) -> Path:
    """Return `folder / name` with links resolved; raises UnusableError if it is outside `root` and of DVC's cache.

    With `cache.type symlink`, DVC's files in the workspace are links to its cache. A name that no file can have is
    unusable, too.
    """
    try:
        path = Path(os.path.realpath(folder / name))  # `resolve` raises RuntimeError for circular links
        path.exists()
    except (ValueError, OSError) as error:  # a NUL, an invalid surrogate, or too long
        raise UnusableError("file name that no file can have", repr(name)) from error
    if ".." not in Path(name).parts and (path.is_relative_to(root) or path.is_relative_to(root.resolve())):
        return path
    files = None if ".." in Path(name).parts else _cached_files(root.resolve())
    if files is None or not path.is_relative_to(files):
        is_link = ".." not in name and not Path(name).is_absolute()
        link = f" (a link to {path}; copy it, or let the source itself be the link)" if is_link else ""
        raise UnusableError("path leaves the data root", f"{name}{link}")
    return path


@cache
def _cached_files(root: Path) -> Path | None:
    """Return the folder of the files in the cache of the DVC repository around `root`; None without one."""
    folder = dvc_cache(root)
    return None if folder is None else (folder / "files/md5").resolve()
