"""Everything that people subclass for training, on one page: examples, losses, schedules, injectors, callbacks.

Scores and pictures of `metrics`, which training does not load, stand in `report/interfaces.py`.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import Dataset

from models.base.errors import UserError, nearest

Example = dict[str, Any]


class Records(list[dict[str, Any]]):
    """Any number of plain dictionaries that belong to one example, such as its annotations; a batch is a list of these."""


class Examples(Dataset[Example]):
    """A finite, ordered collection of examples; the base of every `data.train` and `data.validation` entry.

    An example maps names to arrays or tensors of fixed shape (they are stacked to a batch, which becomes the `State`)
    or to plain numbers and strings (collected to a tensor or a list), or to `Records`. `names` and `provides` say which,
    so that a recipe can be checked before any file is opened.
    """

    names: ClassVar[tuple[str, ...]]

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in an example of a dataset constructed with `arguments`; `names` unless some are optional."""
        return cls.names

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} has no length")

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Example `index`, 0 <= index < len(self). All its randomness comes from `random`.

        The engine seeds `random` from (seed, epoch, index) in training and from (seed, index) in validation, so an
        example depends neither on the number of workers nor on what was read before it.
        """
        raise TypeError(f"{type(self).__name__} gives no examples")

    def group(self, index: int) -> Hashable:
        """What examples must have in common to share a batch of the validation split, such as their size."""
        return None

    def __getitem__(self, index: int) -> Example:
        return self.example(index, np.random.default_rng(index))


class Loss(nn.Module):
    """The base of every `losses` entry.

    The constructor takes the entry's keyword arguments; `forward` takes keyword-only tensors, its *roles*, which the
    entry's `inputs` map to names of the state, and returns one value an instance, shape `(batch,)`, not weighted; or a
    dictionary of such, its components, whose sum it is, so that each can be followed (`caf.vector` beside `caf`).
    A role with a default may be left out of `inputs`. A loss holds no trainable parameters. One that differentiates with
    respect to its inputs (a gradient penalty) is `training_only`: evaluations, which keep no gradients, leave it out.

    Whatever the precision of a training, it gets float32 (or float64) and computes in that, without autocast. Roles among
    `differentiated` come as they are: a copy in float32 is not what the other inputs were computed from.
    """

    training_only: ClassVar[bool] = False
    differentiated: ClassVar[frozenset[str]] = frozenset()

    def forward(self, **roles: Tensor) -> Tensor | Mapping[str, Tensor]:
        """Return one value an instance, shape `(batch,)`, or the components that add up to it."""
        raise TypeError(f"{type(self).__name__} computes nothing")


class State(Mapping[str, Any]):
    """Maps names to tensors, or to lists, tuples and dictionaries of tensors. Writing a name twice is an error."""

    def __init__(self, batch: Mapping[str, Any]) -> None:
        self._values = dict(batch)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"nobody provides {name!r}{nearest(name, self._values)}; there are {sorted(self._values)}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, name: str, value: Any) -> None:
        """Add a name; raises KeyError when it is there already."""
        if name in self._values:
            raise KeyError(f"{name!r} is there already and a name is written once")
        self._values[name] = value

    def detached(self, names: list[str]) -> "State":
        """Return a view in which the tensors of `names` carry no gradient; names added to it are not added here."""
        return State({name: detach(value) if name in names else value for name, value in self._values.items()})


def detach(value: Any) -> Any:
    """Detach every tensor in a tensor, list, tuple or dictionary."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {key: detach(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(detach(part) for part in value)
    return value


def batch_size(batch: Mapping[str, Any]) -> int:
    """Return the length of the first dimension, the same for every tensor of a batch."""
    return next(len(value) for value in batch.values() if isinstance(value, Tensor))


