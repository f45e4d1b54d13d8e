"""Graceful stop: on a signal, training finishes its iteration, writes a resume point, and ends.

All ranks stop after the same iteration, although a signal may reach only some of them at different times: before each
iteration, the ranks exchange whether one arrived.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from accelerate import Accelerator

from figura.base.errors import Interrupted


class StopRequest:
    """Whether training was asked to stop, and by which signal or rank. Signals are handled only inside `by_signals`."""

    def __init__(self) -> None:
        self.listens = False
        self.asked_by: str | None = None

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Context in which any of `Interrupted.signals` requests a stop. Further signals have no effect.

        Works in the main thread only.
        """
        previous = {one: signal.signal(one, self._ask) for one in Interrupted.signals}
        self.listens = True
        try:
            yield
        finally:
            self.listens = False
            # after a request, keep the handlers: further signals must still be caught
            for one, handler in previous.items() if self.asked_by is None else ():
                signal.signal(one, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked_by = self.asked_by or signal.Signals(number).name

    def agreed(self, accelerator: Accelerator) -> bool:
        """Whether any rank was asked to stop. Collective: all ranks must call it, and all get the same result."""
        if not self.listens:
            return False
        if accelerator.num_processes == 1:
            return self.asked_by is not None
        asked = torch.tensor(float(self.asked_by is not None), device=accelerator.device)
        if not accelerator.reduce(asked, "sum").item():
            return False
        # the launcher sends SIGTERM as soon as the first rank exits: the others keep their handlers, too
        self.asked_by = self.asked_by or "another rank"
        return True


def outlive_signals() -> None:
    """Make a data loader worker ignore the stop signals that a batch system sends to all processes of a job.

    PyTorch would report its death as an error. The worker still exits when the training process sends SIGTERM.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, Interrupted.signals)
    training = os.getppid()

    def wait() -> None:
        while signal.sigwaitinfo(Interrupted.signals).si_pid != training:
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
