"""The SHA-256 of each file of a folder, in a file beside them, in the form that `sha256sum -c SHA256SUMS` reads."""

import hashlib
import io
import os
from pathlib import Path

from models.base.errors import UserError

SUMS = "SHA256SUMS"


def write_sums(folder: Path) -> None:
    """Write `SHA256SUMS` of all files in a folder, and in folders inside it, and flush it to disk."""
    with (folder / SUMS).open("wb") as file:  # not atomically: half of it is damage, too
        file.write(_content(_sums(folder)))
        file.flush()
        os.fsync(file.fileno())


def damage(folder: Path) -> str | None:
    """Return what is wrong with a folder that `write_sums` completed, or None if each of its bytes is as it was."""
    try:
        content, sums = _read(folder / SUMS), _sums(folder)
    except (OSError, UserError) as error:
        return str(error)
    if content == _content(sums):
        return None
    listed = _listed(content)
    missing, added = sorted(listed.keys() - sums.keys()), sorted(sums.keys() - listed.keys())
    changed = sorted(name for name in listed.keys() & sums.keys() if listed[name] != sums[name])
    faults = [f"{name} is missing" for name in missing] + [f"{name} has another SHA-256" for name in changed]
    return ", ".join([*faults, *(f"{name} is not listed" for name in added)][:3] or ["damaged"]) + f" ({SUMS})"


def refuse_damaged(path: Path) -> None:
    """Raise UserError if `SHA256SUMS` beside a file does not confirm it; without `SHA256SUMS`, do nothing."""
    sums = path.parent / SUMS
    if not sums.exists():
        return
    listed = _listed(_read(sums))
    if path.name not in listed:
        found = f"{sums} does not list it: one of the two is damaged"
    elif listed[path.name] != _sha256(path):
        found = f"its SHA-256 is another than in {sums}: one of the two is damaged"
    else:
        return
    folder = path.parent
    raise UserError(
        f"{path}: {found}; get the folder again (`rm -r {folder} && dvc checkout {folder}`), or train again; if you "
        f"changed it yourself, remove {SUMS}"
    )


def _sums(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir() and path != folder / SUMS)
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in paths}


def _sha256(path: Path) -> str:
    with _open(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path) -> bytes:
    with _open(path) as file:
        return file.read()


def _open(path: Path) -> io.BufferedReader:
    """Open a regular file. Raises UserError if it is something else, or cannot be read."""
    if not path.is_file():  # a FIFO would be waited for
        raise UserError(f"{path}: {'no regular' if path.exists() else 'no such'} file")
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _content(sums: dict[str, str]) -> bytes:
    return "".join(f"{value}  {name}\n" for name, value in sums.items()).encode(errors="surrogateescape")


def _listed(content: bytes) -> dict[str, str]:
    lines = (line.partition("  ") for line in content.decode(errors="replace").splitlines())
    return {name: value for value, _, name in lines}
