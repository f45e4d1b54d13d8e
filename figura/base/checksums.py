"""SHA-256 of all files of a folder, in a file beside them, in the format of `sha256sum -c SHA256SUMS`."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from figura.base.errors import CHECKOUT, UserError
from figura.base.files import open_regular, read_bytes

SUMS = "SHA256SUMS"
FORMAT = "format.txt"  # in a model or dump whose form is newer than that of figura 0.1, which has none

LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def sum_lines(sums: Mapping[str, str]) -> str:
    """Return one line per file in the format of `sha256sum`, given the SHA-256 by path relative to the folder."""
    return "".join(f"{value}  {name}\n" for name, value in sums.items())


def read_sums(folder: Path, advice: str = "") -> dict[str, str]:
    """Return the SHA-256 of each file that `SHA256SUMS` in a folder lists, by path relative to the folder.

    Raises:
        UserError: it is missing, not a regular file, or has a line that is not a checksum and path; `advice` is added
            to the message. Or the folder is of a newer figura.
    """
    path, sums = folder / SUMS, dict[str, str]()
    content = read_bytes(path, advice).decode(errors="surrogateescape")
    for number, line in enumerate(content.removesuffix("\n").split("\n"), start=1):
        if not (match := LINE.fullmatch(line)):
            end = f"; {advice}" if advice else ""
            raise UserError(f"{path}: line {number}: no checksum and file: it is damaged{end}")
        sums[match[2]] = match[1]
    if FORMAT in sums:
        raise UserError(f"{folder / FORMAT}: a newer figura wrote this folder; upgrade figura to read it")
    return sums


def write_sums(folder: Path) -> None:
    """Write `SHA256SUMS` of all files in a folder, and in folders inside it, and flush it to disk."""
    with (folder / SUMS).open("wb") as file:  # not atomic: a partial file counts as damage, too
        file.write(_content(_sums(folder)))
        file.flush()
        os.fsync(file.fileno())


def damage(folder: Path) -> str | None:
    """Return what is wrong with a folder that `write_sums` completed, or None if every byte is intact."""
    try:
        content, sums = read_bytes(folder / SUMS), _sums(folder)
        if content == _content(sums):
            return None
        listed = read_sums(folder)
    except (OSError, UserError) as error:
        return str(error)
    missing, added = sorted(listed.keys() - sums.keys()), sorted(sums.keys() - listed.keys())
    changed = sorted(name for name in listed.keys() & sums.keys() if listed[name] != sums[name])
    faults = [f"{name} is missing" for name in missing] + [f"{name} has another SHA-256" for name in changed]
    return ", ".join([*faults, *(f"{name} is not listed" for name in added)][:3] or ["damaged"]) + f" ({SUMS})"


def refuse_damaged(path: Path) -> None:
    """Raise UserError if a file does not match `SHA256SUMS` beside it; without `SHA256SUMS`, do nothing."""
    folder, sums = path.parent, path.parent / SUMS
    if not sums.exists():
        return
    advice = (
        f"get the folder again (`rm -r {folder} && {CHECKOUT} {folder}`), or train again; if you changed it "
        f"yourself, remove {SUMS}"
    )
    listed = read_sums(folder, advice)
    if path.name not in listed:
        fault = f"{sums} does not list it"
    elif listed[path.name] != _sha256(path):
        fault = f"its SHA-256 is another than in {sums}"
    else:
        return
    raise UserError(f"{path}: {fault}: one of the two is damaged; {advice}")


def _sums(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir() and path != folder / SUMS)
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in paths}


def _sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _content(sums: Mapping[str, str]) -> bytes:
    return sum_lines(sums).encode(errors="surrogateescape")
