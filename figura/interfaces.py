"""All base classes that users subclass for training: examples, losses, schedules, injectors, callbacks, listeners.

The base classes of scores and pictures of `metrics`, which training does not load, are in `report/interfaces.py`.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from figura.base.errors import UserError, nearest

if TYPE_CHECKING:
    from accelerate import Accelerator

Example = dict[str, Any]


class Records(list[dict[str, Any]]):
    """The plain dictionaries of one example, such as its annotations; a batch is a list of `Records`."""


class ExampleDataset(Dataset[Example]):
    """A finite, ordered collection of examples; the base of every `data.train` and `data.validation` entry.

    An example maps names to arrays or tensors of fixed shape (stacked to a batch, which becomes the `State`), to plain
    numbers and strings (collected in a tensor or a list), or to `Records`. `names` and `provides` list the names, so
    that a recipe can be checked before any file is opened. If examples contain more than pictures in [-1, 1] or [0, 1],
    `drawing` names the `figura.show.drawing.ExampleDrawing` subclass that draws them: `mypackage.MyDrawing`.
    """

    names: ClassVar[tuple[str, ...]]
    drawing: ClassVar[str | None] = None

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in an example of a dataset with these arguments; override it if some are optional."""
        return cls.names

    @classmethod
    def facts(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return facts of a dataset with these arguments for the rest of the recipe, as plain values by name.

        They fill in constructor arguments that a class lists in `from_data` and the recipe does not set, such as the
        joints of a skeleton or the image size. Omit facts that are unknown before the data are prepared; opening the
        dataset reports them as missing.
        """
        return {}

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} has no length")

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Return example `index`, 0 <= index < len(self). Draw random numbers only from `random`.

        The engine seeds `random` by (seed, epoch, index) in training and by (seed, index) in validation: an example
        depends neither on the number of workers nor on the examples read before.
        """
        raise TypeError(f"{type(self).__name__} gives no examples")

    def row(self, index: int) -> dict[str, int | float | str]:
        """Return searchable metadata of example `index` from tables in memory: ids, files, counts.

        Opens no file and takes a few microseconds. All rows have the same keys, except for unknown values.
        """
        return {}

    def group(self, index: int) -> Hashable:
        """Return a key, such as the size; examples with equal keys may share a batch of the validation split."""
        return None

    def __getitem__(self, index: int) -> Example:
        return self.example(index, np.random.default_rng(index))


class Loss(nn.Module):
    """The base of every `losses` entry.

    The constructor takes the entry's keyword arguments. `forward` takes keyword-only tensors, the *roles*; the entry's
    `inputs` map them to names of the state. It returns one unweighted value for each example, shape `(batch,)`, or a
    dictionary of components that add up to the loss and are logged one by one (`caf.vector` beside `caf`). A role with
    a default is optional in `inputs`. A loss holds no trainable parameters. A loss that differentiates with respect to
    its inputs (a gradient penalty) is `training_only`: evaluations compute no gradients and skip it.

    In every training precision, a loss gets float32 (or float64) and computes without autocast. Roles in
    `differentiated` are passed unconverted: the other inputs were computed from the original tensor, not from a float32
    copy.
    """

    training_only: ClassVar[bool] = False
    differentiated: ClassVar[frozenset[str]] = frozenset()

    def forward(self, **roles: Tensor) -> Tensor | Mapping[str, Tensor]:
        """Return one value for each example, shape `(batch,)`, or the components that add up to it."""
        raise TypeError(f"{type(self).__name__} computes nothing")


class Schedule:
    """A function of the step. A recipe writes arguments such as `from_` without the trailing underscore.

    Call it with the current step only: a training may begin with the state of another whose schedules had the same
    values so far (recipe/prefix.py).
    """

    def __call__(self, step: int) -> float:
        """Return the value at `step` >= 0."""
        raise TypeError(f"{type(self).__name__} gives no value")

    @property
    def knots(self) -> tuple[int, ...]:
        """The steps between which one formula holds, rising; a state is kept there for trainings that part there."""
        return ()

    @property
    def last(self) -> int:
        """The step from which the value no longer changes, or only repeats itself: the last of `knots`."""
        return max(self.knots, default=0)


def number(value: Schedule | float, step: int) -> float:
    """Return a number, or the value of a schedule at `step`."""
    return value(step) if isinstance(value, Schedule) else value


class State(Mapping[str, Any]):
    """Maps names to tensors, or to lists, tuples and dictionaries of tensors. Adding a name twice is an error."""

    def __init__(self, batch: Mapping[str, Any]) -> None:
        self._values = dict(batch)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"nothing provides {name!r}{nearest(name, self._values)}; there are {sorted(self._values)}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, name: str, value: Any) -> None:
        """Add a name; raises KeyError if it exists already."""
        if name in self._values:
            raise KeyError(f"{name!r} is there already and a name is written once")
        self._values[name] = value

    def detached(self, names: list[str]) -> "State":
        """Return a copy in which the tensors of `names` are detached; names added to the copy are not added here."""
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
    """Return the length of the first dimension, which all tensors of a batch share."""
    return next(len(value) for value in batch.values() if isinstance(value, Tensor))


def split_batch(batch: Mapping[str, Any], parts: int) -> list[tuple[dict[str, Any], float]]:
    """Cut a batch into at most `parts` pieces along the first dimension, each with its fraction of the examples."""
    size = batch_size(batch)
    return [({name: value[a:b] for name, value in batch.items()}, (b - a) / size) for a, b in cuts(size, parts)]


def cuts(size: int, parts: int) -> list[tuple[int, int]]:
    """Return (start, stop) of at most `parts` non-empty pieces of `size` examples."""
    edges = [size * part // parts for part in range(parts + 1)]
    return [(start, stop) for start, stop in pairwise(edges) if stop > start]


@dataclass(frozen=True)
class Networks:
    """The networks that injectors call: `live` are being trained, `ema` are their averages (`live` without EMA)."""

    live: Mapping[str, nn.Module]
    ema: Mapping[str, nn.Module]


class Injector:
    """The base of every `injectors` entry.

    `reads` and `adds` make it possible to check and draw a recipe without running it. What an injector remembers from
    one iteration for later ones is in its `state_dict`, and only training changes it: in evaluations, gradients are
    off.
    """

    reads: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        """Read names from `state` and add names to it; `step` counts optimizer updates, for schedules."""
        raise TypeError(f"{type(self).__name__} injects nothing")

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state to save in resume points, as `Callback.state_dict` does."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class Operation(Injector):
    """An injector that computes the tensors of `adds` from the tensors of `reads` and calls no network.

    Random numbers come from PyTorch's global generator, which the engine seeds in each iteration; all names see the
    same numbers. A result may share memory with its input.

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
            raise  # not an error of the tensors
        except (RuntimeError, IndexError, ValueError) as error:
            shapes = ", ".join(f"{n!r} {tuple(t.shape)}" for n, t in zip(self.reads, tensors, strict=True))
            raise UserError(f"{type(self).__name__} of {shapes}: {error}") from error
        for name, tensor in zip(self.adds, made, strict=True):
            state.add(name, tensor)

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        """Return a tensor for each of `adds` from those of `reads`; raise ValueError if they do not fit."""
        raise TypeError(f"{type(self).__name__} computes nothing")


def added_once(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` as a tuple; raises ValueError if one occurs twice."""
    for name in names:
        if list(names).count(name) > 1:
            raise ValueError(f"adds {name!r} twice: a name is written once")
    return tuple(names)


Row = dict[str, float | int]
"""One row of the history: `step`, and numbers by name."""


@dataclass
class StepReport:
    """Result of a step: batch mean and effective weight of each loss and component, gradient norm, learning rate.

    `grad_norm` is the norm before clipping; `grad_norms` holds one norm per network if a step trains several. A skipped
    loss (missing input or closed gate) has no entry in `raw`; if `raw` is empty, there was no update. `skipped`: no
    update because a loss or the gradient norm was not finite. `overflowed`: skipped although the losses were finite,
    because the fp16 gradient scale was too large; it was then halved.
    """

    raw: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    grad_norm: Tensor | None = None
    learning_rate: float = 0.0
    skipped: bool = False
    overflowed: bool = False
    grad_norms: dict[str, Tensor] = field(default_factory=dict)


def loss_of(name: str) -> str:
    """Return the loss that a value belongs to: `caf` for `caf` and for its component `caf.vector`."""
    return name.partition(".")[0]


class Training(Protocol):
    """The trainer's interface for callbacks and listeners.

    `iteration` counts finished iterations; training ends when it reaches `last`. `run` is the folder of the run.
    `networks` are the trained networks and their averages, `steps` the optimization steps by name (`.optimizer`,
    `.losses`), `callbacks` all callbacks by name, `loss_log` the log of all losses.
    """

    iteration: int
    last: int
    run: Path
    accelerator: "Accelerator"
    networks: Networks
    steps: Any
    callbacks: Any
    loss_log: Any


class Callback:
    """The base of every `callbacks` entry; the constructor takes its keyword arguments. Override the methods you need.

    Called on all ranks, in recipe order. Callbacks affect the result: they must not read a clock, and must draw random
    numbers only from their own generators (the global ones feed the rest of the iteration). `trainer.iteration` counts
    the iterations before the current one.
    """

    def before_iteration(self, trainer: Training) -> None:
        """Before all steps of an iteration, and before a hand-written `train_step`."""

    def before_step(self, trainer: Training, step: str) -> None:
        """Before the injectors of a step that runs in this iteration; by hand, before its update."""

    def before_update(self, trainer: Training, step: str) -> None:
        """After backward, before clipping and the optimizer; it may change the gradients of the parameters."""

    def after_update(self, trainer: Training, step: str, report: StepReport) -> None:
        """After the optimizer; `report.skipped` if there was no update because something was not finite."""

    def depends_on(self, iterations: int) -> Any:
        """Return what its effect on the first `iterations` iterations depends on, besides its code, as plain values.

        Two trainings share the state after that many iterations if this, and all else that it depends on, is equal. The
        default, None, stands for the whole recipe. With anything else, the callback may change only networks and
        optimizers that ran so far.
        """
        return None

    def on_evaluation(self, trainer: Training, row: Row) -> Mapping[str, float] | None:
        """After a validation pass; `row` is its row of the history.

        Returned scalars are added to the row as `<name of the callback>.<name>`.
        """
        return None

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state to save in resume points: tensors, numbers, texts, and lists and dictionaries of these."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class Listener:
    """Observes a training without changing it, so no stage depends on its code: `Trainer(listeners=...)`.

    Called on all ranks. The trainer restores all global random generators after each call.
    """

    def on_start(self, training: Any) -> None:
        """Before the first iteration of this process, after loading a resume point; `training` is the `Trainer`."""

    def on_iteration(self, training: Any, evaluated: bool) -> None:
        """After an iteration was logged; `evaluated` is true if a validation pass followed."""
