"""`python -m stages.launch STAGE [ARGUMENT ...]`."""

import sys

from models.base.errors import UserError, printable
from stages.command import ignore_signals
from stages.launch import main

if __name__ == "__main__":  # processes that a stage spawns import this page again
    try:
        status = main(sys.argv[1:])
        ignore_signals()  # what is done stays done while Python cleans up, which takes a second
        sys.exit(status)
    except UserError as error:
        sys.exit(f"error: {printable(str(error))}")  # status 1
