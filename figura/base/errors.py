"""The two ways a stage stops early: `UserError` (bad input) and `Interrupted` (SIGTERM, SIGUSR1)."""

import difflib
import re
import signal
from collections.abc import Iterable
from typing import ClassVar, TypeVar

T = TypeVar("T")

LENGTH = 1000
"""Maximum characters of a printed line: its end, which has the advice, and as much of its beginning as fits."""
LINES = 50
DISTRIBUTION = "figura-dvc"  # on PyPI, where `figura` is another project's
REPRO, CHECKOUT, PULL, ADD, EXPERIMENT = "dvc repro", "dvc checkout", "dvc pull", "dvc add", "dvc exp run"
"""Commands that messages tell to run: to make, restore, fetch or add data, and to try a setting."""
EXTRA = ("dvc", "dvclive", "jinja2", "matplotlib", "pandas", "pycocotools", "ruamel", "torchmetrics")
"""Modules of the extra `train`."""
WORD = 100  # characters of a word that has a nearest spelling


class UserError(Exception):
    """Bad input: where, what was found, what is allowed. Stages print it without traceback and exit with 1."""


class Interrupted(BaseException):
    """One of `signals` asked this process to stop. Like `KeyboardInterrupt`, it is not caught by `except Exception`.

    Stages print its message and exit with `code` (EX_TEMPFAIL of sysexits.h: try again). Batch systems can be asked to
    send SIGUSR1 before the time limit.
    """

    signals: ClassVar = (signal.SIGTERM, signal.SIGUSR1)
    code: ClassVar = 75


def after_signal(error: BaseException) -> bool:
    """Whether an error was raised while a signal's exception propagated, perhaps in an import."""
    before = error.__cause__ or error.__context__
    return before is not None and (isinstance(before, (Interrupted, KeyboardInterrupt)) or after_signal(before))


def printable(message: str) -> str:
    r"""Return a message as it may be printed, whatever it quotes: at most `LINES` lines of about `LENGTH` characters.

    Terminal control characters (colours, tabs, writing directions) and invalid UTF-8 are escaped, such as `\x1b`.
    """
    lines = message.split("\n")
    more = [f"and {len(lines) - LINES:,} lines more"] if len(lines) > LINES else []
    return "\n".join([*map(one_line, lines[:LINES]), *more])


def one_line(text: str) -> str:
    r"""Like `printable`, but in one line: `\n` is escaped, too."""
    if len(text) > LENGTH:
        end = LENGTH // 4
        text = f"{text[: LENGTH - end]} [{len(text) - LENGTH:,} characters] {text[-end:]}"
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def install(package: str) -> str:
    """Return the command that installs a package beside the PyTorch that is here: another one makes trainings stale."""
    from importlib.metadata import version  # 20 ms

    return f"`pip install {package} torch=={version('torch').partition('+')[0]}`"


def memory_asked(error: BaseException) -> str | None:
    """Return an out-of-memory message, with the requested size if known; None for other errors."""
    text = str(error)
    if not isinstance(error, MemoryError) and not (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(text)):
        return None
    asked = re.search(r"(?:tried to|unable to) allocate ([\d.,]+ ?\w+)|with (sizes=\[[^]]*)", text, re.IGNORECASE)
    return "more memory is needed than there is" + (f": {asked[1] or f'{asked[2]}]'} were asked for" if asked else "")


OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory|Storage size calculation overflowed")


def need(name: str, value: T | None) -> T:
    """Return the value of an argument; raises ValueError if neither the recipe nor its training data have it."""
    if value is None:
        raise missing(name)
    return value


def missing(name: str) -> ValueError:
    """Return the error about an argument missing in both the recipe and its training data."""
    return ValueError(f"{name}: missing, and the training data tell none, or several; write it")


def closest(word: str, allowed: Iterable[str]) -> str | None:
    """Return the nearest spelling among `allowed`, or None if none is close."""
    if len(word) > WORD:
        return None
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return close[0] if close else None


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the nearest spelling among `allowed`, or an empty string."""
    close = closest(word, allowed)
    return "" if close is None else f" (did you mean {close!r}?)"
