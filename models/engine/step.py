"""STEP"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.amp import GradScaler

from models.base.errors import UserError, nearest
from models.engine.precision import adapt, in_float32, unscaled, without_autocast
from models.interfaces import Injector, Loss, Networks, Schedule, State, StepReport, loss_of
from models.recipe.gates import ALWAYS, Gate


class Stopwatch:
    """Adds up seconds by phase when switched on; waits for the GPU at each end, so leave it off for speed."""

    def __init__(self, on: bool) -> None:
        self.on = on
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to `phase`."""
        if not self.on:
            yield
            return
        start = self._now()
        yield
        self.seconds[phase] += self._now() - start

    def take(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call and begin anew."""
        seconds, self.seconds = dict(self.seconds), defaultdict(float)
        return seconds

    @staticmethod
    def _now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()


def norms_of(parameters: Mapping[str, Sequence[nn.Parameter]]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the 2-norm of the gradient of all parameters, and that of each network that has one.

    That of several networks is the norm of their norms: each gradient is read once.
    """
    gradients = {name: [p.grad for p in own if p.grad is not None] for name, own in parameters.items()}
    norms = {name: torch.nn.utils.get_total_norm(found) for name, found in gradients.items() if found}
    every = list(norms.values())
    if not every:
        return torch.zeros((), device=next(p.device for own in parameters.values() for p in own)), norms
    return every[0] if len(every) == 1 else torch.nn.utils.get_total_norm(every), norms


def clip(parameters: Sequence[nn.Parameter], norm: Tensor, value: float | None, largest: float | None) -> None:
    """Clip each element to +-`value`, then the 2-norm of the whole gradient, which is `norm` so far, to `largest`."""
    if value is not None:
        torch.nn.utils.clip_grad_value_(parameters, value)
    if largest is not None:
        if value is not None:
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)


