"""What an injector is to the engine: it reads names of the state and adds names to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.engine.errors import UserError
from models.engine.schedules import Schedule
from models.engine.state import State


@dataclass(frozen=True)
class Networks:
    """What injectors may call: `live` networks, as they are trained, and `ema`, their averages (the same where none)."""

    live: Mapping[str, nn.Module]
    ema: Mapping[str, nn.Module]


class Injector:
    """The base of every `injectors` entry; `reads` and `adds` let a recipe be checked and drawn without running it.

    `inner` are the injectors that it runs in a scope of its own, by name.
    """

    reads: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    inner: Mapping[str, "Injector"] = {}

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        """Read names of `state`, add names to it; `step` counts optimizer updates and feeds schedules."""
        raise TypeError(f"{type(self).__name__} injects nothing")


class Operation(Injector):
    """An injector that computes tensors from tensors and calls no network: those of `reads` in, those of `adds` out.

    What it draws comes from PyTorch's global generator, which the engine seeds in each iteration, and is the same for
    all the names it is applied to. A result may share memory with what it was made from.

    Args:
        reads: names read.
        adds: names added, each once.
    """

    def __init__(self, reads: Sequence[str], adds: Sequence[str]) -> None:
        if not reads or not adds:
            raise ValueError("names: at least one is needed")
        self.reads, self.adds = tuple(reads), added_once(adds)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        tensors = [state[name] for name in self.reads]
        for name, value in zip(self.reads, tensors, strict=True):
            if not isinstance(value, Tensor):
                raise UserError(f"{type(self).__name__}: {name!r} is a {type(value).__name__}; a tensor is needed")
        try:
            made = self.compute(tensors, step)
        except torch.OutOfMemoryError:
            raise  # not a fault of the tensors; `train.find_batch_size` knows it
        except (RuntimeError, IndexError, ValueError) as error:
            shapes = ", ".join(f"{n!r} {tuple(t.shape)}" for n, t in zip(self.reads, tensors, strict=True))
            raise UserError(f"{type(self).__name__} of {shapes}: {error}") from error
        for name, tensor in zip(self.adds, made, strict=True):
            state.add(name, tensor)

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        """Return a tensor for each of `adds` from those of `reads`; raise ValueError where they do not fit."""
        raise TypeError(f"{type(self).__name__} computes nothing")


def added_once(names: Sequence[str]) -> tuple[str, ...]:
    """Return names to add; raises ValueError where one is among them twice."""
    for name in names:
        if list(names).count(name) > 1:
            raise ValueError(f"adds {name!r} twice: a name is written once")
    return tuple(names)


def number(value: Schedule | float, step: int) -> float:
    """Return a number that may follow a schedule."""
    return value(step) if isinstance(value, Schedule) else value
