"""One step of an iteration: injectors, weighted losses, one backward, clipping, one update."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from models.engine.errors import UserError, nearest
from models.engine.injectors import Injector, Networks
from models.engine.losses import Loss
from models.engine.schedules import Schedule
from models.engine.state import State
from models.engine.stopwatch import Stopwatch


@dataclass(frozen=True)
class WeightedLoss:
    """A loss, the names it reads, and its weight as a function of the step.

    `partial` are those of its inputs that not every dataset of a mixture provides: without one of them it says nothing.
    """

    loss: Loss
    inputs: dict[str, str]
    weight: float
    schedule: Schedule
    partial: frozenset[str] = frozenset()

    def effective_weight(self, step: int) -> float:
        """Return `weight` x schedule(step)."""
        return self.weight * self.schedule(step)

    def applies(self, state: Mapping[str, Any]) -> bool:
        """Whether the batch has all it reads."""
        return all(name in state for name in self.partial)

    def values(self, name: str, state: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the raw value of each instance, shape (batch,), under `name`; components under `name.component`."""
        found = self.loss(**{role: state[key] for role, key in self.inputs.items()})
        parts = {f"{name}.{part}": value for part, value in found.items()} if isinstance(found, Mapping) else {}
        total = torch.stack(list(parts.values())).sum(dim=0) if parts else found
        for value in (total, *parts.values()):
            if value.ndim != 1:
                raise ValueError(f"{type(self.loss).__name__} gave shape {tuple(value.shape)}, a loss gives (batch,)")
        return {name: total, **parts}


def loss_of(name: str) -> str:
    """Return the loss that a value belongs to: `caf` for itself and for its component `caf.vector`."""
    return name.partition(".")[0]


@dataclass
class StepReport:
    """What a step did: the raw batch mean and effective weight of each loss and component, gradient norm, learning rate.

    The gradient norm is that before any clipping. A loss that the batch had nothing for is missing; a step without any did nothing.
    """

    raw: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    grad_norm: Tensor | None = None
    learning_rate: float = 0.0
    skipped: bool = False


@dataclass(frozen=True)
class Gate:
    """The iterations in which a step runs; see `schema.StepEntry`."""

    every: int = 1
    after: int = 0
    before: int | None = None

    def open(self, iteration: int) -> bool:
        """Whether the step runs in this iteration."""
        early = self.before is None or iteration < self.before
        return iteration >= self.after and early and (iteration - self.after) % self.every == 0


