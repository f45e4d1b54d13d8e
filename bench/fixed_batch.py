"""A training without cadences and progress bar, on one fixed batch: benchmarks time its iterations."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from figura.engine.weights import to_device
from figura.recipe.schema import Recipe
from figura.training.trainer import Trainer


@dataclass(frozen=True)
class Work:
    """A training on one fixed batch; `step` runs one iteration of `trainer`."""

    trainer: Trainer
    step: Callable[[], object]

    def results(self) -> Iterable[Tensor]:
        """Return the parameters of all networks."""
        return [p for network in self.trainer.networks.live.values() for p in network.parameters()]


class Quiet:
    """Replaces the progress bar."""

    def advance(self) -> None:
        """Called after each iteration."""


def quiet(recipe: Recipe, folder: Path) -> Trainer:
    """Return a trainer whose iterations only train and record losses; it writes into `folder`."""
    trainer = Trainer(recipe, folder)
    trainer.reporter = Quiet()  # type: ignore[assignment]
    trainer._due = lambda every: False  # type: ignore[method-assign]  # cadences are not part of the step
    return trainer


def start(recipe: Recipe, folder: Path) -> Work:
    """Return a recipe's training in its last quarter, where every step runs; it writes into `folder`."""
    trainer = quiet(recipe, folder)
    trainer.iteration = trainer.last * 3 // 4
    batch = to_device(next(iter(trainer.loaders.train(0))), trainer.accelerator.device)
    return Work(trainer, lambda: trainer.iterate(batch, 1))