def average(parameters: Sequence[nn.Parameter], accelerator: Accelerator) -> None:
    """Replace each gradient by its mean over the processes, once all parts of a batch have been through.

    Gates and mixtures of datasets may leave parameters out: where one process has no gradient it counts as zero, and
    what no process has a gradient for keeps none, because momentum and weight decay would move it. Steps may go back
    through forwards of earlier steps, in parts. `DistributedDataParallel` allows neither: it waits for the gradients of all
    parameters after each forward. What that costs is in docs/scaling.md.
    """
    kinds: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault(parameter.dtype, []).append(parameter)
    for dtype, chosen in kinds.items():
        reached = torch.tensor([parameter.grad is not None for parameter in chosen], dtype=dtype)
        parts = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in chosen]
        sizes = [*map(len, parts), len(chosen)]
        *means, shares = accelerator.reduce(torch.cat([*parts, reached.to(parts[0].device)]), "mean").split(sizes)
        for parameter, mean, share in zip(chosen, means, shares.tolist(), strict=True):
            parameter.grad = mean.view_as(parameter) if share else None


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
    gate: Gate = ALWAYS

    def effective_weight(self, step: int) -> float:
        """Return `weight` x schedule(step)."""
        return self.weight * self.schedule(step)

    def applies(self, state: Mapping[str, Any], iteration: int, training: bool) -> bool:
        """Whether it is computed: its gate is open, the batch has all it reads, and this is a pass that it is for."""
        turn = self.gate.open(iteration) if training else self.gate.within(iteration) and not self.loss.training_only
        return turn and all(name in state for name in self.partial)

    def values(self, name: str, state: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the raw value of each instance, shape (batch,), under `name`; components under `name.component`.

        Autocast or not, it is computed from float32 in float32, by networks inside of the loss as well (a perceptual one).
        """
        given = {role: state[key] for role, key in self.inputs.items()}
        with without_autocast(given):
            kept = self.loss.differentiated
            found = self.loss(**{role: one if role in kept else in_float32(one) for role, one in given.items()})
        parts = {f"{name}.{part}": value for part, value in found.items()} if isinstance(found, Mapping) else {}
        total = torch.stack(list(parts.values())).sum(dim=0) if parts else found
        for value in (total, *parts.values()):
            if value.ndim != 1:
                raise ValueError(f"{type(self.loss).__name__} gave shape {tuple(value.shape)}, a loss gives (batch,)")
        return {name: total, **parts}


@dataclass(frozen=True)
class PlacedInjector:
    """An injector and when it runs; see `schema.InjectorEntry`."""

    injector: Injector
    gate: Gate = ALWAYS
    only: Literal["training", "evaluation"] | None = None

    def runs(self, iteration: int, training: bool) -> bool:
        """Whether it adds its names in this pass."""
        if training:
            return self.only != "evaluation" and self.gate.open(iteration)
        return self.only != "training" and self.gate.within(iteration)


class Step:
    """Trains some networks by some losses with one optimizer. Losses of weight 0 are not computed.

    A scheduled weight that happens to be 0 is computed and keeps its graph, so that the set of parameters with a
    gradient does not change in the middle of a run. `rate_scale` multiplies all learning rates. `scaler` scales the
    gradients of this step and of no other, so that one that overflows holds up no other step.
    """

    def __init__(
        self,
        *,
        trains: dict[str, nn.Module],
        injectors: Sequence[PlacedInjector],
        losses: dict[str, WeightedLoss],
        optimizer: torch.optim.Optimizer,
        lr_schedule: Schedule,
        clip: float | None,
        clip_value: float | None = None,
        detach: Sequence[str],
        gate: Gate,
        requires: Sequence[str] = (),
        scaler: GradScaler | None = None,
    ) -> None:
        self.trains, self.injectors, self.optimizer, self.scaler = trains, injectors, optimizer, scaler
        self.gate, self.requires, self.rate_scale = gate, list(requires), 1.0
        self.declared = list(losses)
        self.losses = {name: loss for name, loss in losses.items() if loss.weight != 0}
        self.lr_schedule, self.clip, self.clip_value, self.detach = lr_schedule, clip, clip_value, list(detach)
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.own = {name: [p for p in network.parameters() if p.requires_grad] for name, network in trains.items()}
        self.parameters = [parameter for own in self.own.values() for parameter in own]

    def runs(self, state: Mapping[str, Any], iteration: int, training: bool) -> bool:
        """Whether its gate is open and the state has what it requires."""
        turn = self.gate.open(iteration) if training else self.gate.within(iteration)
        return turn and all(name in state for name in self.requires)

    def observe(self, state: State, networks: Networks, iteration: int, training: bool = False) -> dict[str, Tensor]:
        """Run the injectors and return the raw losses of each instance; nothing is updated."""
        view = state.detached(self.detach) if self.detach else state
        for placed in self.injectors:
            if placed.runs(iteration, training):
                placed.injector(view, networks, iteration)
        if view is not state:
            for name in view.keys() - state.keys():
                state.add(name, view[name])
        values: dict[str, Tensor] = {}
        for name, loss in self.losses.items():
            if loss.applies(view, iteration, training):
                values |= loss.values(name, view)
        return values

    def update(
        self, states: Sequence[tuple[State, float]], networks: Networks, iteration: int,
        accelerator: Accelerator, stopwatch: Stopwatch, before_update: Callable[[], object] | None = None,
    ) -> StepReport:  # fmt: skip
        """Take one optimizer step on a batch that comes in parts, each with its share of the examples.

        `before_update` is called where gradients are complete. Without a loss to learn from there is no update.
        A non-finite loss or gradient norm (over all processes) leaves every weight as it was; the report says so.
        """
        report = self._report(iteration)
        for state, share in states:
            with stopwatch("forward"), accelerator.autocast():
                values = self.observe(state, networks, iteration, training=True)
            with stopwatch("backward"):
                self._backward(values, share, report)
        if report.raw:
            with stopwatch("optimizer"):
                self._step(report, iteration, accelerator, before_update)
        return report

    def optimize(
        self, values: Mapping[str, Tensor], iteration: int, accelerator: Accelerator,
        before_update: Callable[[], object] | None = None,
    ) -> StepReport:  # fmt: skip
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
        self._backward({name: values[name] for name in self.losses}, 1.0, report)
        self._step(report, iteration, accelerator, before_update)
        return report

    def _report(self, iteration: int) -> StepReport:
        return StepReport(weights={name: loss.effective_weight(iteration) for name, loss in self.losses.items()})

    def _backward(self, values: Mapping[str, Tensor], share: float, report: StepReport) -> None:
        if not values:
            return
        means = {name: in_float32(value).mean() for name, value in values.items()}
        report.weights |= {name: report.weights[loss_of(name)] for name in means}
        whole = {name: mean for name, mean in means.items() if loss_of(name) == name}
        total = sum((report.weights[name] * share * mean for name, mean in whole.items()), torch.zeros(()))
        # only into what this step trains: a discriminator that judges a generator's step gathers nothing
        (total if self.scaler is None else self.scaler.scale(total)).backward(inputs=self.parameters)
        for name, mean in means.items():
            report.raw[name] = report.raw.get(name, 0) + share * mean.detach()

    def _step(
        self, report: StepReport, iteration: int, accelerator: Accelerator, before_update: Callable[[], object] | None
    ) -> None:
        factor = self.lr_schedule(iteration)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor * self.rate_scale
        report.learning_rate = self.rates[0] * factor * self.rate_scale
        if accelerator.num_processes > 1:
            average(self.parameters, accelerator)
        scaler = self.scaler if any(p.grad is not None for p in self.parameters) else None
        with unscaled(scaler, self.optimizer):
            if before_update is not None:
                before_update()
            report.grad_norm, norms = norms_of(self.own)
            report.grad_norms = norms if len(self.own) > 1 else {}
            judged = torch.stack([report.grad_norm, *report.raw.values()])
            if accelerator.num_processes > 1:  # what is recorded, and whether to go on, is the same everywhere
                judged = accelerator.reduce(judged, "mean")
                report.raw = dict(zip(report.raw, judged[1:].unbind(), strict=True))
            finite = judged.isfinite()
            report.skipped = not bool(finite.all())
        if scaler is not None:  # before the optimizer, whose memory may run out: the scaler is ready to try again
            report.overflowed = adapt(scaler, report.skipped) and bool(finite[1:].all())
        if not report.skipped:
            clip(self.parameters, report.grad_norm, self.clip_value, self.clip)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
