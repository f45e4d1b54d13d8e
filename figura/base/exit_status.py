"""Run a stage's `main` and convert its outcome to an exit status.

Environment variables:

- `FIGURA_INTERRUPTED`: the path of a marker file. A stage creates the file when a signal stops it, so that the caller
  knows the stage can be resumed. With several processes, only the launcher knows why they ended; it creates the file
  and hides the variable from them.
- `FIGURA_LAUNCHER`: the id of the launcher. This process is killed when the launcher dies.
"""

import contextlib
import ctypes
import errno
import json
import multiprocessing
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from figura.base.errors import (
    DISTRIBUTION,
    EXTRA,
    REPRO,
    Interrupted,
    UserError,
    after_signal,
    memory_asked,
    one_line,
    printable,
)
from figura.base.files import write_text

MARKER = "FIGURA_INTERRUPTED"
PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
IN_THE_WAY = "remove or rename it, or choose another path"
ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some, and run the same command again"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY), IN_THE_WAY),
    errno.EFBIG: "the limit is that of `ulimit -f`, or of the disk",
    errno.EMFILE: "raise `ulimit -n`, or use fewer workers",
    errno.ENOMEM: "make the networks, the pictures or the batch smaller",
}
"""Advice by errno, where the system's own words do not say what to do."""
LOST_WORKER = re.compile(
    r"DataLoader worker \(pid.{,200}(?:exited unexpectedly|killed by signal: ([\w ]+))|"
    "process pool was terminated abruptly"
)
LOST_RANK = re.compile(
    r"gloo/transport/.{,200}(?:Connection (?:closed|reset) by peer|Broken pipe)|remote process exited"
)
"""Messages of PyTorch, Gloo or NCCL in the surviving processes."""
LEFT_ALONE = f"another process of this run ended, and its own lines say why; `{REPRO}` runs the stage again"


def run(main: Callable[[list[str]], None], argv: list[str] | None = None) -> int:
    """Call `main` with the command line's arguments (or `argv`) and return the exit status.

    0: done. 1: bad input or a system error (`refusal`), reported in one message. 75: stopped by SIGTERM or SIGUSR1
    (`main` may handle them itself). 130: Ctrl-C, as in shells. 141, without a message: what reads the output, such as
    `head`, ended. Bugs keep their traceback. One of several processes exits here after a failure instead of returning,
    see `_exit_without_cleanup`.
    """
    die_with_parent(os.environ.pop("FIGURA_LAUNCHER", None))
    several, signals = os.environ.get("WORLD_SIZE", "1") != "1", _Signals()
    if several:
        _lock_bars_by_thread()
    try:
        with signals:
            signals.listen()
            main(sys.argv[1:] if argv is None else argv)
            sys.stdout.flush()
            return 0
    except UserError as error:
        _report(str(error))
        status = 1
    except (Interrupted, KeyboardInterrupt) as error:
        status = interrupted(error)
    except Exception as error:
        if signals.received and after_signal(error):  # perhaps during an import
            status = interrupted(signals.exception())
        elif isinstance(error, BrokenPipeError) and _reader_left():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would flush again
            status = 128 + signal.SIGPIPE
        elif (message := refusal(error)) is not None:
            _report(message, lost=lost_rank(error))
            status = 1
        elif several:
            traceback.print_exc()
            _report(repr(error), fault=True)
            status = 1
        else:
            raise
    if several:
        _exit_without_cleanup(status)
    return status


def refusal(error: Exception) -> str | None:
    """Return one line for a system error (path, disk space, memory) or a lost process. None for a bug."""
    if isinstance(error, RuntimeError) and (lost := LOST_WORKER.search(str(error))):
        why = f" ({lost[1].strip()})" if lost[1] else ""
        return (
            f"a worker process was killed or ended unexpectedly{why}; often memory ran out (`dmesg` tells), or "
            "/dev/shm is full; run the same command again, and if it comes back, with fewer workers (`runtime.workers`)"
        )
    if lost_rank(error):
        return LEFT_ALONE
    if isinstance(error, ModuleNotFoundError) and (package := str(error.name).partition(".")[0]) in EXTRA:
        return f"{package} is not installed, and this needs it; `pip install '{DISTRIBUTION}[train]'`"
    if (asked := memory_asked(error)) is not None:
        return f"memory: {asked}; {ADVICE[errno.ENOMEM]}"
    if not isinstance(error, OSError) or error.errno is None:
        return None
    paths = dict.fromkeys(str(path) for path in (error.filename, error.filename2) if path is not None)
    told = ": ".join([*([one_line(" -> ".join(paths))] if paths else []), str(error.strerror)])
    return f"{told}; {ADVICE[error.errno]}" if error.errno in ADVICE else told


