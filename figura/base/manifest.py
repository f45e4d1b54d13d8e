"""`manifest.json` of a prepared dataset, which identifies its content."""

from pathlib import Path
from typing import Any

from figura.base.errors import REPRO, UserError
from figura.base.files import read_json

MANIFEST = "manifest.json"


def read_manifest(root: Path) -> dict[str, Any]:
    """Return the manifest of a prepared dataset: `sha256`, a string, and often `files` and `hashes`.

    Raises:
        UserError: it cannot be read or is not a manifest.
    """
    content = read_json(root / MANIFEST, advice_of(root))
    if not isinstance(content, dict) or not isinstance(content.get("sha256"), str):
        raise no_manifest(root)
    return content


def advice_of(root: Path) -> str:
    """Return advice about a damaged prepared dataset."""
    return f"run `{REPRO} --force prepare@{root.name}`"


def no_manifest(root: Path) -> UserError:
    """Return the error about an invalid `manifest.json`."""
    return UserError(f"{root / MANIFEST}: no manifest of a prepared dataset; {advice_of(root)}")
