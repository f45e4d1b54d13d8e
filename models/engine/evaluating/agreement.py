"""Work that several processes do, each its own part, all to the end or none."""

from collections.abc import Iterator
from contextlib import contextmanager

from accelerate.utils import gather_object

from models.engine.errors import UserError


@contextmanager
def failing_together() -> Iterator[None]:
    """Where a process fails in the block, all others raise at its end, so that none waits for what never comes.

    Every process enters the block, and there are no collectives in it: they would wait.

    Raises:
        UserError: the one that another process raised.
        RuntimeError: another process raised something else.
    """
    try:
        yield
    except Exception as error:
        gather_object([(isinstance(error, UserError), str(error) if isinstance(error, UserError) else repr(error))])
        raise
    for process, fault in enumerate(gather_object([None])):
        if fault is not None:
            raise UserError(fault[1]) if fault[0] else RuntimeError(f"process {process} failed: {fault[1]}")
