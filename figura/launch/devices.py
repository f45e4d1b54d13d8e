"""GPUs and cores that a run has for itself, where several runs of a user share a machine.

`FIGURA_DEVICES` and `FIGURA_CORES` say how many a run wants. It takes free ones of those that it may use
(`CUDA_VISIBLE_DEVICES`, the affinity of the process), or waits for them. Each has a lock (figura/base/lock.py) in a
folder that all processes of the user on this machine share. Inside a Slurm job the folder is the job's own: jobs have
different GPUs, perhaps under the same number.
"""

import os
import random
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from figura.base.errors import REPRO, Interrupted, UserError
from figura.base.lock import LockedError, hold

DEVICES = "FIGURA_DEVICES"
CORES = "FIGURA_CORES"
SECONDS = (0.5, 1.5)  # between attempts: random, so that two runs do not meet again and again


def requested(environment: Mapping[str, str], name: str, most: int, what: str) -> int:
    """Return the number in an environment variable; 0 if it is not set or empty.

    Raises:
        UserError: it is not an integer from 1 to `most`, which is `what`.
    """
    text = environment.get(name, "")
    if text and not (text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= most):
        allowed = f"expected an integer from 1 to {most}, {what}" if most else f"{what} is 0; leave it unset"
        raise UserError(f"{name}: found {text!r}; {allowed}")
    return int(text or 0)


def visible(environment: Mapping[str, str], count: int) -> list[str]:
    """Return the names of the `count` visible GPUs, as in `CUDA_VISIBLE_DEVICES`."""
    names = environment.get("CUDA_VISIBLE_DEVICES", "") or ",".join(map(str, range(count)))
    return [name.strip() for name in names.split(",")][:count]


def take(kind: str, names: Sequence[str], count: int, held: ExitStack) -> list[str]:
    """Return `count` of the names, with their locks in `held`; print who has the others while too few are free.

    It takes all or none, so that no two runs wait for each other.

    Raises:
        Interrupted: SIGTERM or SIGUSR1, which the launcher blocks, came while it waited.
        UserError: the folder of the locks cannot be written, or is another user's.
    """
    folder, reported = _folder() if count else Path(), list[str]()
    while True:
        taken, busy = list[str](), list[str]()
        with ExitStack() as locks:
            for name in names:
                if len(taken) == count:
                    break
                try:
                    locks.enter_context(hold(folder / f"{kind}-{name}"))
                    taken.append(name)
                except LockedError as error:
                    busy.append(str(error))
            if len(taken) == count:
                held.enter_context(locks.pop_all())
                return taken
        if busy != reported:
            print(f"launch: waiting for {count} of {kind} {', '.join(names)}", *busy, sep="\n", flush=True)
        reported = busy
        time.sleep(random.SystemRandom().uniform(*SECONDS))
        if signal.sigpending() & set(Interrupted.signals):
            raise Interrupted(f"stopped while it waited; this stage begins again at the next `{REPRO}`")


def _folder() -> Path:
    folder = Path(tempfile.gettempdir(), f"figura-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None
    if folder.lstat().st_uid != os.getuid():
        raise UserError(f"{folder}: belongs to another user; set TMPDIR to a folder of yours")
    return folder / os.environ.get("SLURM_JOB_ID", "")
