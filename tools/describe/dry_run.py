"""What an iteration of a recipe costs: it is carried out on PyTorch's meta device, where tensors have shapes and no values.

Memory and time do not depend on the size of the networks. What asks for values (a loss that picks cells by their target, a
decoder) is carried out on the CPU with two examples and scaled; its computed inputs are then zeros. `Costs.scaled` names it.

Floating-point operations are those that PyTorch's counter knows: convolutions and matrix products, two a
multiply-accumulate. Elementwise work, norms and the optimizer are left out.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from models.base.errors import UserError
from models.base.modes import evaluating
from models.engine.build import build_datasets, build_injectors, build_losses, build_networks
from models.engine.data import Mixture, collated
from models.engine.step import WeightedLoss
from models.interfaces import Injector, Networks, State
from models.recipe.schema import Recipe
from models.recipe.types import partial_names
from tools.describe.activation_memory import Held, saved, storage_of, storages
from tools.describe.meta_tensors import NetworksNeeded, OnCPU, linked, resized, shape_lines

META, CPU = torch.device("meta"), torch.device("cpu")
FEW = 2  # examples where values are needed


@dataclass
class Costs:
    """What a dry run found, for a whole batch; keys are those of `dataflow.Box` and the names of steps.

    Attributes:
        batch: examples.
        part: examples that go through the networks at a time (`train.accumulation`).
        shapes: of each name of the state, a line a tensor: `8 x 3 x 64 x 64`.
        forward: FLOPs of each injector and loss.
        backward: FLOPs of each step's backward pass; missing where one of its losses could not be carried out.
        kept: bytes that each step's forward keeps for backward passes, a storage counted once; parameters of
            networks do not count, fixed weights inside losses do.
        peak: the most bytes kept at any step's end of forward, with the state's tensors.
        scaled: what asks for values, and was carried out on the CPU with a few examples.
        notes: what could not be carried out, and what else there is to say.
    """

    batch: int
    part: int
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    forward: dict[str, int] = field(default_factory=dict)
    backward: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    peak: int = 0
    scaled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def meta_networks(recipe: Recipe) -> dict[str, nn.Module]:
    """Construct the networks without memory for their weights; on the CPU first where a constructor needs values."""
    try:
        with META:
            networks = build_networks(recipe)
    except UserError:
        raise
    except Exception:  # noqa: BLE001  # whatever a constructor does that knows no meta tensors
        networks = {name: network.to(META) for name, network in build_networks(recipe).items()}
    for name in networks.keys() - {trained for step in recipe.steps.values() for trained in step.trains}:
        networks[name].eval().requires_grad_(False)
    return networks


def run_training(recipe: Recipe, networks: Mapping[str, nn.Module], batch_size: int | None = None) -> Costs:
    """Carry out one iteration in which all steps run, at the values that schedules have in the end."""
    size = batch_size or recipe.data.batch_size
    parts = {recipe.parts(step) for step in recipe.steps}
    run = _Run(recipe, networks, "train", Costs(size, math.ceil(size / max(parts))))
    if len(parts) > 1:
        run.costs.notes.append(
            f"steps cut the batch into {min(parts)} to {max(parts)} parts: memory is that of the most"
        )
    if run.examples is None:
        return run.costs
    for name, step in recipe.steps.items():
        run.open_step(name, step.detach)
        entries = {key: entry for key, entry in step.injectors.items() if entry.only != "evaluation"}
        for injector, built in zip(entries, build_injectors(entries, f"steps.{name}.injectors"), strict=True):
            run.inject(f"steps.{name}.injectors.{injector}", built)
        for loss, on_meta in build_losses(recipe, name, META).items():
            if on_meta.weight != 0:
                run.judge(loss, on_meta, partial(_loss_on_cpu, recipe, name, loss))
        run.close_step([p for trained in step.trains for p in networks[trained].parameters() if p.requires_grad])
    run.describe_shapes()
    return run.costs


def run_mode(recipe: Recipe, networks: Mapping[str, nn.Module], mode: str, batch_size: int | None = None) -> Costs:
    """Carry out a mode of `evaluate` on a validation batch; nothing is kept for a backward pass."""
    size = batch_size or recipe.evaluate.batch_size
    run = _Run(recipe, networks, "validation", Costs(size, size))
    if run.examples is None:
        return run.costs
    injectors, key = recipe.evaluate.modes[mode].injectors, f"evaluate.modes.{mode}.injectors"
    run.open_step(mode, [])
    with evaluating(*networks.values()):
        for name, built in zip(injectors, build_injectors(injectors, key), strict=True):
            run.inject(f"{key}.{name}", built)
    run.describe_shapes()
    return run.costs


def _loss_on_cpu(recipe: Recipe, step: str, loss: str) -> WeightedLoss:
    return build_losses(recipe, step, CPU)[loss]


class _Run:
    """The state of a dry run. A name that could not be computed is missing in it; what reads it is left out."""

    def __init__(self, recipe: Recipe, networks: Mapping[str, nn.Module], split: str, costs: Costs) -> None:
        self.recipe, self.networks, self.costs = recipe, Networks(networks, networks), costs
        self.scale = costs.batch / costs.part
        self.iteration = (recipe.train.steps or 1) - 1
        self.parameters = {storage_of(p) for n in networks.values() for p in (*n.parameters(), *n.buffers())}
        self.held: WeakSet[Held] = WeakSet()
        self.real = OnCPU()
        self.examples: dict[str, Any] | None = None
        try:
            self.examples = self._read(split)
        except (UserError, OSError) as error:
            costs.notes.append(f"no shapes and no costs, as no example could be read: {error}")
            return
        self.state = {name: resized(value, FEW, costs.part, META) for name, value in self.examples.items()}

    def _read(self, split: str) -> dict[str, Any]:
        """Return the first example of the split twice, as a batch; with what only other datasets provide."""
        datasets = build_datasets(self.recipe, split)
        batch: dict[str, Any] = {}
        for name in datasets:
            example = Mixture(datasets, self.recipe.seed)[(name, 0, 0)]
            batch = collated([example] * FEW) | batch
        if len(datasets) > 1 and partial_names(self.recipe):
            self.costs.notes.append("datasets provide different names: costs are of all losses together")
        return batch

    def open_step(self, name: str, detach: list[str]) -> None:
        self.step = name
        self.view = dict(State(self.state).detached(detach))
        self.losses: list[Tensor] = []
        self.complete = True
        self.kept: dict[int, int] = {}
        self.more_kept, self.more_backward = 0.0, 0.0

    def inject(self, key: str, injector: Injector) -> None:
        def call(state: State, networks: Networks) -> dict[str, Any]:
            state = State({name: value for name, value in state.items() if name not in injector.adds})
            injector(state, networks, self.iteration)
            return {name: state[name] for name in injector.adds}

        found = self._carried_out(key, injector.reads, call, call)
        self.view |= found
        self.state |= found

    def judge(self, name: str, loss: WeightedLoss, on_cpu: Callable[[], WeightedLoss]) -> None:
        def value(state: State, networks: Networks) -> dict[str, Any]:
            return {name: loss.values(name, state)[name]}

        def real_value(state: State, networks: Networks) -> dict[str, Any]:
            return {name: on_cpu().values(name, state)[name]}

        found = self._carried_out(f"losses.{name}", loss.inputs.values(), value, real_value)
        self.losses += [values.mean() for values in found.values()]
        self.complete &= bool(found)

    def close_step(self, parameters: list[Tensor]) -> None:
        costs, alive = self.costs, dict(storages(self.state.values()))
        alive |= dict(storages(held.tensor for held in self.held))
        alive = {key: size for key, size in alive.items() if key not in self.parameters}
        costs.kept[self.step] = round(sum(self.kept.values()) + self.more_kept)
        costs.peak = max(costs.peak, round(sum(alive.values()) + self.more_kept))
        if not self.complete:
            return
        differentiable = [loss for loss in self.losses if loss.requires_grad]
        with FlopCounterMode(display=False) as counter:
            if differentiable:
                torch.autograd.grad(torch.stack(differentiable).sum(), parameters, allow_unused=True)
        costs.backward[self.step] = round((counter.get_total_flops() + self.more_backward) * self.scale)

    def describe_shapes(self) -> None:
        self.costs.shapes = {name: tuple(shape_lines(value)) for name, value in self.state.items()}

    def _carried_out(
        self, key: str, reads: Iterable[str], call: Callable[[State, Networks], dict[str, Any]],
        real_call: Callable[[State, Networks], dict[str, Any]],
    ) -> dict[str, Any]:  # fmt: skip
        """Return what a call adds, on the meta device, or scaled from a call on the CPU; nothing where neither works."""
        if not set(reads) <= self.view.keys():
            return {}
        kept: dict[int, int] = {}
        try:
            with saved(kept, self.held), FlopCounterMode(display=False) as counter:
                found = call(State(self.view), self.networks)
        except Exception:  # noqa: BLE001  # a loss or injector of anybody: it may raise what it likes
            return self._really(key, tuple(reads), real_call)
        self.kept |= {storage: size for storage, size in kept.items() if storage not in self.parameters}
        self.costs.forward[key] = round(counter.get_total_flops() * self.scale)
        return found

    def _really(
        self, key: str, reads: tuple[str, ...], call: Callable[[State, Networks], dict[str, Any]]
    ) -> dict[str, Any]:
        assert self.examples is not None
        state = State(
            self.examples
            | {n: resized(self.view[n], self.costs.part, FEW, CPU) for n in reads if n not in self.examples}
        )
        kept: dict[int, int] = {}
        try:
            with saved(kept), FlopCounterMode(display=False) as counter:
                found = call(state, Networks(self.real, self.real))
                forward = counter.get_total_flops()
                self._back(state, reads, found)
                backward = counter.get_total_flops() - forward
        except NetworksNeeded:
            self.real.build(self.recipe, self.networks.live)
            return self._really(key, reads, call)
        except Exception as error:  # noqa: BLE001
            self.costs.notes.append(
                f"{key} could not be carried out: {type(error).__name__}: {str(error).strip()[:200]}"
            )
            return {}
        times = self.costs.part / FEW
        self.costs.scaled.append(key)
        self.costs.forward[key] = round(forward * times * self.scale)
        self.more_kept += sum(kept.values()) * times
        self.more_backward += backward * times
        sources = [v for n in reads if isinstance(v := self.view[n], Tensor) and v.requires_grad]
        return {name: linked(resized(value, FEW, self.costs.part, META), sources) for name, value in found.items()}

    def _back(self, state: State, reads: tuple[str, ...], found: dict[str, Any]) -> None:
        """Go back from what a call on the CPU gave, to what it read and to the networks."""
        ends = [v.sum() for v in found.values() if isinstance(v, Tensor) and v.requires_grad]
        starts = [v for n in reads if isinstance(v := state[n], Tensor) and v.requires_grad]
        starts += [p for network in self.real.built.values() for p in network.parameters() if p.requires_grad]
        if ends and starts:
            torch.autograd.grad(torch.stack(ends).sum(), starts, allow_unused=True)
