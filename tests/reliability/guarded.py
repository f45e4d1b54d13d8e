"""Limits around code of figura in this process: time, address space, files it may write, programs it may start."""

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from reliability.forked import GIB, address_space

SECONDS, WAITING, MEMORY = 5.0, 30.0, 2 * GIB
"""Seconds of processor time, seconds of the clock (other processes may be busy), bytes of address space."""
FORBIDDEN = {
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "subprocess.Popen",
    "pty.spawn",
    "socket.connect",
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Forbidden(BaseException):
    """Code did what hostile input may not bring it to: it took too long, wrote elsewhere, or started a program."""


class _Watch:
    """What audit hooks of Python tell; hooks cannot be removed, so that one is added once, and asked to be quiet."""

    folder: str | None = None
    seen: list[str]

    def __init__(self) -> None:
        self.seen = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.folder is None:
            return
        if event in FORBIDDEN:
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            self._wrote(arguments[0])
        elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate"):
            self._wrote(arguments[1] if event in ("os.rename", "os.symlink", "os.link") else arguments[0])

    def _wrote(self, path: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.path.realpath(os.fsdecode(path))
        if (
            "__pycache__" not in name
            and not name.startswith((f"{self.folder}{os.sep}", "/dev/"))
            and name != self.folder
        ):
            self.seen.append(f"wrote {name}")


_watch: list[_Watch] = []


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Run the block in `folder`; raise Forbidden if it takes longer, or writes elsewhere."""
    if not _watch:
        _watch.append(_Watch())
    watch, before, limits = _watch[0], Path.cwd(), resource.getrlimit(resource.RLIMIT_AS)

    def ring(number: int, frame: FrameType | None) -> None:
        where = "" if frame is None else f", in {frame.f_code.co_filename}:{frame.f_lineno}"
        raise Forbidden(f"no end in {SECONDS:.0f} s of work{where}" if number == signal.SIGPROF else f"waits{where}")

    clocks = {signal.SIGPROF: (signal.ITIMER_PROF, SECONDS), signal.SIGALRM: (signal.ITIMER_REAL, WAITING)}
    handlers = {one: signal.signal(one, ring) for one in clocks}
    os.chdir(folder)
    watch.seen.clear()
    watch.folder = os.path.realpath(folder)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY, limits[1]))
        for clock, seconds in clocks.values():
            signal.setitimer(clock, seconds, seconds)
        yield
    finally:
        for clock, _ in clocks.values():
            signal.setitimer(clock, 0)
        watch.folder = None
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for one, handler in handlers.items():
            signal.signal(one, handler)
        os.chdir(before)
    if watch.seen:
        raise Forbidden("; ".join(watch.seen[:3]))
