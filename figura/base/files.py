"""Files: atomic writes (a file is complete or absent), reads that neither block nor end in a traceback."""

import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from configparser import ConfigParser, Error
from contextlib import contextmanager
from functools import cache
from glob import escape
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.file_kinds import HEAD, kind_of, unread_kind

TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}(\.[^.]*)?")  # names of `tempfile` in `replacing`


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; after the block, the file is flushed to disk and renamed to `path`.

    If the block raises or the process dies, an earlier file at `path` is kept. Permissions are rw-rw-rw- minus the
    umask.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem[:40]}.", suffix=path.suffix)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, name):  # a full disk has no file name
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def tidy(path: Path) -> None:
    """Remove leftovers of processes killed while replacing a file, or any file below a folder."""
    pattern = ".*" if path.is_dir() else f".{escape(path.stem[:40])}.*{escape(path.suffix)}"
    for one in path.rglob(pattern) if path.is_dir() else path.parent.glob(pattern):
        if TEMPORARY.fullmatch(one.name) and one.is_file():
            one.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty, hidden folder beside `path`; after the block, it replaces `path`.

    If the block raises or the process dies, an earlier folder at `path` is kept; if the process dies between the two
    renames, it is left beside `path`, and the next call restores it.
    """
    hidden, old = (path.with_name(f".{path.name}.{what}") for what in ("partial", "old"))
    _tidy_folders(path, hidden, old)
    hidden.mkdir(parents=True)
    try:
        yield hidden
        if path.exists():
            path.rename(old)
        hidden.rename(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk has no file name
            error.filename = str(path)
        raise
    finally:
        _tidy_folders(path, hidden, old)


def _tidy_folders(path: Path, hidden: Path, old: Path) -> None:
    if old.exists() and not path.exists():
        old.rename(path)
    for left in (hidden, old):
        shutil.rmtree(left, ignore_errors=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, atomically. Raises OSError if it cannot be written completely."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8), atomically."""
    write_bytes(path, text.encode("utf-8"))


def open_regular(path: Path, advice: str = "") -> io.BufferedReader:
    """Open a regular file to read.

    Raises:
        UserError: it does not exist, is not a regular file (a folder, a FIFO, which would block, an endless device, a
            link to itself), cannot be opened, or is of a kind that figura does not read (`file_kinds`); `advice` is
            added to the message.
    """
    end = f"; {advice}" if advice else ""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            file = open(descriptor, "rb")  # noqa: SIM115  # the caller closes it
            reason = unread_kind(file.peek(HEAD))
            if reason is None:
                return file
            file.close()
        else:
            os.close(descriptor)
            reason = "no regular file"
    except FileNotFoundError:
        reason = "no such file"
    except OSError as error:
        special = error.errno in (errno.EISDIR, errno.ENXIO)
        reason = "no regular file" if special else f"cannot be read: {error.strerror}"
    except ValueError:  # a NUL, or an invalid surrogate
        raise UserError(f"{str(path)!r}: no path of a file{end}") from None
    raise UserError(f"{path}: {reason}{end}")


def read_bytes(path: Path, advice: str = "", most: int | None = None) -> bytes:
    """Return the content of a regular file.

    Raises:
        UserError: as `open_regular`, or the file has more than `most` bytes or does not fit in memory.
    """
    end = f"; {advice}" if advice else ""
    with open_regular(path, advice) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise UserError(f"{path}: has {size:,} bytes; at most {most:,} are allowed{end}")
        try:
            return file.read()
        except MemoryError:
            raise UserError(f"{path}: its {size:,} bytes do not fit into memory{end}") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}{end}") from None


def read_text(path: Path, advice: str = "", most: int | None = None) -> str:
    """Return the content of a file of UTF-8 text. Raises UserError like `read_bytes`, and if it is not UTF-8."""
    content = read_bytes(path, advice, most)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        end = f"; {advice}" if advice else ""
        kind = kind_of(content, path) or "the file is damaged or no text"
        raise UserError(f"{path}: byte {error.start} is no UTF-8: {kind}{end}") from None


def read_json(path: Path, advice: str = "", most: int | None = None) -> Any:
    """Return the content of a JSON file. Raises UserError like `read_text`, and if it is not JSON."""
    text = read_text(path, advice, most)
    try:
        return json.loads(text)
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:  # also integers of more than 4,300 digits
        reason = str(error)
    raise UserError(f"{path}: no readable JSON: {reason}" + (f"; {advice}" if advice else "")) from None


def short_name(name: str) -> str:
    """Shorten a name to 160 bytes, leaving room for suffixes: longer ones are cut and get 8 digits of a hash."""
    content = os.fsencode(name)
    if len(content) <= 160:
        return name
    return f"{content[:150].decode('utf-8', 'ignore')}-{hashlib.sha256(content).hexdigest()[:8]}"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content; cached until the file changes."""
    stat = path.stat()
    return _sha256(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@cache
def _sha256(path: Path, *version: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def md5(content: bytes) -> str:
    """Return the MD5 of a content, by which DVC names it."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def git(*arguments: str) -> str | None:
    """Return what a git command prints, or None if it fails."""
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def cache_around(start: Path) -> Path | None:
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


@cache
def log_weights(what: str, path: Path) -> None:
    """Print that `what` was loaded from a file, and the start of its SHA-256: once, only on the main process."""
    if os.environ.get("RANK", "0") == "0":
        print(f"{what}: loaded from {path}, sha256 {sha256(path)[:8]}", flush=True)


@cache
def _umask() -> int:
    """Return the umask of this process, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
