"""How a stage ends."""

import sys
from collections.abc import Callable

from models.engine.errors import UserError


def run(main: Callable[[list[str]], None], argv: list[str] | None = None) -> int:
    """Call `main` with the command line's arguments (or `argv`) and return the exit status.

    0: done; 1: bad input, said in one message; 130: interrupted, as shells have it. Faults of the program keep their
    traceback.
    """
    try:
        main(sys.argv[1:] if argv is None else argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0
