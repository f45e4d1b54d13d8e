"""What stands for something else in a dry run: values for other numbers of examples or devices, networks with weights."""

from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn

from models.engine.build import build_networks
from models.recipe.schema import Recipe


class NetworksNeeded(Exception):  # noqa: N818  # a request, not an error
    """A call on the CPU wants networks there."""


class OnCPU(Mapping[str, nn.Module]):
    """Networks with weights, which are not there before somebody has asked for them."""

    def __init__(self) -> None:
        self.built: dict[str, nn.Module] = {}

    def build(self, recipe: Recipe, like: Mapping[str, nn.Module]) -> None:
        """Construct all, in the mode of those that are like them."""
        self.built = {name: network.train(like[name].training) for name, network in build_networks(recipe).items()}

    def __getitem__(self, name: str) -> nn.Module:
        if not self.built:
            raise NetworksNeeded
        return self.built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.built)

    def __len__(self) -> int:
        return len(self.built)


def resized(value: Any, old: int, new: int, device: torch.device) -> Any:
    """Return zeros for `new` examples in the form of a value for `old`; they take a gradient where the value has one.

    A first dimension that is no multiple of `old` stays. Texts, numbers and records are repeated in turn.
    """
    if isinstance(value, Tensor):
        first = [value.shape[0] // old * new] if value.ndim and value.shape[0] % old == 0 else list(value.shape[:1])
        zeros = torch.zeros([*first, *value.shape[1:]], dtype=value.dtype, device=device)
        return zeros.requires_grad_(value.requires_grad)
    if isinstance(value, Mapping):
        return {key: resized(part, old, new, device) for key, part in value.items()}
    if isinstance(value, list | tuple) and value and isinstance(value[0], Tensor | Mapping):
        return [resized(part, old, new, device) for part in value]
    return list(islice(cycle(value), new)) if isinstance(value, list | tuple) else value


def shape_lines(value: Any) -> Iterator[str]:
    """Yield a line for each tensor of a value: `8 × 3 × 64 × 64`, `s7: 4 × 32 × 1 × 1`; what else it is for others."""
    if isinstance(value, Tensor):
        yield "×".join(map(str, value.shape)) or "a number"
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from (f"{key}: {line}" for line in shape_lines(part))
    elif isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
        for place, part in enumerate(value):
            yield from (f"{place}: {line}" for line in shape_lines(part))
    elif isinstance(value, list | tuple):
        yield "texts" if value and isinstance(value[0], str) else "records"
    else:
        yield "nothing" if value is None else type(value).__name__


def linked(value: Any, sources: list[Tensor]) -> Any:
    """Let a gradient into `value` reach `sources`, as it does through the call that `value` stands for."""
    if isinstance(value, Mapping):
        return {key: linked(part, sources) for key, part in value.items()}
    if isinstance(value, list):
        return [linked(part, sources) for part in value]
    if isinstance(value, Tensor) and value.requires_grad and sources:
        return value.detach() + sum(source.sum() for source in sources)
    return value
