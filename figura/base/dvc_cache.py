"""Where DVC keeps the files of a repository, as its configuration says."""

from configparser import ConfigParser, Error
from pathlib import Path


def dvc_cache(start: Path) -> Path | None:
    """Return the folder of the cache of the DVC repository around a folder; None if there is none.

    Only the repository's own configuration is read (`.dvc/config`, `.dvc/config.local`). A relative `cache.dir` is one
    from `.dvc`. A configuration that cannot be read counts as empty: DVC itself will say so.
    """
    for dvc in (folder / ".dvc" for folder in (start, *start.parents)):
        if dvc.is_dir():
            config = ConfigParser(interpolation=None, strict=False)
            try:
                config.read([dvc / "config", dvc / "config.local"], encoding="utf-8")
            except (Error, ValueError):
                return dvc / "cache"
            return dvc / config.get("cache", "dir", fallback="cache").strip("'\"")
    return None
