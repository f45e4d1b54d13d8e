"""Links, of which those into the pipeline's cache are files of their own."""

import os
from functools import cache
from pathlib import Path

from figura.base.files import cache_around


def real_path(path: Path, root: Path) -> Path | None:
    """Return a path with links resolved; None if it is outside of a folder.

    A link into the pipeline's cache around the folder (`cache.type symlink`) is a file of its own, at the path of the
    link: equal files have one place in the cache.

    Raises:
        ValueError, OSError: no file can have this name.
    """
    top, real = (Path(os.path.realpath(one)) for one in (root, path))  # `resolve` raises for circular links
    if not real.is_relative_to(top) and (cached := _cached_files(top)) is not None and real.is_relative_to(cached):
        real = Path(os.path.realpath(path.parent), path.name)
    return real if real.is_relative_to(top) else None


@cache
def _cached_files(root: Path) -> Path | None:
    """Return the folder of the files in the pipeline's cache around a folder; None without one."""
    folder = cache_around(root)
    return None if folder is None else Path(os.path.realpath(folder / "files/md5"))
