"""What an iteration of a training offers: operations on batches, and fixed points at which code of users is called."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from models.engine.callbacks import Callback
from models.engine.errors import UserError
from models.engine.injecting.injectors import Networks
from models.engine.modes import evaluating
from models.engine.processes import together
from models.engine.recipes.assemble import build_steps
from models.engine.recipes.schema import Recipe
from models.engine.seeding import derive, seed_here
from models.engine.state import State, batch_size, cuts, split_batch
from models.engine.training.book import Book
from models.engine.training.building import spread, start_networks
from models.engine.training.checkpoint import digest
from models.engine.training.history import History, Row
from models.engine.training.reporting import mean_losses
from models.engine.training.resume import Restorable
from models.engine.training.shared_noise import shared_noise
from models.engine.training.steps import StepReport
from models.engine.training.stopwatch import Stopwatch


class Iteration:
    """The networks and steps of a recipe, at the iteration `iteration` (updates made before); the base of `Trainer`."""

    def __init__(self, recipe: Recipe, run: Path, accelerator: Accelerator, callbacks: Mapping[str, Callback]) -> None:
        self.recipe, self.run, self.accelerator, self.callbacks = recipe, run, accelerator, callbacks
        self.networks, self.averages = start_networks(recipe, accelerator)
        self.steps = build_steps(recipe, dict(self.networks.live), accelerator)
        self.stopwatch = Stopwatch(recipe.runtime.timing)
        tags = {loss: name for name, step in self.steps.items() for loss in step.losses}
        self.book = Book(run / "live" / "losses.csv" if accelerator.is_main_process else None, tags)
        self.iteration = 0
        self.finer = 1  # by what accumulation is multiplied (`train.find_batch_size`)

    # fixed points

    def before_step(self, step: str) -> None:
        """Called before the injectors of a step."""

    def before_update(self, step: str) -> None:
        """Called after backward, before clipping and the optimizer."""

    def after_update(self, step: str, report: StepReport) -> None:
        """Called after the optimizer, also where it skipped an update that was not finite."""

    def on_evaluation(self, row: Row) -> Mapping[str, float] | None:
        """Called after a validation pass with its row of the history; what it returns is added to the row."""
        return None

    def _tell(self, event: str, *arguments: Any) -> None:
        getattr(self, event)(*arguments)
        for callback in self.callbacks.values():
            getattr(callback, event)(self, *arguments)

    # processes

    @contextmanager
    def sharing(self, batch: Mapping[str, Any], seed: int) -> Iterator[None]:
        """Inside, this process' batch is its share of the whole one, and noise is drawn for that, from `seed`."""
        process, processes = self.accelerator.process_index, self.accelerator.num_processes
        words = ("iteration", self.iteration, 0)
        seed_here(seed, *words)
        if processes == 1:
            yield
            return
        counts = {self.recipe.parts(name) * self.finer for name in self.steps}
        sizes = {stop - start for count in counts for start, stop in cuts(batch_size(batch), count)}
        torch.manual_seed(derive(seed, *words, process))  # of draws that cannot be shared
        with together(process, processes), shared_noise(derive(seed, *words), sizes):
            yield

    def equalise_buffers(self) -> None:
        """Give all processes the running statistics of the first one, which are those that are written.

        They differ only without `train.sync_batch_norm`; each process evaluates its part of the validation split with them.
        """
        if self.accelerator.num_processes > 1 and not self.recipe.train.sync_batch_norm:
            networks = [*map(self.accelerator.unwrap_model, self.networks.live.values()), *self.networks.ema.values()]
            spread(buffer for network in networks for buffer in network.buffers())

    def refuse_divergence(self) -> None:
        """Raise UserError where processes no longer have the same weights: what was trained would not be one network."""
        if self.accelerator.num_processes == 1:
            return
        own = {name: digest(self.accelerator.unwrap_model(one)) for name, one in self.networks.live.items()}
        others: list[dict[str, str]] = gather_object([own])
        for process, theirs in enumerate(others):
            if different := [name for name in own if theirs[name] != others[0][name]]:
                raise UserError(
                    f"after iteration {self.iteration}, process {process} has other weights than process 0: network"
                    f" {', '.join(different)}; code of yours that updates weights must do the same in all processes"
                )

    # operations

    def train_op(self, batch: dict[str, Any]) -> dict[str, StepReport]:
        """Run every step whose gate is open on a batch and update; steps that cut it into as many parts share their state."""
        states: dict[int, list[tuple[State, float]]] = {}
        reports = {}
        for name, step in self.steps.items():
            count = self.recipe.parts(name) * self.finer
            if count not in states:
                states[count] = [(State(part), share) for part, share in split_batch(batch, count)]
            if step.runs(states[count][0][0], self.iteration, training=True):
                self._tell("before_step", name)
                reports[name] = step.update(
                    states[count], self.networks, self.iteration, self.accelerator, self.stopwatch,
                    partial(self._tell, "before_update", name),
                )  # fmt: skip
                if reports[name].raw:
                    self._tell("after_update", name, reports[name])
        return reports

    def optimize(self, step: str, losses: Mapping[str, Tensor]) -> StepReport:
        """Update the networks of a step on raw losses that a hand-written `train_step` computed, by their names.

        Their weights and schedules, the optimizer, its learning rate and clipping are the step's; gradients reach only
        what it trains. Raises UserError for an unknown step, an unknown loss, or a missing one.
        """
        if step not in self.steps:
            raise UserError(f"no step {step!r}; there are {', '.join(self.steps)}")
        self._tell("before_step", step)
        report = self.steps[step].optimize(
            losses, self.iteration, self.accelerator, partial(self._tell, "before_update", step)
        )
        self._tell("after_update", step, report)
        return report

    def loss_weights(self, *query: str) -> dict[str, float]:
        """Return the effective weight, now, of the losses that have one of these names or steps; without any, of all."""
        losses = {name: loss for step in self.steps.values() for name, loss in step.losses.items()}
        return {name: losses[name].effective_weight(self.iteration) for name in self.book.select(*query)}

    def log_op(self, batch: dict[str, Any]) -> tuple[State, dict[str, float]]:
        """Look at a batch without updating: the state after all steps, and the mean of each loss and their total."""
        state, values = self._observed(batch)
        return state, mean_losses(values, self.loss_weights())

    def eval_op(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return every loss of every instance of a validation batch, shape (batch,) each."""
        return self._observed(batch)[1]

    def _observed(self, batch: dict[str, Any]) -> tuple[State, dict[str, Tensor]]:
        state, values = State(batch), dict[str, Tensor]()
        with evaluating(*self.networks.live.values(), *self.networks.ema.values()):
            networks = Networks(self.networks.ema, self.networks.ema)
            for step in self.steps.values():
                if step.runs(state, self.iteration, training=False):
                    with self.accelerator.autocast():
                        values |= step.observe(state, networks, self.iteration)
        return state, values

    def update_averages(self, reports: Mapping[str, StepReport]) -> None:
        """Take the networks that were updated into their moving averages."""
        for name, report in reports.items():
            for network in self.recipe.steps[name].trains:
                if network in self.averages and not report.skipped:
                    live = self.accelerator.unwrap_model(self.networks.live[network])
                    self.averages[network].update_parameters(live)

    def restorable(self, history: History) -> Restorable:
        """Return all that changes while it trains, with the history of that."""
        unwrap = self.accelerator.unwrap_model
        return Restorable(
            networks={name: unwrap(network) for name, network in self.networks.live.items()},
            averages=self.averages,
            optimizers={name: step.optimizer for name, step in self.steps.items()},
            scalers={name: step.scaler for name, step in self.steps.items() if step.scaler is not None},
            history=history, callbacks=self.callbacks, nonfinite={},
        )  # fmt: skip
