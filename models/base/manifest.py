"""`manifest.json` of a prepared dataset, which names its content."""

from pathlib import Path
from typing import Any

from models.base.errors import UserError
from models.base.files import read_json

MANIFEST = "manifest.json"


def read_manifest(root: Path) -> dict[str, Any]:
    """Return the manifest in the folder of a prepared dataset: `sha256`, a text, and often `files` and `hashes`.

    Raises:
        UserError: it cannot be read, or is something else.
    """
    content = read_json(root / MANIFEST, advice_of(root))
    if not isinstance(content, dict) or not isinstance(content.get("sha256"), str):
        raise no_manifest(root)
    return content


def advice_of(root: Path) -> str:
    """Return what to do about a prepared dataset that is damaged."""
    return f"run `dvc repro --force prepare@{root.name}`"


def no_manifest(root: Path) -> UserError:
    """Return the error about a `manifest.json` that is something else."""
    return UserError(f"{root / MANIFEST}: no manifest of a prepared dataset; {advice_of(root)}")
