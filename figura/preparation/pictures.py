"""Picture files of raw data: their places and sizes."""

import os
from pathlib import Path

from figura.base.errors import UserError
from figura.base.links import real_path
from figura.base.raw_pictures import Orientation, picture_facts
from figura.formats.records import Size, UnusableError


def inside(folder: Path, name: str, root: Path) -> Path:
    """Return `folder / name` with links resolved, as `real_path` does; raises UnusableError if it is outside `root`.

    A name that no file can have is unusable, too.
    """
    try:
        path = real_path(folder / name, root)
        (folder / name).exists()
    except (ValueError, OSError) as error:  # a NUL, an invalid surrogate, or too long
        raise UnusableError("file name that no file can have", repr(name)) from error
    if path is None or ".." in Path(name).parts:
        is_link = ".." not in name and not Path(name).is_absolute()
        target = os.path.realpath(folder / name)
        link = f" (a link to {target}; copy it, or let the source itself be the link)" if is_link else ""
        raise UnusableError("path leaves the data root", f"{name}{link}")
    return path


def size_of(path: Path, orientation: Orientation = "upright") -> Size:
    """Return the size of a picture upright by EXIF, as most tools read it, or as stored; 1 x 1 if it is none."""
    try:
        facts = picture_facts(path)
    except UserError:
        return Size(1, 1)
    return Size(*(facts.upright if orientation == "upright" else facts.stored))
