"""A training that is asked to stop finishes its iteration, writes a resume point, and ends.

Several processes stop after the same iteration, though a signal may reach only one of them, and each at another moment:
before each iteration they tell each other whether one came.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from accelerate import Accelerator

from models.base.errors import Interrupted


class StopRequest:
    """Whether a training is asked to stop, and by what; nothing asks outside `by_signals`."""

    def __init__(self) -> None:
        self.listens = False
        self.asked_by: str | None = None

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Inside, each of `Interrupted.signals` asks to stop. Further ones change nothing, also not while it then ends.

        Only in the main thread.
        """
        previous = {one: signal.signal(one, self._ask) for one in Interrupted.signals}
        self.listens = True
        try:
            yield
        finally:
            self.listens = False
            # who was asked still hears, to no effect: one that came just now may not meet its handler gone
            for one, handler in previous.items() if self.asked_by is None else ():
                signal.signal(one, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked_by = self.asked_by or signal.Signals(number).name

    def agreed(self, accelerator: Accelerator) -> bool:
        """Whether any process is asked to stop. Every process has to call it, as often, and gets the same answer."""
        if not self.listens:
            return False
        if accelerator.num_processes == 1:
            return self.asked_by is not None
        asked = torch.tensor(float(self.asked_by is not None), device=accelerator.device)
        return bool(accelerator.reduce(asked, "sum").item())

    def cause(self) -> str:
        """Return who asked, for messages."""
        return self.asked_by or "another rank"


def outlive_signals() -> None:
    """Let a process that reads data end with its training, not by signals that go to all processes of a job.

    PyTorch would take its death for a fault. It still ends at once when the training's process sends SIGTERM.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, Interrupted.signals)
    training = os.getppid()

    def wait() -> None:
        while signal.sigwaitinfo(Interrupted.signals).si_pid != training:
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
