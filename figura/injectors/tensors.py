"""Injectors for tensors of any shape: arithmetic, constants and noise; joining, selecting and mixing examples."""

import math
from typing import Literal

import torch
from torch import Tensor

from figura.base.distributed import current_shard, whole_batch
from figura.interfaces import Injector, Networks, Operation, Schedule, State, added_once, detach, number


class Detach(Injector):
    """Adds detached copies: no gradient flows back.

    Args:
        names: name read -> name added; a tensor, or lists, tuples and dictionaries of tensors.
        requires_grad: make the results (tensors only) leaves with gradients, such as the real images of R1.
    """

    def __init__(self, names: dict[str, str], requires_grad: bool = False) -> None:
        if not names:
            raise ValueError("names: at least one is needed")
        self.requires_grad = requires_grad
        self.reads, self.adds = tuple(names), added_once(list(names.values()))

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        for read, added in zip(self.reads, self.adds, strict=True):
            value = detach(state[read])
            state.add(added, value.requires_grad_() if self.requires_grad else value)


class _Filled(Operation):
    """A new tensor with the batch size, device and dtype of another (float32 if that is not a float type)."""

    def __init__(self, output: str, like: str, shape: tuple[int, ...] | None) -> None:
        super().__init__([like], [output])
        if shape is not None and any(size < 1 for size in shape):
            raise ValueError(f"shape {list(shape)}: sizes of 1 or more are needed")
        self.shape = shape

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        like = tensors[0]
        dtype = like.dtype if like.is_floating_point() else torch.float32
        shape = like.shape if self.shape is None else (len(like), *self.shape)
        return [self.fill(torch.empty(shape, dtype=dtype, device=like.device), step)]

    def fill(self, tensor: Tensor, step: int) -> Tensor:
        raise TypeError(f"{type(self).__name__} fills nothing")


class Constant(_Filled):
    """Adds a tensor filled with `value`.

    Args:
        output: name of the tensor.
        like: name that gives the batch size N, the device and, without `shape`, the shape.
        value: a number or a schedule.
        shape: sizes after N; `[]` gives (N,).
    """

    def __init__(self, output: str, like: str, value: Schedule | float, shape: tuple[int, ...] | None = None) -> None:
        super().__init__(output, like, shape)
        self.value = value

    def fill(self, tensor: Tensor, step: int) -> Tensor:
        return tensor.fill_(number(self.value, step))


