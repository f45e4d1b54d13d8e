"""`python -m stages.launch STAGE [ARGUMENT ...]`."""

import sys

from models.base.errors import UserError, printable
from stages.launch import main

if __name__ == "__main__":  # processes that a stage spawns import this page again
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"error: {printable(str(error))}")  # status 1
