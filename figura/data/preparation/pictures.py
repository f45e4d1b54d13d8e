"""Picture files of raw data: their places and sizes."""

import os
from functools import cache
from pathlib import Path

from figura.base.errors import UserError
from figura.base.files import dvc_cache
from figura.base.pictures import Orientation, picture_facts
from figura.data.formats.records import Size, UnusableError


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


def size_of(path: Path, orientation: Orientation = "upright") -> Size:
    """Return the size of a picture upright by EXIF, as most tools read it, or as stored; 1 x 1 if it is none."""
    try:
        facts = picture_facts(path)
    except UserError:
        return Size(1, 1)
    return Size(*(facts.upright if orientation == "upright" else facts.stored))
