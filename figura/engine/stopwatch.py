"""Wall-clock seconds by phase of a training iteration (`runtime.timing`)."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Accumulates seconds per phase if enabled.

    Each phase starts and ends with a GPU synchronisation, which costs time.
    """

    def __init__(self, on: bool) -> None:
        self.on = on
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to `phase`."""
        if not self.on:
            yield
            return
        start = self._now()
        yield
        self.seconds[phase] += self._now() - start

    def take(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call, and reset them."""
        seconds, self.seconds = dict(self.seconds), defaultdict(float)
        return seconds

    @staticmethod
    def _now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()
