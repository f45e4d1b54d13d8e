"""Stand-ins of a dry run: values resized to another number of examples or device, and lazily built networks."""

from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn

from figura.engine.build import build_networks
from figura.recipe.schema import Recipe


class NetworksNeeded(Exception):  # noqa: N818  # a request, not an error
    """A call on the CPU needs networks with weights, which are not built yet."""


class OnCPU(Mapping[str, nn.Module]):
    """Networks with weights on the CPU. Reading one before `build` raises `NetworksNeeded`."""

    def __init__(self) -> None:
        self.built: dict[str, nn.Module] = {}

    def build(self, recipe: Recipe, like: Mapping[str, nn.Module]) -> None:
        """Construct all networks, each in the training or evaluation mode of its namesake in `like`."""
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
    """Return zeros for `new` examples, shaped like a value for `old` examples; `requires_grad` is that of the value.

    A first dimension that is not a multiple of `old` stays. Strings, numbers and records are repeated in turn.
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
    """Yield a line for each tensor of a value, `8×3×64×64` or `s7: 4×32×1×1`; other values yield their kind."""
    if isinstance(value, Tensor):
        yield "×".join(map(str, value.shape)) or "a number"
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from (f"{key}: {line}" for line in shape_lines(part))
    elif isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
        for index, part in enumerate(value):
            yield from (f"{index}: {line}" for line in shape_lines(part))
    elif isinstance(value, list | tuple):
        yield "texts" if value and isinstance(value[0], str) else "records"
    else:
        yield "nothing" if value is None else type(value).__name__


def linked(value: Any, sources: list[Tensor]) -> Any:
    """Connect `value` to `sources` in the autograd graph, as the call that it replaces does."""
    if isinstance(value, Mapping):
        return {key: linked(part, sources) for key, part in value.items()}
    if isinstance(value, list):
        return [linked(part, sources) for part in value]
    if isinstance(value, Tensor) and value.requires_grad and sources:
        return value.detach() + sum(source.sum() for source in sources)
    return value
