"""One optimization step: run injectors, sum weighted losses, backward, clip, update (`Step.update`)."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.amp import GradScaler

from figura.base.errors import UserError, nearest
from figura.engine.averaging import GradientAverage
from figura.engine.precision import adapt, in_float32, without_autocast
from figura.interfaces import Injector, Loss, Networks, Schedule, State, StepReport, loss_of
from figura.recipe.gates import ALWAYS, Gate


class Stopwatch:
    """Accumulates wall-clock seconds per phase of a training iteration if enabled (`runtime.timing`).

    Each phase starts and ends with a GPU synchronisation, which costs time.
    """

    def __init__(self, on: bool) -> None:
        self.on = on
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to `phase`."""
        if not self.on:
            yield
            return
        start = _now()
        yield
        self.seconds[phase] += _now() - start

    def take(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call, and reset them."""
        seconds, self.seconds = dict(self.seconds), defaultdict(float)
        return seconds


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


@dataclass(frozen=True)
class WeightedLoss:
    """A loss, the names it reads, and its weight as a function of the step.

    `optional` holds the inputs that some batches of a mixture lack: then, the loss is skipped.
    """

    loss: Loss
    inputs: dict[str, str]
    weight: float
    schedule: Schedule
    optional: frozenset[str] = frozenset()
    gate: Gate = ALWAYS

    def effective_weight(self, step: int) -> float:
        """Return `weight` x schedule(step)."""
        return self.weight * self.schedule(step)

    def applies(self, state: Mapping[str, Any], iteration: int, training: bool) -> bool:
        """Whether the loss is computed: gate open, all inputs present, and not `training_only` in validation."""
        active = self.gate.open(iteration) if training else self.gate.within(iteration) and not self.loss.training_only
        return active and all(name in state for name in self.optional)

    def values(self, name: str, state: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the raw value of each example, shape (batch,), under `name`; components under `name.component`.

        With or without autocast, the loss gets float32 and computes in float32, networks inside it (VGG19) included.
        """
        roles = {role: state[key] for role, key in self.inputs.items()}
        with without_autocast(roles):
            as_they_are = self.loss.differentiated
            output = self.loss(**{r: one if r in as_they_are else in_float32(one) for r, one in roles.items()})
        parts = {f"{name}.{part}": value for part, value in output.items()} if isinstance(output, Mapping) else {}
        total = torch.stack(list(parts.values())).sum(dim=0) if parts else output
        for value in (total, *parts.values()):
            if value.ndim != 1:
                raise ValueError(f"{type(self.loss).__name__} gave shape {tuple(value.shape)}, a loss gives (batch,)")
        return {name: total, **parts}


@dataclass(frozen=True)
class GatedInjector:
    """An injector and when it runs; see `schema.InjectorEntry`. `optional`: as of `WeightedLoss`."""

    injector: Injector
    optional: frozenset[str] = frozenset()
    gate: Gate = ALWAYS
    only: Literal["training", "evaluation"] | None = None

    def runs(self, iteration: int, training: bool) -> bool:
        """Whether the injector runs in this pass."""
        if training:
            return self.only != "evaluation" and self.gate.open(iteration)
        return self.only != "training" and self.gate.within(iteration)


class Step:
    """Trains some networks on some losses with one optimizer. Losses of weight 0 are not computed.

    A loss whose scheduled weight happens to be 0 is still computed and keeps its graph: the set of parameters with a
    gradient stays the same throughout a run. `scaler` scales the gradients of this step only, so an overflow here does
    not affect other steps. `compiled`: whether the networks are compiled (`drop_zeros`).
    """

    def __init__(
        self, *, trains: dict[str, nn.Module], injectors: Mapping[str, GatedInjector], losses: dict[str, WeightedLoss],
        optimizer: torch.optim.Optimizer, lr_schedule: Schedule, clip: float | None, clip_value: float | None = None,
        detach: Sequence[str], gate: Gate, scaler: GradScaler | None = None, compiled: bool = False,
    ) -> None:  # fmt: skip
        self.compiled = compiled
        self.average: GradientAverage | None = None  # averages `parameters` over ranks, if there are several
        self.trains, self.injectors, self.optimizer, self.scaler = trains, injectors, optimizer, scaler
        self.gate = gate
        self.declared = list(losses)
        self.losses = {name: loss for name, loss in losses.items() if loss.weight != 0}
        self.lr_schedule, self.clip, self.clip_value, self.detach = lr_schedule, clip, clip_value, list(detach)
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.own = {name: [p for p in network.parameters() if p.requires_grad] for name, network in trains.items()}
        self.parameters = [parameter for own in self.own.values() for parameter in own]

    def runs(self, state: Mapping[str, Any], iteration: int, training: bool) -> bool:
        """Whether the gate is open and the state has what the injectors of this pass need."""
        active = self.gate.open(iteration) if training else self.gate.within(iteration)
        running = (gated for gated in self.injectors.values() if gated.runs(iteration, training))
        return active and all(gated.optional <= state.keys() for gated in running)

    def update(
        self, states: Sequence[tuple[State, float]], networks: Networks, iteration: int,
        accelerator: Accelerator, stopwatch: Stopwatch, before_update: Callable[[], object] | None = None,
    ) -> StepReport:  # fmt: skip
        """Take one optimizer step on a batch of micro-batches, each with its fraction of the examples.

        `before_update` is called once the gradients are complete. If no loss applies, there is no update. If a loss or
        the gradient norm (over all ranks) is not finite, no weight changes and the report is `skipped`.
        """
        report = self._report(iteration)
        for index, (state, fraction) in enumerate(states, 1):
            with stopwatch("forward"), accelerator.autocast():
                values = self.observe(state, networks, iteration, training=True)
            with stopwatch("backward"):
                self._backward(values, fraction, report, last=index == len(states))
        if report.raw:
            with stopwatch("optimizer"):
                self._step(report, iteration, accelerator, before_update)
        return report

    def optimize(
        self, values: Mapping[str, Tensor], iteration: int, accelerator: Accelerator,
        before_update: Callable[[], object] | None = None,
    ) -> StepReport:  # fmt: skip
        """Take one optimizer step on raw losses computed by the caller, by name; otherwise like `update`.

        A value is a mean or one number per example. Losses of weight 0 are optional and ignored.

        Raises:
            UserError: the step has no loss of that name, or a loss of weight other than 0 is missing.
        """
        for name in values.keys() - self.declared:
            raise UserError(f"no loss {name!r}{nearest(name, self.declared)}; there are {', '.join(self.declared)}")
        for name in self.losses.keys() - values.keys():
            raise UserError(f"the loss {name!r} has weight {self.losses[name].weight:g} and no value was given for it")
        report = self._report(iteration)
        self._backward({name: values[name] for name in self.losses}, 1.0, report, last=True)
        self._step(report, iteration, accelerator, before_update)
        return report

    def observe(self, state: State, networks: Networks, iteration: int, training: bool = False) -> dict[str, Tensor]:
        """Run the injectors and return the raw losses of each example; nothing is updated."""
        view = state.detached(self.detach) if self.detach else state
        for gated in self.injectors.values():
            if gated.runs(iteration, training):
                gated.injector(view, networks, iteration)
        if view is not state:
            for name in view.keys() - state.keys():
                state.add(name, view[name])
        values: dict[str, Tensor] = {}
        for name, loss in self.losses.items():
            if loss.applies(view, iteration, training):
                values |= loss.values(name, view)
        return values

    def _report(self, iteration: int) -> StepReport:
        return StepReport(weights={name: loss.effective_weight(iteration) for name, loss in self.losses.items()})

    def _backward(self, values: Mapping[str, Tensor], fraction: float, report: StepReport, last: bool) -> None:
        if not values:
            return
        means = {name: in_float32(value).mean() for name, value in values.items()}
        report.weights |= {name: report.weights[loss_of(name)] for name in means}
        whole = {name: mean for name, mean in means.items() if loss_of(name) == name}
        total = sum((report.weights[name] * fraction * mean for name, mean in whole.items()), torch.zeros(()))
        # only into what this step trains: a discriminator used in a generator's step accumulates no gradients
        trained = [parameter for parameter in self.parameters if parameter.requires_grad]  # frozen ones excluded
        with self.average.last_backward() if self.average is not None and last else nullcontext():
            (total if self.scaler is None else self.scaler.scale(total)).backward(inputs=trained)
        for name, mean in means.items():
            report.raw[name] = report.raw.get(name, 0) + fraction * mean.detach()

    def _step(
        self, report: StepReport, iteration: int, accelerator: Accelerator, before_update: Callable[[], object] | None
    ) -> None:
        factor = self.lr_schedule(iteration)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        report.learning_rate = self.rates[0] * factor
        if self.compiled:
            drop_zeros(self.parameters)
        if self.average is not None:
            self.average.finish()
        scaler = self.scaler if any(p.grad is not None for p in self.parameters) else None
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        if before_update is not None:
            before_update()
        report.grad_norm, norms = norms_of(self.own)
        report.grad_norms = norms if len(self.own) > 1 else {}
        judged = torch.stack([report.grad_norm, *report.raw.values()])
        if accelerator.num_processes > 1:  # all ranks record the same and agree on whether to update
            judged = accelerator.reduce(judged, "mean")
            report.raw = dict(zip(report.raw, judged[1:].unbind(), strict=True))
        finite = judged.isfinite()
        report.skipped = not bool(finite.all())
        if scaler is not None:
            report.overflowed = adapt(scaler, report.skipped) and bool(finite[1:].all())
        if not report.skipped:
            clip(self.parameters, report.grad_norm, self.clip_value, self.clip)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def drop_zeros(parameters: Sequence[nn.Parameter]) -> None:
    """Set gradients that are zero everywhere to None.

    A compiled network gives zero gradients to parameters that no loss depends on, for example behind a closed gate.
    Momentum and weight decay would move them; without compilation they have no gradient.
    """
    gradients = {parameter: parameter.grad for parameter in parameters if parameter.grad is not None}
    if gradients:
        largest = torch.stack([torch.linalg.vector_norm(gradient, torch.inf) for gradient in gradients.values()])
        for parameter, norm in zip(gradients, largest.tolist(), strict=True):
            if norm == 0:
                parameter.grad = None


def norms_of(parameters: Mapping[str, Sequence[nn.Parameter]]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the 2-norm of the full gradient, and that of each network that has gradients.

    The norm of several networks is the norm of their norms, so each gradient is read once.
    """
    gradients = {name: [p.grad for p in own if p.grad is not None] for name, own in parameters.items()}
    norms = {name: torch.nn.utils.get_total_norm(own) for name, own in gradients.items() if own}
    every = list(norms.values())
    if not every:
        return torch.zeros((), device=next(p.device for own in parameters.values() for p in own)), norms
    return every[0] if len(every) == 1 else torch.nn.utils.get_total_norm(every), norms


def clip(parameters: Sequence[nn.Parameter], norm: Tensor, value: float | None, largest: float | None) -> None:
    """Clip each element to +-`value`, then the 2-norm of the full gradient (`norm` before clipping) to `largest`."""
    if value is not None:
        torch.nn.utils.clip_grad_value_(parameters, value)
    if largest is not None:
        if value is not None:
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)
