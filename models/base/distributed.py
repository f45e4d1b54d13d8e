"""A batch that several ranks share, and work that all ranks finish or none.

Rank r of R holds the examples r, r + R, r + 2R, ... of every batch, and of every part that accumulation cuts it into.
Results must not depend on R, so whatever mixes examples (a mean over the batch, batch normalisation) or draws noise asks
here. Outside `sharded`, and with one rank, nothing is shared: evaluation batches belong to whoever runs them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import gather_object
from torch import Tensor

from models.base.errors import UserError


@dataclass(frozen=True)
class Shard:
    """What one rank has of a batch: the examples `rank`, `rank + ranks`, ..."""

    rank: int
    ranks: int

    @property
    def of(self) -> slice:
        """Where its examples stand in the whole batch."""
        return slice(self.rank, None, self.ranks)


class _Sum(torch.autograd.Function):
    """The sum over ranks; its gradient is summed over ranks too, also when it is differentiated again."""

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


_SHARD: ContextVar[Shard | None] = ContextVar("shard", default=None)


def current_shard() -> Shard | None:
    """Return this rank's shard inside `sharded`, else None."""
    return _SHARD.get()


@contextmanager
def sharded(rank: int, ranks: int) -> Iterator[None]:
    """Inside, batches are sharded: all ranks run the same code on their examples, and meet in collectives."""
    token = _SHARD.set(Shard(rank, ranks) if ranks > 1 else None)
    try:
        yield
    finally:
        _SHARD.reset(token)


def mean_over_ranks(values: Tensor) -> Tensor:
    """Return the mean of `values`, any shape, over ranks; gradients reach each of them.

    A step averages gradients over ranks afterwards, and the backward of a sum is the sum of the gradients that come back:
    each rank's loss is differentiated with respect to the values of every rank.
    """
    shard = current_shard()
    if shard is None:
        return values
    return _sum(values) / shard.ranks


def whole_batch(values: Tensor) -> Tensor:
    """Return (R n, ...) from each rank's (n, ...), in the order of the batch; gradients reach each of them."""
    shard = current_shard()
    if shard is None:
        return values
    nothing = torch.zeros_like(values)
    places = [values if place == shard.rank else nothing for place in range(shard.ranks)]
    return _sum(torch.stack(places, dim=1)).flatten(0, 1)


@contextmanager
def raise_on_all_ranks() -> Iterator[None]:
    """Raise at the end of the block on every rank if one failed in it, so that none waits in a later collective.

    Every rank enters the block. It holds no collectives: they would wait for the rank that failed.

    Raises:
        UserError: the one that another rank raised.
        RuntimeError: another rank raised something else.
    """
    try:
        yield
    except Exception as error:
        gather_object([(isinstance(error, UserError), str(error) if isinstance(error, UserError) else repr(error))])
        raise
    for rank, fault in enumerate(gather_object([None])):
        if fault is not None:
            raise UserError(fault[1]) if fault[0] else RuntimeError(f"rank {rank} failed: {fault[1]}")
