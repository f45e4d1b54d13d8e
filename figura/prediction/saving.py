"""One-line errors for predictions that cannot be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from figura.base.errors import UserError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise UserError if the block cannot write, for example if a file is in place of a folder."""
    try:
        yield
    except OSError as error:
        in_the_way = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = "a file is where a folder must be" if in_the_way else error.strerror or error
        raise UserError(f"{error.filename or path}: cannot be written: {reason}") from None