class Noise(_Filled):
    """Adds independent random numbers: `scale` times N(0, 1) (normal) or U(-1, 1) (uniform).

    Args:
        output: name of the tensor.
        like: name that gives the batch size N, the device and, without `shape`, the shape.
        distribution: normal or uniform.
        scale: 0 or more, a number or a schedule.
        shape: sizes after N; `[]` gives (N,).
    """

    def __init__(
        self,
        output: str,
        like: str,
        distribution: Literal["normal", "uniform"] = "normal",
        scale: Schedule | float = 1.0,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(output, like, shape)
        if not isinstance(scale, Schedule) and not 0 <= scale < math.inf:
            raise ValueError(f"scale {scale}: 0 or more is needed")
        self.distribution, self.scale = distribution, scale

    def fill(self, tensor: Tensor, step: int) -> Tensor:
        drawn = tensor.normal_() if self.distribution == "normal" else tensor.uniform_(-1, 1)
        return drawn.mul_(number(self.scale, step))


class Sum(Operation):
    """Adds `constant + sum of weight x tensor`: differences, residuals, noisy images, changes of unit.

    Args:
        output: name of the sum.
        terms: name -> weight, a number or a schedule; tensors with equal numbers of dimensions, sizes of 1 broadcast.
        constant: a number or a schedule.
    """

    def __init__(self, output: str, terms: dict[str, Schedule | float], constant: Schedule | float = 0.0) -> None:
        if not terms:
            raise ValueError("terms: at least one is needed")
        super().__init__(list(terms), [output])
        self.weights, self.constant = list(terms.values()), constant

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        _equal_ndim(tensors)
        products = [number(w, step) * tensor for w, tensor in zip(self.weights, tensors, strict=True)]
        total = products[0]
        for product in products[1:]:
            total = total + product
        constant = number(self.constant, step)
        return [total + constant if constant else total]


class Multiply(Operation):
    """Adds the elementwise product of tensors, times `scale`: masks, squares (a name twice), scaled noise.

    Args:
        output: name of the product.
        factors: names of two or more tensors with equal numbers of dimensions; sizes of 1 broadcast.
        scale: a number or a schedule.
    """

    def __init__(self, output: str, factors: list[str], scale: Schedule | float = 1.0) -> None:
        if len(factors) < 2:
            raise ValueError(f"factors {factors}: two or more are needed (Sum weighs one)")
        super().__init__(factors, [output])
        self.scale = scale

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        _equal_ndim(tensors)
        product = tensors[0]
        for tensor in tensors[1:]:
            product = product * tensor
        scale = number(self.scale, step)
        return [product if scale == 1 else product * scale]


class Interpolate(Operation):
    """Adds points between `a` and `b`, `u a + (1 - u) b`, as leaves that require gradients.

    For gradient penalties, u is drawn from U(0, 1) for each example (Gulrajani et al. 2017, algorithm 1, lines 4 to 6).
    No gradient flows back to `a` and `b`; `Sum` mixes with gradients.

    Args:
        a: name of a tensor (N, ...).
        b: name of another of the same shape.
        output: name of the points, (N, ...).
        share: u, a number in [0, 1] or a schedule; default: random.
    """

    def __init__(self, a: str, b: str, output: str, share: Schedule | float | None = None) -> None:
        super().__init__([a, b], [output])
        if isinstance(share, (int, float)) and not 0 <= share <= 1:
            raise ValueError(f"share {share}: a number from 0 to 1 is needed")
        self.share = share

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        a, b = (tensor.detach() for tensor in tensors)
        if a.shape != b.shape:
            raise ValueError("equal shapes are needed")
        if self.share is None:
            drawn = torch.rand(len(a), *(1,) * (a.ndim - 1), dtype=a.dtype, device=a.device)
            return [torch.lerp(b, a, drawn).requires_grad_()]
        return [torch.lerp(b, a, number(self.share, step)).requires_grad_()]


class Clamp(Operation):
    """Adds each tensor clamped to `low` and `high`; values outside get no gradient.

    Args:
        names: name read -> name added.
        low: smallest value; default: no limit.
        high: largest value; default: no limit.
    """

    def __init__(self, names: dict[str, str], low: float | None = None, high: float | None = None) -> None:
        super().__init__(list(names), list(names.values()))
        if (low is None and high is None) or (low is not None and high is not None and low >= high):
            raise ValueError(f"low {low}, high {high}: one of them, or low < high is needed")
        self.low, self.high = low, high

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [tensor.clamp(self.low, self.high) for tensor in tensors]


def _equal_ndim(tensors: list[Tensor]) -> None:
    """Reject unequal `ndim`: broadcasting aligns the last dimensions, so it would match examples with columns."""
    if len({tensor.ndim for tensor in tensors}) > 1:
        raise ValueError("equal numbers of dimensions are needed")


class Concatenate(Operation):
    """Adds tensors concatenated along an existing dimension; all other sizes are equal.

    Args:
        output: name of the result.
        inputs: names, in this order.
        dim: the dimension; 1 is the channels, 0 the batch.
    """

    def __init__(self, output: str, inputs: list[str], dim: int = 1) -> None:
        super().__init__(inputs, [output])
        self.dim = dim

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [torch.cat(tensors, self.dim)]


class Stack(Operation):
    """Adds tensors of equal shape (N, ...) stacked along a new dimension.

    Args:
        output: name of the result, (N, inputs, ...) for dim 1.
        inputs: names, in this order.
        dim: position of the new dimension; not 0, which is the batch.
    """

    def __init__(self, output: str, inputs: list[str], dim: int = 1) -> None:
        super().__init__(inputs, [output])
        self.dim = _inner(dim)

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [torch.stack(tensors, self.dim)]


class Select(Operation):
    """Adds a part of each tensor along a dimension: one index, a list of indices, or a range.

    Args:
        names: name read -> name added.
        dim: the dimension.
        index: one index removes the dimension (not 0, the batch); a list keeps it. Negative indices count from the end.
        start: first index of a range, instead of `index`.
        stop: end of the range, exclusive.
    """

    def __init__(
        self,
        names: dict[str, str],
        dim: int,
        index: int | list[int] | None = None,
        start: int | None = None,
        stop: int | None = None,
    ) -> None:
        super().__init__(list(names), list(names.values()))
        if (index is None) == (start is None and stop is None) or index == []:
            raise ValueError(f"index {index}, start {start}, stop {stop}: write index, or start or stop or both")
        self.dim = _inner(dim) if isinstance(index, int) else dim
        self.index, self.range = index, slice(start, stop)

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [self._part(tensor) for tensor in tensors]

    def _part(self, tensor: Tensor) -> Tensor:
        if isinstance(self.index, int):
            return tensor.select(self.dim, self.index)
        if self.index is not None:
            return torch.stack([tensor.select(self.dim, place) for place in self.index], self.dim)
        start, stop, _ = self.range.indices(tensor.shape[self.dim])
        if stop <= start:
            raise ValueError(f"dimension {self.dim} has nothing from {self.range.start} to {self.range.stop}")
        return tensor.narrow(self.dim, start, stop - start)


class Choose(Operation):
    """Adds, for each example, one of several tensors, picked at random with equal probabilities.

    Args:
        inputs: names of two or more tensors of equal shape (N, ...).
        output: name of the mixture, (N, ...).
        index: name of the picked indices into `inputs`, int64 (N,).
    """

    def __init__(self, inputs: list[str], output: str, index: str) -> None:
        if len(inputs) < 2:
            raise ValueError(f"inputs {inputs}: two or more are needed")
        super().__init__(inputs, [output, index])

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        examples = torch.arange(len(tensors[0]), device=tensors[0].device)
        index = torch.randint(len(tensors), (len(examples),), device="cpu").to(examples.device)
        return [torch.stack(tensors)[index, examples], index]


class Roll(Operation):
    """Adds each tensor rolled along the batch: example i becomes example i - `by`. Creates mismatched pairs.

    Args:
        names: name read -> name added.
        by: shift; a batch size that divides it would give matching pairs.
    """

    def __init__(self, names: dict[str, str], by: int = 1) -> None:
        super().__init__(list(names), list(names.values()))
        if by == 0:
            raise ValueError("by 0: another number is needed")
        self.by = by

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        shard = current_shard()
        whole = [whole_batch(tensor).roll(self.by, 0) for tensor in tensors]
        return [tensor if shard is None else tensor[shard.of] for tensor in whole]


def _inner(dim: int) -> int:
    if dim == 0:
        raise ValueError("dim 0: the batch; another dimension is needed")
    return dim