class Step:
    """Trains some networks by some losses with one optimizer. Losses of weight 0 are not computed.

    A scheduled weight that happens to be 0 is computed and keeps its graph, so that the set of parameters with a
    gradient does not change in the middle of a run.
    """

    def __init__(
        self,
        *,
        trains: dict[str, nn.Module],
        injectors: Sequence[Injector],
        losses: dict[str, WeightedLoss],
        optimizer: torch.optim.Optimizer,
        lr_schedule: Schedule,
        clip: float | None,
        clip_value: float | None = None,
        detach: Sequence[str],
        gate: Gate,
    ) -> None:
        self.trains, self.injectors, self.optimizer, self.gate = trains, injectors, optimizer, gate
        self.declared = list(losses)
        self.losses = {name: loss for name, loss in losses.items() if loss.weight != 0}
        self.lr_schedule, self.clip, self.clip_value, self.detach = lr_schedule, clip, clip_value, list(detach)
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.parameters = [p for network in trains.values() for p in network.parameters() if p.requires_grad]

    def observe(self, state: State, networks: Networks, iteration: int, training: bool = False) -> dict[str, Tensor]:
        """Run the injectors and return the raw losses of each instance; nothing is updated."""
        view = state.detached(self.detach) if self.detach else state
        for injector in self.injectors:
            injector(view, networks, iteration)
        if view is not state:
            for name in view.keys() - state.keys():
                state.add(name, view[name])
        values: dict[str, Tensor] = {}
        for name, loss in self.losses.items():
            if loss.applies(view) and (training or not loss.loss.training_only):
                values |= loss.values(name, view)
        return values

    def update(
        self, states: Sequence[tuple[State, float]], networks: Networks, iteration: int,
        accelerator: Accelerator, stopwatch: Stopwatch,
    ) -> StepReport:  # fmt: skip
        """Take one optimizer step on a batch that comes in parts, each with its share of the examples.

        A non-finite loss or gradient norm (over all processes) leaves every weight as it was; the report says so.
        """
        report = self._report(iteration)
        for place, (state, share) in enumerate(states):
            with self._sync(accelerator, last=place == len(states) - 1):
                with stopwatch("forward"), accelerator.autocast():
                    values = self.observe(state, networks, iteration, training=True)
                with stopwatch("backward"):
                    self._backward(values, share, report, accelerator)
        if report.raw:
            with stopwatch("optimizer"):
                self._step(report, iteration, accelerator)
        return report

    def optimize(self, values: Mapping[str, Tensor], iteration: int, accelerator: Accelerator) -> StepReport:
        """Take one optimizer step on losses that somebody else computed, raw, by name; otherwise as `update`.

        A value is a mean or one number an instance. Losses of weight 0 may be left out and are ignored.

        Raises:
            UserError: a loss that the step does not have, or one of weight other than 0 that is missing.
        """
        for name in values.keys() - self.declared:
            raise UserError(f"no loss {name!r}{nearest(name, self.declared)}; there are {', '.join(self.declared)}")
        for name in self.losses.keys() - values.keys():
            raise UserError(f"the loss {name!r} has weight {self.losses[name].weight:g} and no value was given for it")
        report = self._report(iteration)
        self._backward({name: values[name] for name in self.losses}, 1.0, report, accelerator)
        self._step(report, iteration, accelerator)
        return report

    def _report(self, iteration: int) -> StepReport:
        return StepReport(weights={name: loss.effective_weight(iteration) for name, loss in self.losses.items()})

    def _backward(
        self, values: Mapping[str, Tensor], share: float, report: StepReport, accelerator: Accelerator
    ) -> None:
        if not values:
            return
        means = {name: value.mean() for name, value in values.items()}
        report.weights |= {name: report.weights[loss_of(name)] for name in means}
        whole = {name: mean for name, mean in means.items() if loss_of(name) == name}
        total = sum((report.weights[name] * share * mean for name, mean in whole.items()), torch.zeros(()))
        # only into what this step trains: a discriminator that judges a generator's step gathers nothing
        accelerator.backward(total, inputs=self.parameters)
        for name, mean in means.items():
            report.raw[name] = report.raw.get(name, 0) + share * mean.detach()

    def _sync(self, accelerator: Accelerator, last: bool) -> AbstractContextManager[Any]:
        stack = ExitStack()
        if not last:  # gradients are averaged over processes once, with the last part
            for network in self.trains.values():
                stack.enter_context(accelerator.no_sync(network))
        return stack

    def _step(self, report: StepReport, iteration: int, accelerator: Accelerator) -> None:
        factor = self.lr_schedule(iteration)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        report.learning_rate = self.rates[0] * factor
        accelerator.unscale_gradients(self.optimizer)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        report.grad_norm = torch.nn.utils.get_total_norm(gradients, error_if_nonfinite=False)
        judged = torch.stack([report.grad_norm, *report.raw.values()])
        if accelerator.num_processes > 1:  # what is recorded, and whether to go on, is the same everywhere
            judged = accelerator.reduce(judged, "mean")
            report.raw = dict(zip(report.raw, judged[1:].unbind(), strict=True))
        report.skipped = not bool(judged.isfinite().all())
        if self.clip_value is not None and not report.skipped:
            torch.nn.utils.clip_grad_value_(self.parameters, self.clip_value)
        if self.clip is not None and not report.skipped:
            norm = report.grad_norm if self.clip_value is None else torch.nn.utils.get_total_norm(gradients)
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, norm)
        if not report.skipped or accelerator.scaler is not None:  # a gradient scaler skips by itself and must adapt
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
