"""A batch that several processes share: what is computed over the whole of it, whoever holds which instances.

Process p of P holds the instances p, p + P, p + 2P, ... of every batch, and of every part that accumulation cuts it into.
Results must not depend on P, so whatever mixes instances (a mean over the batch, batch normalisation) or draws noise asks
here. Outside `together`, and with one process, there is nothing to share: evaluation and validation batches belong to
whoever runs them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Share:
    """What one process has of a batch: the instances `process`, `process + processes`, ..."""

    process: int
    processes: int

    @property
    def of(self) -> slice:
        """Where its instances stand in the whole batch."""
        return slice(self.process, None, self.processes)


class _Sum(torch.autograd.Function):
    """The sum over processes; what comes back is summed as well, also when it is differentiated again."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        summed = values.contiguous().clone()
        dist.all_reduce(summed)
        return summed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _sum(gradient)


def _sum(values: Tensor) -> Tensor:
    summed: Tensor = _Sum.apply(values)
    return summed


_SHARE: ContextVar[Share | None] = ContextVar("share", default=None)


def current_share() -> Share | None:
    """Return this process' share where a batch is shared at the moment, else None."""
    return _SHARE.get()


@contextmanager
def together(process: int, processes: int) -> Iterator[None]:
    """Inside, batches are shared: all processes run the same code on their instances, and meet in collectives."""
    token = _SHARE.set(Share(process, processes) if processes > 1 else None)
    try:
        yield
    finally:
        _SHARE.reset(token)


def mean_over_processes(values: Tensor) -> Tensor:
    """Return the mean of `values`, any shape, of all processes; gradients reach each of them.

    A step averages gradients over processes afterwards, and the backward of a sum is the sum of what comes back: each
    process' loss is differentiated with respect to what every process gave.
    """
    share = current_share()
    if share is None:
        return values
    return _sum(values) / share.processes


def whole_batch(values: Tensor) -> Tensor:
    """Return (P n, ...) from each process' (n, ...), in the order of the batch; gradients reach each of them."""
    share = current_share()
    if share is None:
        return values
    nothing = torch.zeros_like(values)
    places = [values if place == share.process else nothing for place in range(share.processes)]
    return _sum(torch.stack(places, dim=1)).flatten(0, 1)
