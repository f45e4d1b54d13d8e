"""The one error that people are meant to read."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input: says where, what was found, what is allowed. Stages print it without a traceback and exit with 1."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the nearest spelling among `allowed`, or an empty string."""
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
