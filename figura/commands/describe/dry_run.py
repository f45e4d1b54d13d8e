"""Measures what an iteration of a recipe costs, on PyTorch's meta device, where tensors have shapes but no values.

Memory and time do not depend on the size of the networks. Injectors and losses that need values (a loss that picks
cells by their target, a decoder) run on the CPU with two examples instead, and their costs are scaled up; inputs that
others computed are then zeros. `Costs.scaled` lists them.

Floating-point operations are those that PyTorch's counter knows: convolutions and matrix products, two for each
multiply-accumulate. Elementwise operations, norms and the optimizer are not counted.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from figura.base.errors import UserError
from figura.base.modes import evaluating
from figura.commands.describe.activation_memory import SavedTensor, held, record_saved, storage_of, storages
from figura.commands.describe.flops import flop_counter
from figura.commands.describe.meta_tensors import NetworksNeeded, OnCPU, fused_attention, linked, resized, shape_lines
from figura.engine.build import Split, build_datasets, build_injectors, build_losses, build_networks
from figura.engine.checkpointing import checkpoint_networks
from figura.engine.data import Mixture, collated
from figura.engine.step import WeightedLoss
from figura.interfaces import Injector, Networks, State
from figura.recipe.schema import Recipe
from figura.recipe.types import partial_names

META, CPU = torch.device("meta"), torch.device("cpu")
FEW = 2  # examples in a run on the CPU


@dataclass
class Costs:
    """The results of a dry run, for a whole batch. Keys are those of `dataflow.Box`, or names of steps.

    Attributes:
        batch: number of examples.
        part: examples that go through the networks at a time (`train.accumulation`).
        shapes: one line for each tensor of each name in the state: `8 x 3 x 64 x 64`.
        forward: FLOPs of each injector and loss.
        backward: FLOPs of each step's backward pass; missing if one of its losses failed.
        fixed: bytes of the weights inside losses, such as those of VGG19.
        saved: bytes that each step saves for backward in the forward pass of a part. A storage counts once; weights do
            not count.
        peak: the largest number of bytes saved at the end of any step's forward pass, with the state's tensors.
        scaled: injectors and losses that need values; they ran on the CPU with a few examples.
        notes: failures and other remarks.
    """

    batch: int
    part: int
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    forward: dict[str, int] = field(default_factory=dict)
    backward: dict[str, int] = field(default_factory=dict)
    fixed: int = 0
    saved: dict[str, int] = field(default_factory=dict)
    peak: int = 0
    scaled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def meta_networks(recipe: Recipe) -> dict[str, nn.Module]:
    """Construct the networks without memory for their weights; via the CPU if a constructor needs values."""
    try:
        with META:
            networks = build_networks(recipe)
    except UserError:
        raise
    except Exception:  # noqa: BLE001  # users' constructors may fail on meta tensors in any way
        networks = {name: network.to(META) for name, network in build_networks(recipe).items()}
    for name in networks.keys() - {trained for step in recipe.steps.values() for trained in step.trains}:
        networks[name].eval().requires_grad_(False)
    checkpoint_networks(networks, recipe)
    return networks


def run_training(recipe: Recipe, networks: Mapping[str, nn.Module], batch_size: int | None = None) -> Costs:
    """Run one iteration in which every step runs, with the schedules' final values."""
    size = batch_size or recipe.data.batch_size
    parts = {recipe.parts(step) for step in recipe.steps}
    run = _Run(recipe, networks, "train", Costs(size, math.ceil(size / max(parts))))
    if len(parts) > 1:
        run.costs.notes.append(
            f"steps split the batch into {min(parts)} to {max(parts)} parts: memory is given for {max(parts)}"
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
                run.add_loss(loss, on_meta)
        run.close_step([p for trained in step.trains for p in networks[trained].parameters() if p.requires_grad])
    run.describe_shapes()
    return run.costs


def run_mode(recipe: Recipe, networks: Mapping[str, nn.Module], mode: str, batch_size: int | None = None) -> Costs:
    """Run a mode of `evaluate` on a validation batch, without a backward pass."""
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


class _Run:
    """A dry run in progress. A name that could not be computed is missing from the state; its readers are skipped."""

    def __init__(self, recipe: Recipe, networks: Mapping[str, nn.Module], split: Split, costs: Costs) -> None:
        self.recipe, self.networks, self.costs = recipe, Networks(networks, networks), costs
        self.scale = costs.batch / costs.part
        self.iteration = (recipe.train.steps or 1) - 1
        self.parameters = {storage_of(p) for n in networks.values() for p in (*n.parameters(), *n.buffers())}
        self.visited: list[nn.Module] = []  # losses, alive so that no other storage gets the ids of their weights
        self.fixed: dict[int, int] = {}
        self.alive: WeakSet[SavedTensor] = WeakSet()
        self.real = OnCPU()
        self.examples: dict[str, Any] | None = None
        try:
            self.examples = self._read(split)
        except (UserError, OSError) as error:
            costs.notes.append(f"no shapes and no costs, as no example could be read: {error}")
            return
        self.state = {name: resized(value, FEW, costs.part, META) for name, value in self.examples.items()}

    def _read(self, split: Split) -> dict[str, Any]:
        """Return the split's first example twice, as a batch; names of other datasets are taken from their examples."""
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
        self.saved: dict[int, int] = {}
        self.scaled_saved, self.scaled_backward = 0.0, 0.0

    def inject(self, key: str, injector: Injector) -> None:
        def call(state: State, networks: Networks, injector: Injector = injector) -> dict[str, Any]:
            state = State({name: value for name, value in state.items() if name not in injector.adds})
            injector(state, networks, self.iteration)
            return {name: state[name] for name in injector.adds}

        real_call = partial(call, injector=deepcopy(injector))  # its own: a package's module moves to the meta device
        outputs = self._run(key, injector.reads, call, real_call)
        self.view |= outputs
        self.state |= outputs

    def add_loss(self, name: str, loss: WeightedLoss) -> None:
        def value(state: State, networks: Networks) -> dict[str, Any]:
            return {name: loss.values(name, state)[name]}

        def real_value(state: State, networks: Networks) -> dict[str, Any]:
            return {name: build_losses(self.recipe, self.step, CPU)[name].values(name, state)[name]}

        outputs = self._run(f"losses.{name}", loss.inputs.values(), value, real_value)
        self.visited.append(loss.loss)
        self.fixed |= held(loss.loss)
        self.losses += [values.mean() for values in outputs.values()]
        self.complete &= bool(outputs)

    def close_step(self, parameters: list[Tensor]) -> None:
        costs, alive = self.costs, dict(storages(self.state.values()))
        alive |= dict(storages(saved.tensor for saved in self.alive))
        weights = self.parameters | self.fixed.keys()
        alive, saved = ({k: size for k, size in one.items() if k not in weights} for one in (alive, self.saved))
        costs.fixed = sum(self.fixed.values())
        costs.saved[self.step] = round(sum(saved.values()) + self.scaled_saved)
        costs.peak = max(costs.peak, round(sum(alive.values()) + self.scaled_saved))
        if not self.complete:
            return
        differentiable = [loss for loss in self.losses if loss.requires_grad]
        with flop_counter() as counter:
            if differentiable:
                torch.autograd.grad(torch.stack(differentiable).sum(), parameters, allow_unused=True)
        costs.backward[self.step] = round((counter.get_total_flops() + self.scaled_backward) * self.scale)

    def describe_shapes(self) -> None:
        self.costs.shapes = {name: tuple(shape_lines(value)) for name, value in self.state.items()}

    def _run(
        self, key: str, reads: Iterable[str], call: Callable[[State, Networks], dict[str, Any]],
        real_call: Callable[[State, Networks], dict[str, Any]],
    ) -> dict[str, Any]:  # fmt: skip
        """Return a call's outputs on the meta device, or else scaled from a run on the CPU; empty if both fail."""
        if not set(reads) <= self.view.keys():
            return {}
        saved: dict[int, int] = {}
        try:
            with record_saved(saved, self.alive), flop_counter() as counter, fused_attention():
                outputs = call(State(self.view), self.networks)
        except Exception:  # noqa: BLE001  # users' losses and injectors may raise anything
            return self._run_on_cpu(key, tuple(reads), real_call)
        self.saved |= saved
        self.costs.forward[key] = round(counter.get_total_flops() * self.scale)
        return outputs

    def _run_on_cpu(
        self, key: str, reads: tuple[str, ...], call: Callable[[State, Networks], dict[str, Any]]
    ) -> dict[str, Any]:
        assert self.examples is not None
        state = State(
            self.examples
            | {n: resized(self.view[n], self.costs.part, FEW, CPU) for n in reads if n not in self.examples}
        )
        saved: dict[int, int] = {}
        try:
            with record_saved(saved), flop_counter() as counter:
                outputs = call(state, Networks(self.real, self.real))
                forward = counter.get_total_flops()
                self._backward(state, reads, outputs)
                backward = counter.get_total_flops() - forward
        except NetworksNeeded:
            self.real.build(self.recipe, self.networks.live)
            return self._run_on_cpu(key, reads, call)
        except Exception as error:  # noqa: BLE001
            self.costs.notes.append(
                f"{key} could not be carried out: {type(error).__name__}: {str(error).strip()[:200]}"
            )
            return {}
        factor = self.costs.part / FEW
        self.costs.scaled.append(key)
        self.costs.forward[key] = round(forward * factor * self.scale)
        self.scaled_saved += sum(saved.values()) * factor
        self.scaled_backward += backward * factor
        sources = [v for n in reads if isinstance(v := self.view[n], Tensor) and v.requires_grad]
        return {name: linked(resized(value, FEW, self.costs.part, META), sources) for name, value in outputs.items()}

    def _backward(self, state: State, reads: tuple[str, ...], outputs: dict[str, Any]) -> None:
        """Run the backward pass of a call on the CPU, from its outputs to its inputs and the networks."""
        ends = [v.sum() for v in outputs.values() if isinstance(v, Tensor) and v.requires_grad]
        starts = [v for n in reads if isinstance(v := state[n], Tensor) and v.requires_grad]
        starts += [p for network in self.real.built.values() for p in network.parameters() if p.requires_grad]
        if ends and starts:
            torch.autograd.grad(torch.stack(ends).sum(), starts, allow_unused=True)
