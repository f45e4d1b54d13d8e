"""Runs a stage's `main` and turns how it ends into an exit status.

Environment variables:

- `FIGURA_INTERRUPTED`: the path of a marker file. A stage creates the file when a signal stops it, so that the caller
  knows the stage can be resumed. With several processes, only the launcher knows why they ended; it creates the file
  and hides the variable from them.
- `FIGURA_LAUNCHER`: the id of the launcher. This process is killed when the launcher dies.
"""

import ctypes
import errno
import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from models.base.errors import Interrupted, UserError, memory_asked, one_line, printable

MARKER = "FIGURA_INTERRUPTED"
PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
IN_THE_WAY = "remove or rename it, or choose another path"
SPACE = "free some, and run the same command again"
ADVICE = {
    errno.EROFS: "nothing can be written there; choose another place",
    errno.EACCES: "ask its owner for the permission, or choose another path",
    errno.EPERM: "ask its owner for the permission, or choose another path",
    errno.ENOSPC: SPACE,
    errno.EDQUOT: SPACE,
    errno.EFBIG: "the limit is that of `ulimit -f`, or of the disk",
    errno.ENOTDIR: f"a file is where a folder is needed; {IN_THE_WAY}",
    errno.EEXIST: IN_THE_WAY,
    errno.EISDIR: f"a folder is where a file is needed; {IN_THE_WAY}",
    errno.ENOTEMPTY: IN_THE_WAY,
    errno.ELOOP: "it is a link that leads to itself; remove it",
    errno.ENAMETOOLONG: "choose a shorter one",
    errno.EMFILE: "raise `ulimit -n`, or use fewer workers",
    errno.ENOMEM: "make the networks, the pictures or the batch smaller",
}
"""What to do about what a system call reports."""
LOST_WORKER = re.compile(
    r"DataLoader worker \(pid.{,200}(?:exited unexpectedly|killed by signal: ([\w ]+))|"
    "process pool was terminated abruptly"
)
LOST_RANK = re.compile(
    r"gloo/transport/.{,200}(?:Connection (?:closed|reset) by peer|Broken pipe)|remote process exited"
)
"""What PyTorch, and Gloo or NCCL, tell the processes that are left."""
LEFT_ALONE = "another process of this run ended, and its own lines say why; `dvc repro` runs the stage again"


def run(main: Callable[[list[str]], None], argv: list[str] | None = None) -> int:
    """Call `main` with the command line's arguments (or `argv`) and return the exit status.

    0: done. 1: bad input, or what the machine refused (`refusal`), reported in one message. 75: stopped by SIGTERM or
    SIGUSR1 (`main` may handle them itself). 130: Ctrl-C, as in shells. Bugs keep their traceback. One of several
    processes exits here after a failure instead of returning, see `_leave`.
    """
    live_with(os.environ.pop("FIGURA_LAUNCHER", None))
    first, several = os.environ.get("RANK", "0") == "0", os.environ.get("WORLD_SIZE", "1") != "1"
    try:
        with _stopped_by_signals():
            main(sys.argv[1:] if argv is None else argv)
            return 0
    except UserError as error:
        _report(str(error))
        status = 1
    except Interrupted as error:
        ignore_signals()
        note_interruption(os.environ)
        if first:
            print(f"interrupted: {error}", file=sys.stderr)
        status = Interrupted.code
    except KeyboardInterrupt:
        if first:
            print("error: interrupted", file=sys.stderr)
        status = 130
    except Exception as error:
        if (message := refusal(error)) is not None:
            _report(message, lost=message == LEFT_ALONE)
        elif several:
            traceback.print_exc()
            _report(repr(error), fault=True)
        else:
            raise
        status = 1
    if several:
        _leave(status)
    return status


