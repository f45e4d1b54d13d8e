"""Gradients averaged over ranks, in buckets, most of them while backward goes on.

Gates and mixtures of datasets may leave parameters out. A gradient that only some ranks have counts as zero on the
others; where no rank has one, it stays None, because momentum and weight decay would move the parameter. A step may
also go back through forwards of earlier steps, and in parts. `DistributedDataParallel` allows neither: it waits for the
gradients of all parameters after each forward. docs/scaling.md has the cost.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET = 25 * 2**20
"""Bytes of gradients that are sent together, as in `DistributedDataParallel`."""


@dataclass
class Transfer:
    """A bucket on its way: its gradients one after another, then for each whether this rank has it, 1 or 0."""

    flat: Tensor
    complete: bool
    work: dist.Work | None


class GradientAverage:
    """Replaces each gradient of some parameters by its mean over ranks.

    Buckets are filled from the last parameter to the first, which is about the order in which backward reaches them,
    and are sent in this order on every rank, whatever its own batch reached. They have a group of processes of their
    own: batch normalisation over ranks also communicates during backward, and where a batch leaves parameters out on
    one rank, the order of the two differs. With NCCL that is not tried yet.

    Args:
        parameters: all on one device.
        group: of all ranks, for this alone.
        early: whether a bucket is sent during the last backward pass as soon as all its gradients are complete; else,
            all are sent afterwards.
        size: bytes of a bucket.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], group: dist.ProcessGroup, early: bool = True, size: int = BUCKET
    ) -> None:
        self.group = group
        self.buckets = buckets_of(parameters, size)
        self._transfers: list[Transfer] = []
        self._left: list[int] | None = None  # gradients that each bucket waits for, during the last backward pass
        for place, bucket in enumerate(self.buckets if early else ()):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda _, place=place: self._arrived(place))

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """Inside, gradients are accumulated for the last time before `finish`; there may be no such block."""
        self._transfers = []
        self._left = [sum(one.requires_grad for one in bucket) for bucket in self.buckets]  # without the frozen ones
        try:
            yield
        finally:
            self._left = None

    def finish(self) -> None:
        """Send the other buckets, wait for all, and put the means in the places of the gradients."""
        while len(self._transfers) < len(self.buckets):
            self._send()
        transfers, self._transfers = self._transfers, []
        for bucket, transfer in zip(self.buckets, transfers, strict=True):
            if transfer.work is not None:
                transfer.work.wait()
            transfer.flat /= self.group.size()
            # where this rank has all gradients of a bucket, a GPU need not be waited for
            if not transfer.complete:
                for parameter, reached in zip(bucket, transfer.flat[-len(bucket) :].tolist(), strict=True):
                    parameter.grad = parameter.grad if reached else None

    def _arrived(self, place: int) -> None:
        if self._left is None:
            return
        self._left[place] -= 1
        while len(self._transfers) < len(self.buckets) and self._left[len(self._transfers)] == 0:
            self._send()

    def _send(self) -> None:
        """Send the next bucket; its gradients become views of what is sent."""
        bucket = self.buckets[len(self._transfers)]
        reached = torch.ones(len(bucket), dtype=bucket[0].dtype, device=bucket[0].device)
        for place, parameter in enumerate(bucket):
            if parameter.grad is None:
                reached[place] = 0
        parts = [(torch.zeros_like(one) if one.grad is None else one.grad).flatten() for one in bucket]
        complete = all(one.grad is not None for one in bucket)
        flat = torch.cat([*parts, reached])
        for parameter, part in zip(bucket, flat.split([*map(len, parts), len(bucket)]), strict=False):
            parameter.grad = part.view_as(parameter)
        self._transfers.append(Transfer(flat, complete, dist.all_reduce(flat, group=self.group, async_op=True)))


def buckets_of(parameters: Sequence[nn.Parameter], size: int = BUCKET) -> list[list[nn.Parameter]]:
    """Return the parameters from last to first in lists of one dtype and about `size` bytes, one at least in each."""
    buckets: list[list[nn.Parameter]] = []
    room = 0
    for parameter in reversed(dict.fromkeys(parameters)):  # networks may share one
        if not buckets or parameter.nbytes > room or parameter.dtype != buckets[-1][0].dtype:
            buckets.append([])
            room = size
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    return buckets
