"""How work ends that does not end well: the one error that people are meant to read, and being asked to stop."""

import difflib
import signal
from collections.abc import Iterable
from typing import ClassVar


class UserError(Exception):
    """Bad input: says where, what was found, what is allowed. Stages print it without a traceback and exit with 1."""


class Interrupted(BaseException):
    """One of `signals` asked this process to stop; as `KeyboardInterrupt`, no `except Exception` may hold it up.

    Stages print what it says and exit with `code` (EX_TEMPFAIL of sysexits.h: to be tried again). SIGUSR1 is what batch
    systems are asked to send before time runs out.
    """

    signals: ClassVar = (signal.SIGTERM, signal.SIGUSR1)
    code: ClassVar = 75


def nearest(word: str, allowed: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the nearest spelling among `allowed`, or an empty string."""
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
