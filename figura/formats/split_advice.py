"""Advice about a split that a dataset lacks."""

from pathlib import Path

from figura.base.errors import REPRO, nearest
from figura.base.manifest import MANIFEST
from figura.base.yaml12 import read_yaml
from figura.formats.prepared import OTHERS

_ENTRIES = Path("data/params.yaml")


def splits_of(root: Path) -> list[str]:
    """Return the names of the splits in a prepared dataset, or of the subfolders of any folder; sorted."""
    files = [path.stem for path in root.glob("*.json")]
    splits = [name for name in files if name not in OTHERS and not name.startswith(".")]
    if not splits and root.is_dir():
        folders = {path.name for path in root.iterdir() if path.is_dir()}
        archives = {path.stem for path in root.glob("*.zip") if "." not in path.stem}
        splits = [name for name in folders | archives if name not in OTHERS]
    return sorted(name for name in splits if not name.startswith("."))


def without_split(root: Path, split: str) -> str:
    """Return advice about a split missing in the folder `root`, for the end of an error."""
    prepared = (root / MANIFEST).is_file()
    if prepared and (splits := splits_of(root)):
        return (
            f"{root} has the splits {', '.join(splits)}{nearest(split, splits)}; bring {split!r} to "
            f"`datasets.{root.name}` in data/params.yaml and run `{REPRO} prepare@{root.name}`"
        )
    others = sorted(path.parent.name for path in root.parent.glob(f"*/{MANIFEST}") if path.parent != root)
    known = f"; {root.parent} has {', '.join(others)}{nearest(root.name, others)}" if others else ""
    if root.is_dir() and not prepared:
        return f"{root} is no prepared dataset, which has a {MANIFEST}{known}"
    is_new = _ENTRIES.is_file() and root.name not in (read_yaml(_ENTRIES).get("datasets") or {})
    entry = f"write its entry, `datasets.{root.name}`, to {_ENTRIES}, and " if is_new else ""
    return f"{entry}run `{REPRO} prepare@{root.name}`{known}"
