"""`python -m figura COMMAND`."""

import sys

from figura.command import main

if __name__ == "__main__":
    sys.exit(main())
