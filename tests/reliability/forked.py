"""Commands in forked children: how each ended, within limits of time and memory. Nothing is imported twice (Linux)."""

import os
import resource
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figura.base import exit_status as command

GIB = 1 << 30
LONGEST = 4000
"""Characters that all messages of one command may have together."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status (negative: a signal; None: no end in time), and what it printed."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def errors(self) -> list[str]:
        """The error messages, one for each line."""
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    @property
    def fault(self) -> str | None:
        """What no command may do, whatever it reads: hang, crash, end in a traceback, or without a bounded message."""
        if self.code is None:
            return f"no end in {self.seconds:.0f} s"
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        if "Traceback (most recent call last)" in self.err:
            return f"traceback: {self.err.strip().splitlines()[-1][:300]}"
        if self.code not in (0, 1):
            return f"exit status {self.code}: {self.err[-300:]}"
        said = sum(len(line) for line in self.errors)
        if self.code == 1 and not 0 < said <= LONGEST:
            return f"{len(self.errors)} error messages of {said} characters"
        return None


def run(
    main: Callable[[list[str]], Any],
    arguments: Sequence[object],
    folder: Path,
    *,
    seconds: float = 60,
    memory: int = 2 * GIB,
    prepare: Callable[[], object] = lambda: None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Ended:
    """Run a command's `main` as `python -m` would, in a child whose current folder is `folder`.

    Args:
        main: takes the arguments of the command line.
        arguments: become texts.
        folder: of the project.
        seconds: after these, the child is killed.
        memory: bytes of address space that the child may take beyond what this process has.
        prepare: called in the child, before the command.
        meanwhile: called here again and again while the child runs.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pipes = [os.pipe() for _ in range(2)]  # no limit on the size of files holds for them
    began, child = time.monotonic(), os.fork()
    if child == 0:
        _be_the_command(main, [str(one) for one in arguments], folder, memory, prepare, [write for _, write in pipes])
    said = [bytearray(), bytearray()]
    for read, write in pipes:
        os.close(write)
        os.set_blocking(read, False)
    status, ended = None, False
    while not ended:
        meanwhile()
        number, how = os.waitpid(child, os.WNOHANG)
        if number:
            status, ended = os.waitstatus_to_exitcode(how), True
        elif time.monotonic() > began + seconds:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            ended = True
        else:
            time.sleep(0.002)
        for (read, _), text in zip(pipes, said, strict=True):
            text += _waiting(read)
    for read, _ in pipes:
        os.close(read)
    return Ended(status, *(text.decode("utf-8", "replace") for text in said), time.monotonic() - began)


def _waiting(pipe: int) -> bytes:
    """Return what waits in a pipe."""
    content = b""
    try:
        while more := os.read(pipe, 1 << 16):
            content += more
    except BlockingIOError:
        pass
    return content


def _be_the_command(
    main: Callable[[list[str]], Any],
    arguments: list[str],
    folder: Path,
    memory: int,
    prepare: Callable[[], object],
    outputs: Sequence[int],
) -> None:
    status = 70
    try:
        for number, descriptor in enumerate(outputs, 1):
            os.dup2(descriptor, number)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w") for number in (1, 2))
        os.chdir(folder)
        sys.modules["__main__"] = types.ModuleType("__main__")  # which processes that this one starts would run again
        sys.path[:] = [os.path.abspath(one) if one else str(Path(command.__file__).parents[1]) for one in sys.path]
        limit = address_space() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        prepare()
        status = command.run(main, arguments)
    except SystemExit as error:  # of argparse
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001, this process ends here
        traceback.print_exc()
        status = 1
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def address_space() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
