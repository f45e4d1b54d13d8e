"""The folder of a prepared dataset: its splits, `<split>.json` or image pairs, its facts and its manifest.

The pictures of a split are in archives, where earlier versions wrote folders of files (`archive_of`).

Keys of `facts.json`, the facts of a people dataset:
    skeleton: the joints, as accepted by `figura.formats.skeletons.skeleton_from`; null without joints.
    categories: `[{"id": 1, "name": "person"}, ...]`, sorted by id; a detection field is an index into this list.
    people: the name of the category with joints; null if there is none. Its annotations are the persons.
    annotated: split -> counts of `images`, `persons` (no crowd regions), persons `with_joints`, `boxes` (annotations of
        all categories, no crowd regions), `identities` (different values of `person_id`) and `identities_seen_twice`
        (those of two persons or more); and `annotated`, false for a split whose source has no annotations.
"""

import hashlib
from pathlib import Path
from typing import Any

from figura.base.archives import ArchiveReader, archive_name
from figura.base.errors import REPRO, UserError
from figura.base.files import read_bytes, read_json, sha256
from figura.base.manifest import MANIFEST, advice_of, no_manifest, read_manifest
from figura.base.pictures import picture_files

FACTS = "facts.json"
REJECTED = "rejected.csv"
OTHERS = ("facts", "images", "manifest", "plots", "rejected", "repaired", "statistics")
"""Names of the other content of a prepared dataset's folder."""


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


def archive_of(name: str) -> tuple[str, str]:
    """Return the name of the archives (`base/archives.py`) that have a split's picture, and its name in them.

    `images/train/a.png` in a dataset is `train/a.png` in `images/train.zip`, and `train/a/1.png` the same in
    `train.zip`. No archive has a file whose name in it has no folder, or is no Unicode.
    """
    parts = name.split("/")
    first = int(parts[0] == "images" and len(parts) > 1)
    return "/".join(parts[: first + 1]), "/".join(parts[first:])


class Manifest:
    """The files of a prepared dataset, in archives or not; what is read must match what `prepare` wrote.

    Their SHA-256 is in the manifest. A hand-made folder, without a manifest and `prepare`'s list of rejected records,
    is not checked, and neither is one whose manifest lists no files. Earlier versions wrote no archives.

    Raises:
        UserError: the manifest cannot be read, or is missing in a folder written by `prepare`.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.advice = root, advice_of(root)
        path = root / MANIFEST
        content = read_manifest(root) if path.exists() or (root / REJECTED).exists() else {}
        self.hashes = content.get("hashes", {})
        try:
            whole = {len(bytes.fromhex(one)) for one in self.hashes.values()} <= {32}
        except (AttributeError, TypeError, ValueError):
            whole = False
        if not whole:
            raise no_manifest(root)
        # without hashes, people may have edited the files
        self._sums = self.hashes or {self._name(path): "" for path in root.glob("**/*.zip") if content}
        self._archives = ArchiveReader(root, self.advice)

    def has(self, folder: Path) -> bool:
        """Return whether there is such a folder, or archives of what was in it."""
        return folder.is_dir() or archive_name(archive_of(self._name(folder) + "/")[0], 1) in self._sums

    def archived(self, folder: Path) -> list[str]:
        """Check the archives of a folder, once for all processes to come; return the names in them, relative to it."""
        archive, above = archive_of(self._name(folder) + "/")
        names = self._archives.names(archive, self._sums)
        return [name.removeprefix(above) for name in names if name.startswith(above)]

    def pictures(self, folder: Path) -> list[str]:
        """Return the pictures below a folder, relative to it, in archives or not.

        Raises UserError if an archive is damaged, or there are fewer files than `prepare` wrote.
        """
        files = list(picture_files(folder))
        self.check_count(folder, len(files))
        return list(dict.fromkeys([*self.archived(folder), *files]))

    def check_count(self, folder: Path, count: int) -> None:
        """Raise UserError if a folder has fewer files, including subfolders, than `prepare` wrote."""
        written = sum(name.startswith(self._name(folder) + "/") for name in self.hashes)
        if count < written:
            raise UserError(f"{folder}: has {count} of the {written} files in {self.root / MANIFEST}; {self.advice}")

    def check(self, path: Path) -> bool:
        """Return whether a file is verified to be from `prepare`, which checked its records; False if unknown.

        A large file is read in chunks, and only once. Raises UserError if it differs from what `prepare` wrote.
        """
        if self.hashes:
            self._compare(path, sha256(path))
        return bool(self.hashes)

    def member(self, path: Path) -> bytes | None:
        """Return the content of a file in an archive; None if none has it. Raises UserError if that is damaged."""
        return self._archives.read(*archive_of(self._name(path)), self._sums)

    def read_bytes(self, path: Path) -> bytes:
        """Return the content of a file; raises UserError if it cannot be read or differs from what `prepare` wrote."""
        if (member := self.member(path)) is not None:
            return member
        content = read_bytes(path, self.advice)
        if self.hashes:
            self._compare(path, hashlib.sha256(content).hexdigest())
        return content

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _compare(self, path: Path, actual: str) -> None:
        if (expected := self.hashes.get(self._name(path))) is None:
            raise UserError(f"{path}: {self.root / MANIFEST} does not list it; {self.advice}")
        if expected != actual:
            manifest = self.root / MANIFEST
            raise UserError(f"{path}: its SHA-256 is another than in {manifest}: one of them changed; {self.advice}")
