"""Injectors that arrange tensors of any shape (N, ...), N the instances of a batch, and change no value."""

import torch
from torch import Tensor

from models.engine.injecting.injection import Operation
from models.engine.processes import current_share, whole_batch


class Concatenate(Operation):
    """Adds tensors joined along a dimension that they have; the other sizes are the same.

    Args:
        output: name of the result.
        inputs: names in their order.
        dim: the dimension; 1 are the channels, 0 the instances.
    """

    def __init__(self, output: str, inputs: list[str], dim: int = 1) -> None:
        super().__init__(inputs, [output])
        self.dim = dim

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [torch.cat(tensors, self.dim)]


class Stack(Operation):
    """Adds tensors of one shape (N, ...) joined along a new dimension.

    Args:
        output: name of the result, (N, inputs, ...) for dim 1.
        inputs: names in their order.
        dim: where the new dimension stands; not 0, where the instances are.
    """

    def __init__(self, output: str, inputs: list[str], dim: int = 1) -> None:
        super().__init__(inputs, [output])
        self.dim = _inner(dim)

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [torch.stack(tensors, self.dim)]


class Select(Operation):
    """Adds a part of each tensor along a dimension: one place, places in an order, or a range of places.

    Args:
        names: name read -> name added.
        dim: the dimension.
        index: one place, and the dimension goes (not for 0, the instances); or a list, and it stays. Negative: from the end.
        start: first place of a range, instead of `index`.
        stop: the place after its last.
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
    """Adds, for each instance, that of one of several tensors, picked at random with equal chances.

    Args:
        inputs: names of two or more tensors of one shape (N, ...).
        output: name of the mixture, (N, ...).
        index: name of which one it was, int64 (N,), its place among `inputs`.
    """

    def __init__(self, inputs: list[str], output: str, index: str) -> None:
        if len(inputs) < 2:
            raise ValueError(f"inputs {inputs}: two or more are needed")
        super().__init__(inputs, [output, index])

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        instances = torch.arange(len(tensors[0]), device=tensors[0].device)
        index = torch.randint(len(tensors), (len(instances),), device="cpu").to(instances.device)
        return [torch.stack(tensors)[index, instances], index]


class Roll(Operation):
    """Adds each tensor with its instances moved on: instance i becomes that of i - `by`. Makes pairs that do not match.

    Args:
        names: name read -> name added.
        by: how far; a batch of no more instances than that has pairs that match again.
    """

    def __init__(self, names: dict[str, str], by: int = 1) -> None:
        super().__init__(list(names), list(names.values()))
        if by == 0:
            raise ValueError("by 0: another number is needed")
        self.by = by

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        share = current_share()
        whole = [whole_batch(tensor).roll(self.by, 0) for tensor in tensors]
        return [tensor if share is None else tensor[share.of] for tensor in whole]


def _inner(dim: int) -> int:
    if dim == 0:
        raise ValueError("dim 0: the instances; another dimension is needed")
    return dim
