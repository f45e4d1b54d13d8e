"""The splits of a prepared dataset: `<split>.json` of people and plain pictures, folders of image pairs."""

from pathlib import Path

from models.base.errors import nearest

MANIFEST = "manifest.json"
OTHERS = ("facts", "images", "manifest", "plots", "rejected", "statistics")
"""Names of what else lies in the folder of a prepared dataset."""


def splits_of(root: Path) -> list[str]:
    """Return the names of the splits in a prepared dataset, or of the subfolders of any folder; sorted."""
    files = [path.stem for path in root.glob("*.json")]
    splits = [name for name in files if name not in OTHERS and not name.startswith(".")]
    if not splits and root.is_dir():
        splits = [path.name for path in root.iterdir() if path.is_dir() and path.name not in OTHERS]
    return sorted(name for name in splits if not name.startswith("."))


def without_split(root: Path, split: str) -> str:
    """Return what to do about a split that is missing in the folder `root`, for the end of an error."""
    prepared = (root / MANIFEST).is_file()
    if prepared and (splits := splits_of(root)):
        return (
            f"{root} has the splits {', '.join(splits)}{nearest(split, splits)}; bring {split!r} to "
            f"`datasets.{root.name}` in data/params.yaml and run `dvc repro prepare@{root.name}`"
        )
    others = sorted(path.parent.name for path in root.parent.glob(f"*/{MANIFEST}") if path.parent != root)
    known = f"; {root.parent} has {', '.join(others)}{nearest(root.name, others)}" if others else ""
    if root.is_dir() and not prepared:
        return f"{root} is no prepared dataset, which has a {MANIFEST}{known}"
    return f"run `dvc repro prepare@{root.name}`{known}"
