"""The folder of a prepared dataset: its splits, `<split>.json` or folders of image pairs, its facts and its manifest.

Keys of `facts.json`, the facts of a people dataset:
    skeleton: the joints, as accepted by `figura.formats.skeletons.skeleton_from`; null without joints.
    categories: `[{"id": 1, "name": "person"}, ...]`, sorted by id; a detection field is an index into this list.
    people: the name of the category with joints; null if there is none. Its annotations are the persons.
    annotated: split -> counts of `images`, `persons` (no crowd regions), persons `with_joints`, `boxes` (annotations of
        all categories, no crowd regions), `identities` (different values of `person_id`) and `identities_seen_twice`
        (those of two persons or more); and `annotated`, false for a split whose source has no annotations.
"""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from figura.base.errors import REPRO, UserError, nearest
from figura.base.files import read_bytes, read_json, sha256
from figura.base.manifest import MANIFEST, advice_of, no_manifest, read_manifest

FACTS = "facts.json"
REJECTED = "rejected.csv"
OTHERS = ("facts", "images", "manifest", "plots", "rejected", "repaired", "statistics")
"""Names of the other content of a prepared dataset's folder."""


def splits_of(root: Path) -> list[str]:
    """Return the names of the splits in a prepared dataset, or of the subfolders of any folder; sorted."""
    files = [path.stem for path in root.glob("*.json")]
    splits = [name for name in files if name not in OTHERS and not name.startswith(".")]
    if not splits and root.is_dir():
        splits = [path.name for path in root.iterdir() if path.is_dir() and path.name not in OTHERS]
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
    return f"run `{REPRO} prepare@{root.name}`{known}"


def read_facts(root: Path) -> dict[str, Any]:
    """Return the facts of the prepared dataset in the folder `root`; `{}` if it has no `facts.json`.

    Raises:
        UserError: the file is not a JSON object.
    """
    path = root / FACTS
    if not path.exists():
        return {}
    facts = read_json(path, f"run `{REPRO} prepare@{root.name}`")
    if not isinstance(facts, dict):
        raise UserError(f"{path}: found {str(facts)[:80]!r}; expected a map; run `{REPRO} prepare@{root.name}`")
    return facts


class Manifest:
    """The SHA-256 of each file of a prepared dataset, as written by `prepare`: files that are read must match.

    A hand-made folder, without a manifest and `prepare`'s list of rejected records, is not checked, and neither is one
    whose manifest lists no files. Takes 40 bytes of memory per file.

    Raises:
        UserError: the manifest cannot be read, or is missing in a folder written by `prepare`.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.advice = root, advice_of(root)
        path = root / MANIFEST
        content = read_manifest(root) if path.exists() or (root / REJECTED).exists() else {}
        hashes = content.get("hashes", {})
        try:
            pairs = sorted((_key(name), bytes.fromhex(one)) for name, one in hashes.items())
            self._keys = np.array([key for key, _ in pairs], dtype=np.uint64)
            self._hashes = np.frombuffer(b"".join(one for _, one in pairs), dtype=np.uint8).reshape(len(pairs), 32)
            self._folders = Counter(name.rpartition("/")[0] for name in hashes)
        except (AttributeError, TypeError, ValueError):
            raise no_manifest(root) from None

    def check_count(self, folder: Path, count: int) -> None:
        """Raise UserError if a folder has fewer files, including subfolders, than `prepare` wrote."""
        above = folder.relative_to(self.root).parts
        written = sum(n for name, n in self._folders.items() if Path(name).parts[: len(above)] == above)
        if count < written:
            raise UserError(f"{folder}: has {count} of the {written} files in {self.root / MANIFEST}; {self.advice}")

    def check(self, path: Path) -> bool:
        """Return whether a file is verified to be from `prepare`, which checked its records; False if unknown.

        A large file is read in chunks, and only once. Raises UserError if it differs from what `prepare` wrote.
        """
        if len(self._keys):
            self._compare(path, bytes.fromhex(sha256(path)))
        return bool(len(self._keys))

    def read_bytes(self, path: Path) -> bytes:
        """Return the content of a file; raises UserError if it cannot be read or differs from what `prepare` wrote."""
        content = read_bytes(path, self.advice)
        if len(self._keys):
            self._compare(path, hashlib.sha256(content).digest())
        return content

    def _compare(self, path: Path, actual: bytes) -> None:
        name = path.relative_to(self.root).as_posix()
        place = int(np.searchsorted(self._keys, np.uint64(_key(name))))
        if place == len(self._keys) or int(self._keys[place]) != _key(name):
            raise UserError(f"{path}: {self.root / MANIFEST} does not list it; {self.advice}")
        if self._hashes[place].tobytes() != actual:
            manifest = self.root / MANIFEST
            raise UserError(f"{path}: its SHA-256 is another than in {manifest}: one of them changed; {self.advice}")


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:8])
