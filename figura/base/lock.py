"""The lock of a folder: one training or evaluation at a time writes into a run, one preparation into a dataset.

The kernel releases the lock when its process dies, so locks are never stale. It is a POSIX lock (`fcntl`), which child
processes do not inherit: data loader workers that outlive a killed training hold nothing.
"""

import errno
import fcntl
import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from figura.base.errors import UserError

NAME = ".lock"
LONGEST = 200  # characters of the command in messages
HELD = (errno.EACCES, errno.EAGAIN)
_held: set[tuple[int, Path]] = set()


class LockedError(UserError):
    """Another process holds the lock."""


class Holder(NamedTuple):
    """The process that holds a lock, as the lock file says; `process` is 0 if it does not."""

    process: int
    host: str
    since: str
    command: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.since}" if self.process else "another process"


@contextmanager
def hold(folder: Path, file: Path | None = None) -> Iterator[None]:
    """Hold the lock of a folder inside the block; the file identifies the holder, and is removed at the end.

    The default file is `.lock` in the folder, which is created. The lock is re-entrant. On a file system without locks,
    a warning is printed.

    Raises:
        LockedError: another process holds it.
        UserError: the folder cannot be written.
    """
    own, path = (os.getpid(), folder.resolve()), file or folder / NAME
    if own in _held:
        yield
        return
    descriptor = _locked(folder, path)
    try:
        with suppress(OSError):  # a full disk; the lock works without its text
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _description(), 0)
        _held.add(own)
        try:
            yield
        finally:
            _held.discard(own)
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _locked(folder: Path, path: Path) -> int:
    """Return the descriptor of a lock file held by this process. Raises UserError like `hold`."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD:
                os.close(descriptor)
                holder = holder_of(path)
                who = f"{holder} ({holder.command[:LONGEST]})" if holder.process else holder
                raise LockedError(f"{folder}: {who} is at work there; wait for it, or stop it") from None
            print(f"warning: {path}: this file system has no locks ({error.strerror}); start nothing else in {folder}")
            return descriptor
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                os.set_inheritable(descriptor, True)  # the lock stays if this process becomes another by `exec`
                return descriptor
        os.close(descriptor)  # just removed by the previous holder


def _description() -> bytes:
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    command = " ".join(["python", *sys.orig_argv[1:]])
    if experiment := os.environ.get("DVC_EXP_NAME"):
        command += f", experiment {experiment}"
    holder = {"pid": os.getpid(), "host": platform.node(), "since": since, "command": command}
    return f"{json.dumps(holder)}\n".encode()


def holder_of(path: Path) -> Holder:
    """Return the holder of a lock file."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return Holder(int(holder["pid"]), str(holder["host"]), str(holder["since"]), str(holder["command"]))
    except (OSError, ValueError, LookupError, TypeError):  # it has not been written yet
        return Holder(0, "", "", "")
