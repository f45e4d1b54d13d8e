"""Noise that does not depend on the number of ranks: each rank draws for the global batch and takes its shard.

While a batch is sharded, PyTorch's random functions are intercepted. Noise is per example if its first dimension is the
length of the current micro-batch or a multiple of it (real and fake in one discriminator call). It is drawn for the
examples of all ranks, from a generator with the same seed on every rank. Any other noise is drawn once, equal on every
rank. On a CPU, a single rank draws the same numbers without interception.

Not intercepted: calls with an explicit generator, and functions not in the tables below (dropout inside attention,
alpha dropout). Their noise differs between ranks.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from figura.base.distributed import Shard, current_shard

Fill = Callable[[Tensor, torch.Generator], Tensor]

FILLS = {
    Tensor.normal_, Tensor.uniform_, Tensor.exponential_, Tensor.random_, Tensor.log_normal_, Tensor.cauchy_,
    Tensor.geometric_, Tensor.bernoulli_,
}  # fmt: skip
NORMAL = {torch.randn, torch.randn_like}
UNIFORM = {torch.rand, torch.rand_like}
INTEGERS = {torch.randint, torch.randint_like}
DROPOUTS: dict[Any, int] = {
    F.dropout: -1,
    F.dropout1d: 2,
    F.dropout2d: 2,
    F.dropout3d: 2,
}  # number of mask dimensions; -1: all


class RankInvariantNoise(TorchFunctionMode):
    """Intercepts random functions; `sizes` are the lengths of this rank's micro-batches."""

    def __init__(self, seed: int, shard: Shard, sizes: Collection[int]) -> None:
        super().__init__()
        self.seed, self.shard, self.sizes = seed, shard, sorted(set(sizes), reverse=True)
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a PyTorch function, or replace its random draw."""
        options = dict(kwargs or {})
        if func in DROPOUTS:
            return self._dropout(func, args, options)
        if options.get("generator") is not None:
            return func(*args, **options)
        if func in FILLS:
            if any(isinstance(value, Tensor) for value in (*args[1:], *options.values())):
                return func(*args, **options)
            return self._fill(args[0], lambda whole, source: func(whole, *args[1:], **options | {"generator": source}))
        if func in NORMAL:
            return self._fill(func(*args, **options), lambda whole, source: whole.normal_(generator=source))
        if func in UNIFORM:
            return self._fill(func(*args, **options), lambda whole, source: whole.uniform_(generator=source))
        if func in INTEGERS:
            low, high = _bounds(func, args, options)
            return self._fill(func(*args, **options), lambda whole, source: whole.random_(low, high, generator=source))
        return func(*args, **options)

    def _fill(self, own: Tensor, fill: Fill) -> Tensor:
        """Fill `own` with this rank's shard of the numbers drawn for the global batch."""
        if own.device.type == "meta":
            return own
        source = self._generator(own.device)
        size = self._size(own)
        with torch.no_grad():
            if not size:
                return own.copy_(fill(torch.empty_like(own), source))
            blocks = len(own) // size  # of `size` examples each: several concatenated
            whole = _like(own, len(own) * self.shard.ranks)
            fill(whole, source)
            mine = whole.unflatten(0, (blocks, size * self.shard.ranks))[:, self.shard.of]
            return own.copy_(mine.flatten(0, 1))

    def _size(self, own: Tensor) -> int:
        """Return the length of each block of examples that `own` consists of; 0 if it is not a batch."""
        length = len(own) if own.ndim else 0
        if length in self.sizes:
            return length
        return next((size for size in self.sizes if size > 1 and length > 0 and length % size == 0), 0)

    def _dropout(self, func: Any, args: Sequence[Any], options: dict[str, Any]) -> Tensor:
        names = ("input", "p", "training", "inplace")
        call = {"p": 0.5, "training": True, "inplace": False} | dict(zip(names, args, strict=False)) | options
        x, p = call["input"], call["p"]
        if not call["training"] or not 0 < p < 1:
            return func(*args, **options)
        dimensions = DROPOUTS[func]
        mask = (
            torch.empty_like(x) if dimensions < 0 else x.new_empty(*x.shape[:dimensions], *[1] * (x.ndim - dimensions))
        )
        mask = self._fill(mask.detach(), lambda whole, source: whole.bernoulli_(1 - p, generator=source)).div_(1 - p)
        return x.mul_(mask) if call["inplace"] else x * mask

    def state(self) -> dict[torch.device, Tensor]:
        """Return the generator state of each device."""
        return {device: source.get_state() for device, source in self._generators.items()}

    @contextmanager
    def again_from(self, state: Mapping[torch.device, Tensor]) -> Iterator[None]:
        """Replay the noise drawn since `state`, also inside `backward`, where no mode is active."""
        now = self._generators
        self._generators = {device: _generator_at(device, one) for device, one in state.items()}
        try:
            active = any(mode is self for mode in _get_current_function_mode_stack())
            with nullcontext() if active else self:
                yield
        finally:
            self._generators = now

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self._generators[device]


_NOISE: ContextVar[RankInvariantNoise | None] = ContextVar("noise", default=None)


def current_noise() -> RankInvariantNoise | None:
    """Return this thread's active `RankInvariantNoise`, or None."""
    return _NOISE.get()


@contextmanager
def rank_invariant_noise(seed: int, sizes: Collection[int]) -> Iterator[None]:
    """Context in which all ranks draw the noise of the global batch from `seed`; no effect without sharding."""
    shard = current_shard()
    if shard is None:
        yield
        return
    with RankInvariantNoise(seed, shard, sizes) as noise:
        token = _NOISE.set(noise)
        try:
            yield
        finally:
            _NOISE.reset(token)


def _generator_at(device: torch.device, state: Tensor) -> torch.Generator:
    source = torch.Generator(device)
    source.set_state(state)
    return source


def _like(own: Tensor, length: int) -> Tensor:
    """Return an empty tensor of `length` examples in the memory layout of `own`: it determines the order of draws."""
    whole = torch.empty(length, *own.shape[1:], dtype=own.dtype, device=own.device)
    if own.ndim == 4 and not own.is_contiguous() and own.is_contiguous(memory_format=torch.channels_last):
        return whole.contiguous(memory_format=torch.channels_last)
    return whole


def _bounds(func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[int, int]:
    """Return the bounds of `randint([low,] high, size)` or `randint_like(input, [low,] high)`."""
    numbers = [value for value in (args[1:] if func is torch.randint_like else args) if isinstance(value, int)]
    numbers += [options[name] for name in ("low", "high") if name in options]
    return (0, numbers[0]) if len(numbers) == 1 else (min(numbers[:2]), max(numbers[:2]))
