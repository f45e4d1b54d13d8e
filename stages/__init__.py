"""The stages of dvc.yaml, and how they are launched."""

import signal
import sys

if sys.argv[0] == "-m" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C while `python -m stages...` imports ends it without a traceback; `exit_status.run` listens then
    signal.signal(signal.SIGINT, signal.SIG_DFL)
