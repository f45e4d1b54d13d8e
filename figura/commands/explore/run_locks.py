"""Who trains in a run folder: the process that holds its lock, as the kernel says."""

import fcntl
import os
import struct
import sys
from pathlib import Path

from figura.base.lock import NAME as LOCK
from figura.base.lock import Holder, holder_of

FLOCK = "hhqqi4x"
"""`struct flock` of Linux on 64 bits: type, whence, start, length, process."""


def locking_process(folder: Path) -> int | None:
    """Return the number of the process that holds a folder's lock, as the kernel says; None if nobody does.

    The number is 0 or below where the process is of another machine or container, and where only Linux could tell. The
    lock is looked at, not taken: a training that starts meanwhile is not refused.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if sys.platform != "linux":  # the file is removed when the training ends, unless that was killed
            return 0
        request = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, process = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    except OSError:  # this file system has no locks
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(process)


def lock_holder(folder: Path) -> Holder | None:
    """Return who holds the lock of a folder; None if nobody does."""
    return None if locking_process(folder) is None else holder_of(folder / LOCK)
