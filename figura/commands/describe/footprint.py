"""Computes the memory of the networks, and what training adds: gradients, weight averages, the optimizer's state."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from figura.base.error_collector import ErrorCollector
from figura.commands.describe.activation_memory import storages
from figura.engine.build import parameter_groups
from figura.recipe.schema import Declaration, Recipe
from figura.recipe.types import OPTIMIZER, construct

OVERHEAD = 1.4
"""Resident memory has more than what PyTorch allocates, which is 0.93 to 1.11 of the count in steps of default recipes:
its peaks were 0.96 to 1.39 of an earlier count, in steps of published ones (`7a83103:bench/precision.py`)."""
CONTEXT = 2**30  # bytes that the driver and the libraries of a GPU take, about


@dataclass(frozen=True)
class Size:
    """Number of parameters and of trained parameters; bytes of all parameters, of the trained ones, and of buffers."""

    parameters: int
    trained: int
    bytes: int
    trained_bytes: int
    buffer_bytes: int


@dataclass(frozen=True)
class Footprint:
    """Bytes while training, without activations. `optimizers` is by step; None if an optimizer could not be tried.

    Gradients are those of the step with the most: they are released after each update.
    """

    weights: int
    averages: int
    gradients: int
    optimizers: dict[str, int | None]

    @property
    def total(self) -> int:
        """The sum; unknown optimizers count as 0."""
        return self.weights + self.averages + self.gradients + sum(size or 0 for size in self.optimizers.values())


def largest_batch(gpu: int, fixed: int, example: float) -> int:
    """Return the largest n with CONTEXT + OVERHEAD (`fixed` + n `example`) <= `gpu`, all in bytes; 0 if none has."""
    return max(0, int(((gpu - CONTEXT) / OVERHEAD - fixed) / example))


def size_of(network: nn.Module) -> Size:
    """Return the size of a network on any device."""
    trained = [p for p in network.parameters() if p.requires_grad]
    return Size(
        parameters=sum(p.numel() for p in network.parameters()),
        trained=sum(p.numel() for p in trained),
        bytes=_bytes(network.parameters()),
        trained_bytes=_bytes(trained),
        buffer_bytes=_bytes(network.buffers()),
    )


def footprint(recipe: Recipe, networks: Mapping[str, nn.Module]) -> Footprint:
    """Return the memory for training a recipe's networks (on any device), without activations."""
    sizes = {name: size_of(network) for name, network in networks.items()}
    parameters = sum(size.bytes for size in sizes.values())
    return Footprint(
        weights=parameters + sum(size.buffer_bytes for size in sizes.values()),
        averages=parameters if recipe.train.ema else 0,
        gradients=max(sum(sizes[n].trained_bytes for n in step.trains) for step in recipe.steps.values()),
        optimizers={name: optimizer_bytes(recipe, name, networks) for name in recipe.steps},
    )


def optimizer_bytes(recipe: Recipe, step: str, networks: Mapping[str, nn.Module]) -> int | None:
    """Return the bytes of a step's optimizer state after an update; None if the optimizer refuses a plain update.

    A parameter's state depends only on its group and shape, so one parameter of each is updated: on the meta device, or
    on the CPU if the optimizer needs values (a fused one).
    """
    entry = recipe.steps[step]
    groups = parameter_groups({name: networks[name] for name in entry.trains}, entry.groups)
    total = 0
    for group in groups if entry.groups else [{"params": groups}]:
        options = {key: value for key, value in group.items() if key != "params"}
        for (shape, dtype), count in Counter((p.shape, p.dtype) for p in group["params"]).items():
            tried = (_state_bytes(entry.optimizer, shape, dtype, options, device) for device in ("meta", "cpu"))
            size = next((size for size in tried if size is not None), None)
            if size is None:
                return None
            total += count * size
    return total


def _state_bytes(
    entry: Declaration, shape: torch.Size, dtype: torch.dtype, options: dict[str, Any], device: str
) -> int | None:
    one = nn.Parameter(torch.zeros(shape, dtype=dtype, device=device))
    one.grad = torch.zeros_like(one)
    params = [{"params": [one], **options}] if options else [one]
    try:
        optimizer = construct(
            entry.type, entry.arguments, OPTIMIZER, "optimizer", ErrorCollector(Path()), params=params
        )
        optimizer.step()
    except Exception:  # noqa: BLE001  # users' optimizers may need a closure, or values
        return None
    return sum(size for _, size in storages([optimizer.state_dict()]))


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