def _reader_left() -> bool:
    """Whether nobody reads the standard output any more."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def lost_rank(error: Exception) -> bool:
    """Whether an error reports the loss of another process of this run: a consequence, not the cause."""
    return isinstance(error, RuntimeError) and LOST_RANK.search(str(error)) is not None


def die_with_parent(launcher: str | None) -> None:
    """Make the kernel kill this process when its parent `launcher` (a process id) dies for any reason."""
    if launcher is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):  # the launcher died before `prctl`
        os.kill(os.getpid(), signal.SIGKILL)


def ignore_signals() -> None:
    """Ignore SIGTERM and SIGUSR1 until this process has exited; its exit status is already decided.

    Python removes its own handlers long before the process is gone, but ignored signals stay ignored. Slurm sends
    several signals; without this, the second one would kill a process that the first one had stopped cleanly. The
    system call comes first: Python may have a pending signal, and complains if the handler is gone.
    """
    system = ctypes.CDLL(None).signal
    system.argtypes, system.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    for one in Interrupted.signals:
        system(one, int(signal.SIG_IGN))
    for one in Interrupted.signals:
        signal.signal(one, signal.SIG_IGN)


def noop_handler(number: int, frame: FrameType | None) -> None:
    """No-op handler: a signal that Python received before it was ignored must still find a handler."""


def note_interruption(environment: Mapping[str, str]) -> None:
    """Create the marker file of `FIGURA_INTERRUPTED`, if that variable is set."""
    if marker := environment.get(MARKER):
        Path(marker).touch()


def interrupted(error: BaseException) -> int:
    """Report, once for all ranks, that a signal ended this process; return the exit status."""
    first = os.environ.get("RANK", "0") == "0"
    if not isinstance(error, Interrupted):
        if first:
            print("error: interrupted", file=sys.stderr)
        return 130
    ignore_signals()
    note_interruption(os.environ)
    if first:
        print(f"interrupted: {error}", file=sys.stderr)
    return Interrupted.code


def _report(message: str, fault: bool = False, lost: bool = False) -> None:
    """Print an error message, bounded, or pass it to the launcher, which prints it once for all processes.

    `fault` marks a bug, as opposed to bad input; `lost`, that another process failed. The launcher uses the time to
    find the first failure.
    """
    message = printable(message)
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        now = time.time()
        extra = {"timestamp": int(now), "py_callstack": ""}  # the layout that PyTorch expects
        content = {"message": message, "fault": fault, "lost": lost, "time": now, "extraInfo": extra}
        # Whole or absent: the launcher may end this process while it writes, and half a report is a traceback there.
        with contextlib.suppress(OSError):  # a full disk, perhaps the one that is to be reported
            write_text(Path(file), json.dumps({"message": content}))
            return
    print(f"error: {message}", file=sys.stderr)


def _lock_bars_by_thread() -> None:
    """Give tqdm a lock that needs no semaphore: Python 3.14 warns about those leaked by `_exit_without_cleanup`."""
    from tqdm import tqdm  # lazy, because help and messages do not need it

    tqdm.set_lock(threading.RLock())


def _exit_without_cleanup(status: int) -> NoReturn:
    """Exit without Python's clean-up, in which NCCL would wait for ranks that have not failed yet."""
    for child in multiprocessing.active_children():  # data loader workers
        child.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class _Signals:
    """Raises `Interrupted` inside the block at the first SIGTERM or SIGUSR1, and drops later ones; Ctrl-C as usual.

    If a signal ends the block, errors in finalizers of half-constructed objects are suppressed while exiting.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self.before: dict[int, Any] = {}
        self.again: threading.Timer | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.hook, sys.unraisablehook = sys.unraisablehook, self.unraisable
        self.before = {one: signal.signal(one, self.stop) for one in Interrupted.signals}
        if signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.default_int_handler):  # not ignored
            self.before[signal.SIGINT] = signal.signal(signal.SIGINT, self.stop)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.again is not None:
            self.again.cancel()
        if self.before and not (self.received and kind is not None):
            sys.unraisablehook = self.hook
        for one, handler in self.before.items():
            if signal.getsignal(one) == self.stop:  # `noop_handler` stays
                signal.signal(one, handler)

    def listen(self) -> None:
        """Unblock the signals that the launcher blocked before it started this stage."""
        if self.before:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, Interrupted.signals)

    def stop(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        for one in Interrupted.signals if number in Interrupted.signals else ():
            signal.signal(one, noop_handler)
        raise self.exception()

    def exception(self) -> BaseException:
        if self.received[-1] == signal.SIGINT:
            return KeyboardInterrupt()
        name = signal.Signals(self.received[-1]).name
        is_stage = not sys.argv[0].startswith("figura ")  # else a command, as `figura.command` names it
        return Interrupted(name + f"; this stage begins again at the next `{REPRO}`" * is_stage)

    def unraisable(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Resend a signal whose exception Python swallowed in a finalizer or a weak reference's callback."""
        if not self.received:
            self.hook(unraisable)
        elif isinstance(unraisable.exc_value, (Interrupted, KeyboardInterrupt)):
            if isinstance(unraisable.exc_value, Interrupted):
                for one in Interrupted.signals:
                    signal.signal(one, self.stop)
            self.again = threading.Timer(0.1, os.kill, [os.getpid(), self.received[-1]])
            self.again.daemon = True
            self.again.start()
