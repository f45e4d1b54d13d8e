"""Limits around code of figura in this process: time, address space, files it may write, programs it may start."""

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from reliability.small_project import MEMORY, address_space

CLOCKS = {signal.SIGPROF: (signal.ITIMER_PROF, 5.0), signal.SIGALRM: (signal.ITIMER_REAL, 30.0)}
"""Seconds of processor time, and of the clock, as other processes may be busy."""
PROGRAMS = {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pty.spawn"}
CHANGES = {
    "os.mkdir": 0,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.truncate": 0,
    "os.rename": 1,
    "os.symlink": 1,
    "os.link": 1,
}
"""Which argument of an audit event says what is written."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
seen: list[str] = []
allowed: list[str] = []  # the folder that may be written to, while a block is guarded


class Forbidden(BaseException):
    """Code did what hostile input may not bring it to: it took too long, wrote elsewhere, or started a program."""


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if not allowed:
        return
    if event in PROGRAMS or event == "socket.connect":
        seen.append(f"{event} {arguments!r:.200}")
    elif event in CHANGES:
        _wrote(arguments[CHANGES[event]])
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
        _wrote(arguments[0])


def _wrote(path: object) -> None:
    if isinstance(path, str | bytes | os.PathLike):
        name = os.path.realpath(os.fsdecode(path))
        if "__pycache__" not in name and not f"{name}{os.sep}".startswith((f"{allowed[0]}{os.sep}", "/dev/")):
            seen.append(f"wrote {name}")


@cache
def _listen() -> None:
    sys.addaudithook(_hear)  # hooks cannot be removed


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Run the block in `folder`; raise Forbidden if it takes longer, writes elsewhere or starts a program."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Forbidden(f"no end in {CLOCKS[signal.Signals(number)][1]:.0f} s")

    _listen()
    before, limits = Path.cwd(), resource.getrlimit(resource.RLIMIT_AS)
    handlers = {one: signal.signal(one, ring) for one in CLOCKS}
    os.chdir(folder)
    seen.clear()
    allowed.append(os.path.realpath(folder))
    try:
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY, limits[1]))
        for clock, seconds in CLOCKS.values():
            signal.setitimer(clock, seconds, seconds)
        yield
    finally:
        for clock, _ in CLOCKS.values():
            signal.setitimer(clock, 0)
        allowed.clear()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for one, handler in handlers.items():
            signal.signal(one, handler)
        os.chdir(before)
    if seen:
        raise Forbidden("; ".join(seen[:3]))
