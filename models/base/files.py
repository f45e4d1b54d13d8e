"""Whole files: atomic writes (a file is complete or absent), reads that neither wait nor end in a traceback."""

import errno
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from models.base.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; after the block, the file is flushed to disk and renamed to `path`.

    If the block raises or the process dies, an earlier file at `path` stays. Permissions are those that the umask
    leaves of rw-rw-rw-.
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
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, atomically. Raises OSError if the disk takes less than all of it."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8), atomically."""
    write_bytes(path, text.encode("utf-8"))


def read_bytes(path: Path, advice: str = "") -> bytes:
    """Return the content of a regular file.

    Raises:
        UserError: there is no file, or it is something else (a folder, a FIFO, which would be waited for, a device,
            which never ends, a link to itself), or it cannot be read; `advice` says what to do.
    """
    end = f"; {advice}" if advice else ""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError(f"{path}: no regular file{end}")
            return file.read()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file{end}") from None
    except OSError as error:
        reason = (
            "no regular file" if error.errno in (errno.EISDIR, errno.ENXIO) else f"cannot be read: {error.strerror}"
        )
        raise UserError(f"{path}: {reason}{end}") from None
    except ValueError:  # a NUL in the path
        raise UserError(f"{str(path)!r}: no path of a file{end}") from None


def read_text(path: Path, advice: str = "") -> str:
    """Return the content of a file of UTF-8 text. Raises UserError as `read_bytes`, and if it is no UTF-8."""
    try:
        return read_bytes(path, advice).decode("utf-8")
    except UnicodeDecodeError as error:
        end = f"; {advice}" if advice else ""
        raise UserError(f"{path}: byte {error.start} is no UTF-8: the file is damaged or no text{end}") from None


def read_json(path: Path, advice: str = "") -> Any:
    """Return the content of a JSON file. Raises UserError as `read_text`, and if it is no JSON."""
    text = read_text(path, advice)
    try:
        return json.loads(text)
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:  # also integers of more than 4,300 digits
        reason = str(error)
    raise UserError(f"{path}: no readable JSON: {reason}" + (f"; {advice}" if advice else "")) from None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content; a file that has not changed since is not read again."""
    stat = path.stat()
    return _sha256(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@cache
def _sha256(path: Path, *version: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def log_weights(what: str, path: Path) -> None:
    """Print that `what` was loaded from a file, and the start of its SHA-256: once, and on the main process alone."""
    if os.environ.get("RANK", "0") == "0":
        print(f"{what}: loaded from {path}, sha256 {sha256(path)[:8]}", flush=True)


@cache
def _umask() -> int:
    """Return the mask of this process; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
