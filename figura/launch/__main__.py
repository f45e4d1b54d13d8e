"""`python -m figura.launch STAGE [ARGUMENT ...]`."""

import sys

from figura.base.errors import UserError, printable
from figura.base.exit_status import ignore_signals
from figura.launch import main

if __name__ == "__main__":  # spawned processes import this module again
    try:
        status = main(sys.argv[1:])
        ignore_signals()  # the result is final; Python's clean-up takes a second
        sys.exit(status)
    except UserError as error:
        sys.exit(f"error: {printable(str(error))}")  # status 1
