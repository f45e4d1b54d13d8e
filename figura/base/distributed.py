"""Batches sharded over ranks, and blocks in which all ranks fail together.

Rank r of R has the examples r, r + R, r + 2R, ... of every batch, and of every micro-batch under accumulation. Results
must not depend on R, so code that mixes examples (a mean over the batch, batch normalisation) or draws noise uses these
functions. Outside `sharded`, and with one rank, batches are not sharded: an evaluation batch belongs to the rank that
runs it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from figura.base.errors import UserError


@dataclass(frozen=True)
class Shard:
    """One rank's part of a batch: the examples `rank`, `rank + ranks`, ..."""

    rank: int
    ranks: int

    @property
    def of(self) -> slice:
        """The indices of its examples in the global batch."""
        return slice(self.rank, None, self.ranks)


class _Sum(torch.autograd.Function):
    """The sum over ranks. Its gradient is summed over ranks too, and may be differentiated again."""

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
    """Context in which batches are sharded: all ranks run the same code on their examples, with collectives."""
    token = _SHARD.set(Shard(rank, ranks) if ranks > 1 else None)
    try:
        yield
    finally:
        _SHARD.reset(token)


def mean_over_ranks(values: Tensor) -> Tensor:
    """Return the mean of `values`, any shape, over ranks; gradients reach each of them.

    The backward of a sum over ranks sums the gradients of all ranks: each rank's loss is differentiated with respect to
    the values of every rank. A step averages gradients over ranks afterwards.
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
    zeros = torch.zeros_like(values)
    places = [values if index == shard.rank else zeros for index in range(shard.ranks)]
    return _sum(torch.stack(places, dim=1)).flatten(0, 1)


@contextmanager
def raise_on_all_ranks() -> Iterator[None]:
    """If any rank fails in the block, raise on every rank at its end, so that none waits in a later collective.

    Every rank must enter the block. It must not contain collectives: they would wait for the failed rank.

    Raises:
        UserError, OSError: raised by another rank.
        RuntimeError: another rank raised a different error.
    """
    from accelerate.utils import gather_object  # here, as losses need the other functions and `figura check` the losses

    try:
        yield
    except Exception as error:
        gather_object([_for_others(error)])
        raise
    for rank, failure in enumerate(gather_object([None])):
        if failure is not None:
            raise RuntimeError(f"rank {rank} failed: {failure}") if isinstance(failure, str) else failure


def _for_others(error: Exception) -> Exception | str:
    """Return the error for the other ranks to raise, or for a bug its text: not every error can be pickled."""
    if isinstance(error, UserError):
        return UserError(str(error))
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror, error.filename, None, error.filename2)
    return repr(error)
