"""The two ways a stage stops early: `UserError` (bad input) and `Interrupted` (SIGTERM, SIGUSR1)."""

import difflib
import signal
from collections.abc import Iterable
from typing import ClassVar


class UserError(Exception):
    """Bad input: says where, what was found, what is allowed. Stages print it without traceback and exit with 1."""


class Interrupted(BaseException):
    """One of `signals` asked this process to stop. Like `KeyboardInterrupt`, it passes every `except Exception`.

    Stages print its message and exit with `code` (EX_TEMPFAIL of sysexits.h: try again). Batch systems can be asked to
    send SIGUSR1 before the time limit.
    """

    signals: ClassVar = (signal.SIGTERM, signal.SIGUSR1)
    code: ClassVar = 75


def closest(word: str, allowed: Iterable[str]) -> str | None:
    """Return the nearest spelling among `allowed`, or None if none is near."""
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return close[0] if close else None


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the nearest spelling among `allowed`, or an empty string."""
    close = closest(word, allowed)
    return "" if close is None else f" (did you mean {close!r}?)"
