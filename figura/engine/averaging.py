"""Gradient averaging over ranks, in buckets that mostly overlap with backward.

Gates and mixtures of datasets may leave parameters unused. A gradient that only some ranks have counts as zero on the
others; if no rank has one, it stays None, because momentum and weight decay would move the parameter. A step may also
backpropagate through forwards of earlier steps, and in micro-batches. `DistributedDataParallel` supports neither: it
waits for the gradients of all parameters after each forward. docs/speed.md has the cost.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET = 25 * 2**20  # bytes of gradients reduced together, as in `DistributedDataParallel`


@dataclass
class Transfer:
    """A bucket being reduced: the flattened gradients, then a flag for each (1 if this rank has it, else 0)."""

    flat: Tensor
    complete: bool
    work: dist.Work | None


class GradientAverage:
    """Replaces each gradient of some parameters by its mean over ranks.

    Buckets are filled from the last parameter to the first, roughly the order in which backward reaches them, and are
    reduced in this order on every rank, whichever parameters its batch reached. They need a separate process group:
    synchronised batch norm also communicates during backward, and if a batch leaves parameters unused on one rank, the
    two interleave differently. Not tested with NCCL yet.

    Args:
        parameters: all on one device.
        group: all ranks; not used for anything else.
        early: reduce a bucket during the last backward pass as soon as its gradients are complete, instead of all
            afterwards.
        size: bytes of a bucket.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], group: dist.ProcessGroup, early: bool = True, size: int = BUCKET
    ) -> None:
        self.group = group
        self.buckets = buckets_of(parameters, size)
        self._transfers: list[Transfer] = []
        self._left: list[int] | None = None  # gradients each bucket still waits for in the last backward pass
        for place, bucket in enumerate(self.buckets if early else ()):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda _, place=place: self._arrived(place))

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """Context of the last backward pass before `finish`; optional."""
        self._transfers = []
        self._left = [sum(one.requires_grad for one in bucket) for bucket in self.buckets]  # frozen ones excluded
        try:
            yield
        finally:
            self._left = None

    def finish(self) -> None:
        """Reduce the remaining buckets, wait for all, and replace the gradients by their means."""
        while len(self._transfers) < len(self.buckets):
            self._send()
        transfers, self._transfers = self._transfers, []
        for bucket, transfer in zip(self.buckets, transfers, strict=True):
            if transfer.work is not None:
                transfer.work.wait()
            transfer.flat /= self.group.size()
            # if this rank has all gradients of a bucket, no GPU synchronisation is needed
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
        """Start reducing the next bucket; its gradients become views of the flat tensor."""
        bucket = self.buckets[len(self._transfers)]
        reached = torch.ones(len(bucket), dtype=bucket[0].dtype, device=bucket[0].device)
        for index, parameter in enumerate(bucket):
            if parameter.grad is None:
                reached[index] = 0
        parts = [(torch.zeros_like(one) if one.grad is None else one.grad).flatten() for one in bucket]
        complete = all(one.grad is not None for one in bucket)
        flat = torch.cat([*parts, reached])
        for parameter, part in zip(bucket, flat.split([*map(len, parts), len(bucket)]), strict=False):
            parameter.grad = part.view_as(parameter)
        self._transfers.append(Transfer(flat, complete, dist.all_reduce(flat, group=self.group, async_op=True)))


def buckets_of(parameters: Sequence[nn.Parameter], size: int = BUCKET) -> list[list[nn.Parameter]]:
    """Group parameters, last to first, into buckets of one dtype and about `size` bytes, with at least one each."""
    buckets: list[list[nn.Parameter]] = []
    room = 0
    for parameter in reversed(dict.fromkeys(parameters)):  # networks may share parameters
        if not buckets or parameter.nbytes > room or parameter.dtype != buckets[-1][0].dtype:
            buckets.append([])
            room = size
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    return buckets