def refusal(error: Exception) -> str | None:
    """Return one line for what the machine refused (a path, space on its disk, memory) or ended. None for a bug."""
    if isinstance(error, RuntimeError) and (lost := LOST_WORKER.search(str(error))):
        why = f" ({lost[1].strip()})" if lost[1] else ""
        return (
            f"a worker process was killed or ended unexpectedly{why}; often memory ran out (`dmesg` tells), or "
            "/dev/shm is full; run the same command again, and if it comes back, with fewer workers (`runtime.workers`)"
        )
    if isinstance(error, RuntimeError) and LOST_RANK.search(str(error)):
        return LEFT_ALONE
    if (asked := memory_asked(error)) is not None:
        return f"memory: {asked}; {ADVICE[errno.ENOMEM]}"
    if not isinstance(error, OSError) or error.errno is None:
        return None
    paths = dict.fromkeys(str(path) for path in (error.filename, error.filename2) if path is not None)
    told = ": ".join([*([one_line(" -> ".join(paths))] if paths else []), str(error.strerror)])
    return f"{told}; {ADVICE[error.errno]}" if error.errno in ADVICE else told


def live_with(launcher: str | None) -> None:
    """Let the kernel kill this process when its parent `launcher` (a process id) dies for whatever reason."""
    if launcher is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):  # the launcher died before `prctl` was called
        os.kill(os.getpid(), signal.SIGKILL)


def ignore_signals() -> None:
    """Ignore SIGTERM and SIGUSR1 until this process has exited; its exit status is already decided.

    Python removes its own handlers long before the process is gone, but ignored signals stay ignored. Slurm sends
    several signals; without this, the second one would kill a process that the first one had stopped cleanly. The
    system call comes first: Python may have received a signal that it has not handled yet, and complains when the
    handler is gone by then.
    """
    system = ctypes.CDLL(None).signal
    system.argtypes, system.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    for one in Interrupted.signals:
        system(one, int(signal.SIG_IGN))
    for one in Interrupted.signals:
        signal.signal(one, signal.SIG_IGN)


def do_nothing(number: int, frame: FrameType | None) -> None:
    """No-op handler: a signal that Python received before it was ignored must still find a handler."""


def note_interruption(environment: Mapping[str, str]) -> None:
    """Create the marker file of `FIGURA_INTERRUPTED`, if that variable is set."""
    if marker := environment.get(MARKER):
        Path(marker).touch()


def _report(message: str, fault: bool = False, lost: bool = False) -> None:
    """Print an error message, bounded, or pass it to the launcher, which prints it once for all processes.

    `fault` marks a bug, as opposed to bad input; `lost`, that another process failed. The time tells the launcher which
    process failed first.
    """
    message = printable(message)
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        now = time.time()
        extra = {"timestamp": int(now), "py_callstack": ""}  # the layout that PyTorch expects
        content = {"message": message, "fault": fault, "lost": lost, "time": now, "extraInfo": extra}
        Path(file).write_text(json.dumps({"message": content}), encoding="utf-8")
    else:
        print(f"error: {message}", file=sys.stderr)


def _leave(status: int) -> NoReturn:
    """Exit without Python's clean-up, where NCCL would wait for ranks that do not know of the failure yet."""
    for child in multiprocessing.active_children():  # data loader workers
        child.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Raise `Interrupted` inside the block at the first SIGTERM or SIGUSR1; drop all later ones.

    Signals that the launcher blocked before it started this stage arrive on entry.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for one in Interrupted.signals:
            signal.signal(one, do_nothing)
        raise Interrupted(f"{signal.Signals(number).name}; this stage begins again at the next `dvc repro`")

    def resend(unraisable: "sys.UnraisableHookArgs") -> None:
        """Exceptions raised in finalizers and weak reference callbacks are swallowed by Python; re-send the signal."""
        if not isinstance(unraisable.exc_value, Interrupted):
            previous_hook(unraisable)
            return
        for one in Interrupted.signals:
            signal.signal(one, stop)
        timer = threading.Timer(0.1, os.kill, [os.getpid(), received[-1]])
        timer.daemon = True
        timer.start()

    previous_hook, sys.unraisablehook = sys.unraisablehook, resend
    previous = {one: signal.signal(one, stop) for one in Interrupted.signals}
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # of `stages/__init__.py`
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, Interrupted.signals)
        yield
    finally:
        sys.unraisablehook = previous_hook
        for one, handler in previous.items():
            if signal.getsignal(one) is stop:  # nothing was interrupted
                signal.signal(one, handler)