def split_batch(batch: Mapping[str, Any], parts: int) -> list[tuple[dict[str, Any], float]]:
    """Cut a batch into at most `parts` pieces along the first dimension, each with its share of the examples."""
    size = batch_size(batch)
    return [({name: value[a:b] for name, value in batch.items()}, (b - a) / size) for a, b in cuts(size, parts)]


def cuts(size: int, parts: int) -> list[tuple[int, int]]:
    """Return first and last + 1 instance of each of at most `parts` pieces of `size` instances, none of them empty."""
    edges = [size * part // parts for part in range(parts + 1)]
    return [(start, stop) for start, stop in pairwise(edges) if stop > start]


class Schedule:
    """A function of the step. Arguments named with a trailing underscore are written without it in a recipe."""

    def __call__(self, step: int) -> float:
        """Return the value at `step` >= 0."""
        raise TypeError(f"{type(self).__name__} gives no value")

    @property
    def last(self) -> int:
        """The step from which the value no longer changes, or only repeats itself."""
        return 0


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


Row = dict[str, float | int]
"""One row of a history: `step`, and numbers by name."""


@dataclass
class StepReport:
    """What a step did: the raw batch mean and effective weight of each loss and component, gradient norm, learning rate.

    The gradient norm is that before any clipping; `grad_norms` are those of the networks where a step trains several. A
    loss that the batch had nothing for, or whose gate was closed, is missing; a step without any did nothing.
    `overflowed`: skipped though its losses are finite, because the scale of the gradients (fp16) was too large for them;
    the scale has been halved, and skipping is how it is found.
    """

    raw: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    grad_norm: Tensor | None = None
    learning_rate: float = 0.0
    skipped: bool = False
    overflowed: bool = False
    grad_norms: dict[str, Tensor] = field(default_factory=dict)


def loss_of(name: str) -> str:
    """Return the loss that a value belongs to: `caf` for itself and for its component `caf.vector`."""
    return name.partition(".")[0]


class Training(Protocol):
    """What a callback or listener sees of the trainer.

    `iteration` counts the updates made so far, `last` is the iteration that training ends at. `run` is the folder of the
    run. `networks` are the trained weights and their averages, `steps` the optimization steps by name (`.optimizer`,
    `.losses`), `loss_log` the record of every loss.
    """

    iteration: int
    last: int
    run: Path
    accelerator: Accelerator
    networks: Networks
    steps: Any
    loss_log: Any


class Callback:
    """The base of every `callbacks` entry, whose keyword arguments the constructor takes; override what you need.

    All processes call it, in the order of the recipe. What it does is part of the result: it draws random numbers only
    from generators of its own (or those that follow in the iteration change) and reads no clock. `trainer.iteration`
    counts the updates made before the one in question.
    """

    def before_step(self, trainer: Training, step: str) -> None:
        """Before the injectors of a step that runs in this iteration."""

    def before_update(self, trainer: Training, step: str) -> None:
        """After backward, before clipping and the optimizer: gradients stand in the parameters and may be changed."""

    def after_update(self, trainer: Training, step: str, report: StepReport) -> None:
        """After the optimizer; `report.skipped` says that it was left out because something was not finite."""

    def on_evaluation(self, trainer: Training, row: Row) -> Mapping[str, float] | None:
        """After a validation pass; `row` is what the history gets of it.

        Scalars that it returns are added to the row, under `<name of the callback>.<name>`.
        """
        return None

    def state_dict(self) -> Mapping[str, Any]:
        """Return what a resumed training needs: tensors, numbers, texts, and lists and dictionaries of these."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo `state_dict`."""


class Listener:
    """Watches a training and changes nothing in it, so that no stage depends on its code: `Trainer(listeners=...)`.

    All processes call it. The trainer restores all global generators of random numbers after each call.
    """

    def on_start(self, training: Any) -> None:
        """Before the first iteration of this process, after a resume point was loaded; `training` is the `Trainer`."""

    def on_iteration(self, training: Any, evaluated: bool) -> None:
        """After an iteration and its records; `evaluated` says whether a validation pass ended it."""
