"""How a stage ends.

Environment variables: `FIGURA_INTERRUPTED` names a file that a stage makes when a signal asked it to stop, so that whoever
started it knows that there is something to go on with. Of several processes only their launcher knows whether that is why
they ended, so it keeps the variable to itself. `FIGURA_LAUNCHER` is the process without which this one may not live.
"""

import ctypes
import json
import multiprocessing
import os
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

from models.base.errors import Interrupted, UserError

MARKER = "FIGURA_INTERRUPTED"
PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def run(main: Callable[[list[str]], None], argv: list[str] | None = None) -> int:
    """Call `main` with the command line's arguments (or `argv`) and return the exit status.

    0: done; 1: bad input, said in one message; 75: asked to stop by SIGTERM or SIGUSR1, which `main` may handle itself;
    130: interrupted, as shells have it. Faults of the program keep their traceback. One of several processes does not return
    from a failure, see `_leave`.
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
        if not several:
            raise
        traceback.print_exc()
        _report(repr(error), fault=True)
        status = 1
    if several:
        _leave(status)
    return status


def live_with(launcher: str | None) -> None:
    """Make the system kill this process when its launcher (the id of the parent process) dies, however that happens."""
    if launcher is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):  # it died before
        os.kill(os.getpid(), signal.SIGKILL)


def ignore_signals() -> None:
    """Let further signals of `Interrupted` do nothing up to the end of this process: how it ends is decided.

    Python gives up its handlers long before the process is gone, but leaves what is ignored ignored; Slurm sends several
    signals, and the second would kill here what the first had ended well. Ignored by the system first: a signal that
    Python has taken but not handled yet still meets its handler, else it would complain.
    """
    system = ctypes.CDLL(None).signal
    system.argtypes, system.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    for one in Interrupted.signals:
        system(one, int(signal.SIG_IGN))
    for one in Interrupted.signals:
        signal.signal(one, signal.SIG_IGN)


def hear_nothing(number: int, frame: FrameType | None) -> None:
    """Handle a signal that no longer matters; one that came just now may not find itself ignored, of which Python complains."""


def note_interruption(environment: Mapping[str, str]) -> None:
    """Make the file that `FIGURA_INTERRUPTED` names, where it names one."""
    if marker := environment.get(MARKER):
        Path(marker).touch()


def _report(message: str, fault: bool = False) -> None:
    """Print a message, or leave it to the launcher (stages/launch/processes.py), which hears the same from several processes.

    `fault`: it is one of the program and not bad input; the time says which of several came first.
    """
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        now = time.time()
        extra = {"timestamp": int(now), "py_callstack": ""}  # PyTorch's form
        said = {"message": message, "fault": fault, "time": now, "extraInfo": extra}
        Path(file).write_text(json.dumps({"message": said}), encoding="utf-8")
    else:
        print(f"error: {message}", file=sys.stderr)


def _leave(status: int) -> NoReturn:
    """End this process without what Python does at its end, where NCCL waits for processes that know of no failure yet."""
    for child in multiprocessing.active_children():  # they read data
        child.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Inside, the signals raise `Interrupted`; those that a launcher held back arrive now. One is enough: others are lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    heard = []

    def stop(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        for one in Interrupted.signals:
            signal.signal(one, hear_nothing)
        raise Interrupted(f"{signal.Signals(number).name}; this stage begins again at the next `dvc repro`")

    def swallowed(what: "sys.UnraisableHookArgs") -> None:
        """In a finalizer, or what a weak reference calls, Python goes on after an exception: it has to be raised again."""
        if not isinstance(what.exc_value, Interrupted):
            unraisable(what)
            return
        for one in Interrupted.signals:
            signal.signal(one, stop)
        again = threading.Timer(0.1, os.kill, [os.getpid(), heard[-1]])
        again.daemon = True
        again.start()

    unraisable, sys.unraisablehook = sys.unraisablehook, swallowed
    previous = {one: signal.signal(one, stop) for one in Interrupted.signals}
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, Interrupted.signals)
        yield
    finally:
        sys.unraisablehook = unraisable
        for one, handler in previous.items():
            if signal.getsignal(one) is stop:  # nothing was interrupted
                signal.signal(one, handler)
