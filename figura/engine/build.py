"""Build a checked recipe: accelerator, batches, networks, averages, losses, steps, callbacks."""

import os
import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, broadcast
from torch import Tensor, nn

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.seeding import seed_here
from figura.engine.averaging import GradientAverage
from figura.engine.batch_norm import share_batch_norms
from figura.engine.data import Loaders
from figura.engine.precision import check_precision, gradient_scaler
from figura.engine.step import GatedInjector, Step, WeightedLoss
from figura.engine.weights import WeightAverages, load_start
from figura.interfaces import Callback, ExampleDataset, Injector, Networks, Schedule
from figura.recipe.schema import DatasetEntry, Declaration, Group, Recipe
from figura.recipe.types import (
    CALLBACK,
    DATASET,
    INJECTOR,
    LOSS,
    NETWORK,
    OPTIMIZER,
    build,
    build_schedule,
    partial_names,
)
from figura.schedules import Constant

IMPORTED_FOR = {".checkpointing": ("checkpointing",), ".compiling": ("compile",)}
Split = Literal["train", "validation", "evaluate"]
CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""cuBLAS is deterministic only with a workspace of fixed size: its documentation, "Results reproducibility"."""
# How long a rank waits for another, which may be scoring a dump. If a rank dies, the launcher kills the others at once.
PATIENCE = timedelta(hours=2)


class Assembly(NamedTuple):
    """What a training updates, at its start: prepared networks and their averages, plain networks, and steps."""

    networks: Networks
    averages: dict[str, WeightAverages]  # none without `train.ema`
    plain: dict[str, nn.Module]
    steps: dict[str, Step]


def assemble(recipe: Recipe, accelerator: Accelerator) -> Assembly:
    """Build networks and steps; networks are checkpointed and compiled as the recipe says. Raises UserError."""
    networks, averages = start_networks(recipe, accelerator)
    steps = build_steps(recipe, dict(networks.live), accelerator)
    plain = {name: accelerator.unwrap_model(network) for name, network in networks.live.items()}
    if any(entry.checkpointing for entry in recipe.networks.values()):
        from figura.engine.checkpointing import checkpoint_networks

        checkpoint_networks(plain, recipe)
    if recipe.train.compile:
        from figura.engine.compiling import compile_networks

        losses = {name: weighted.loss for step in steps.values() for name, weighted in step.losses.items()}
        compile_networks(networks.live, losses, recipe)
    return Assembly(networks, averages, plain, steps)


def split_entries(recipe: Recipe, split: Split) -> tuple[str, Mapping[str, DatasetEntry]]:
    """Return the key and the datasets, by name, of `data.train`, `data.validation` or `evaluate.data`."""
    if split == "evaluate":
        return "evaluate.data", recipe.evaluate.data
    return f"data.{split}", recipe.data.train if split == "train" else recipe.data.validation


def build_datasets(recipe: Recipe, split: Split) -> dict[str, ExampleDataset]:
    """Open the datasets of a split, by name."""
    key, entries = split_entries(recipe, split)
    return {n: build(entry, DATASET, f"{key}.{n}", recipe.path) for n, entry in entries.items()}


def on_split_of(judged: DatasetEntry | None, other: DatasetEntry | None) -> DatasetEntry | None:
    """Return a dataset of `evaluate.data` with the argument `split` of another one; None unless both have it."""
    if judged is None or other is None or not {"split"} <= judged.arguments.keys() & other.arguments.keys():
        return None
    return judged.model_copy(update={"split": other.arguments["split"]})


def build_networks(recipe: Recipe) -> dict[str, nn.Module]:
    """Construct and initialise the networks, by name. Each has its own seed: adding one does not change the others."""
    networks = {}
    for name, entry in recipe.networks.items():
        seed_here(recipe.seed, "network", name)
        networks[name] = build(entry, NETWORK, f"networks.{name}", recipe.path)
    return networks


def build_losses(
    recipe: Recipe, step: str, device: torch.device, optional: AbstractSet[str] | None = None
) -> dict[str, WeightedLoss]:
    """Construct the losses that belong to a step, by name.

    `optional` are the names that some batches of a mixture lack; by default, those that only some datasets provide.
    """
    losses = {}
    for name, entry in recipe.losses.items():
        if recipe.loss_step(name) == step:
            seed_here(recipe.seed, "loss", name)  # as for networks
            losses[name] = WeightedLoss(
                loss=build(entry, LOSS, f"losses.{name}", recipe.path).to(device),
                inputs=entry.inputs,
                weight=entry.weight,
                schedule=_schedule(entry.schedule, f"losses.{name}.schedule"),
                optional=frozenset(entry.inputs.values()) & (partial_names(recipe) if optional is None else optional),
                gate=entry.gate,
            )
    return losses


def _schedule(entry: Declaration | None, key: str) -> Schedule:
    """Construct a schedule; without an entry, a constant 1."""
    return Constant() if entry is None else build_schedule(entry, key, ErrorCollector(Path()))


def build_injectors(entries: Mapping[str, Declaration], key: str) -> list[Injector]:
    """Construct injectors, in the recipe's order."""
    return [build(entry, INJECTOR, f"{key}.{name}") for name, entry in entries.items()]


def parameter_groups(networks: dict[str, nn.Module], groups: dict[str, Group]) -> list[Any]:
    """Return the trainable parameters for an optimizer: a list, or one dictionary for each non-empty group."""
    named = [
        (f"{network}.{name.removeprefix('module.')}", parameter)
        for network, module in networks.items()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    ]
    if not groups:
        return [parameter for _, parameter in named]
    chosen: dict[str | None, list[nn.Parameter]] = {None: [], **{group: [] for group in groups}}
    for name, parameter in named:
        chosen[next((g for g, group in groups.items() if re.search(group.pattern, name)), None)].append(parameter)
    dictionaries = [
        {"params": chosen[None]},
        *({"params": chosen[name], **(group.model_extra or {})} for name, group in groups.items()),
    ]
    return [group for group in dictionaries if group["params"]]


def build_steps(recipe: Recipe, networks: dict[str, nn.Module], accelerator: Accelerator) -> dict[str, Step]:
    """Construct the steps with their optimizers, by name; `networks` are the prepared ones."""
    steps, optional = {}, set(partial_names(recipe))
    ranks = dist.new_group(timeout=PATIENCE) if accelerator.num_processes > 1 else None
    for name, entry in recipe.steps.items():
        trains = {network: networks[network] for network in entry.trains}
        optimizer = build(entry.optimizer, OPTIMIZER, f"steps.{name}.optimizer", recipe.path,
            params=parameter_groups(trains, entry.groups),
        )  # fmt: skip
        injectors = {key: _gated(recipe, name, key, optional) for key in entry.injectors}
        if any(one.optional for one in injectors.values()):
            optional |= {added for one in injectors.values() for added in one.injector.adds}
        steps[name] = Step(
            trains=trains,
            injectors=injectors,
            losses=build_losses(recipe, name, accelerator.device, optional),
            optimizer=optimizer,
            lr_schedule=_schedule(entry.lr_schedule, f"steps.{name}.lr_schedule"),
            clip=entry.clip,
            clip_value=entry.clip_value,
            detach=entry.detach,
            gate=entry.gate,
            scaler=gradient_scaler(accelerator),
            compiled=recipe.train.compile,
        )
        if ranks is not None:  # gradients of compiled networks are complete when `drop_zeros` is done
            steps[name].average = GradientAverage(steps[name].parameters, ranks, early=not recipe.train.compile)
    return steps


def _gated(recipe: Recipe, step: str, name: str, optional: AbstractSet[str]) -> GatedInjector:
    entry = recipe.steps[step].injectors[name]
    seed_here(recipe.seed, "injector", step, name)  # as for networks
    (injector,) = build_injectors({name: entry}, f"steps.{step}.injectors")
    return GatedInjector(injector, frozenset(injector.reads) & optional, entry.gate, entry.only)


def build_callbacks(recipe: Recipe, further: Mapping[str, Callback]) -> dict[str, Callback]:
    """Construct the recipe's `callbacks`, by name; return them merged with `further`.

    Raises:
        UserError: a name in `further` is taken by the recipe.
    """
    for name in recipe.callbacks.keys() & further.keys():
        raise UserError(f"callbacks: {name!r} is in the recipe already")
    built = {n: build(entry, CALLBACK, f"callbacks.{n}", recipe.path) for n, entry in recipe.callbacks.items()}
    return {**built, **further}


def make_accelerator(recipe: Recipe, run: Path | None = None) -> Accelerator:
    """Return an accelerator with the recipe's precision; given a run folder, also with the recipe's trackers.

    Raises:
        UserError: `run` is given and this machine cannot train in that precision.
    """
    if run is not None:
        try:
            check_precision(recipe.train.precision)
        except UserError as error:
            raise UserError(f"{recipe.path}: {error}") from None
    os.environ |= CUBLAS | os.environ  # before PyTorch begins with cuBLAS
    return Accelerator(
        cpu=not torch.accelerator.is_available(),  # without a GPU, the process group is only set up if this is set
        mixed_precision=recipe.train.precision,
        kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)],
        log_with=None if run is None else list(recipe.runtime.trackers) or None,
        project_dir=None if run is None else str(run / "live"),
    )


def build_loaders(recipe: Recipe, accelerator: Accelerator) -> Loaders:
    """Open the datasets; return this rank's loaders."""
    return Loaders(
        recipe, build_datasets(recipe, "train"), build_datasets(recipe, "validation"),
        rank=accelerator.process_index, ranks=accelerator.num_processes,
        pin=accelerator.device.type == "cuda",
    )  # fmt: skip


def start_networks(recipe: Recipe, accelerator: Accelerator) -> tuple[Networks, dict[str, WeightAverages]]:
    """Return the prepared networks at the start of a training, and the moving averages (none without `train.ema`)."""
    networks = build_networks(recipe)
    for name, source in load_start(networks, recipe).items():
        if accelerator.is_main_process:
            print(f"network {name!r} starts from {source}", flush=True)
    for name in networks.keys() - {trained for step in recipe.steps.values() for trained in step.trains}:
        networks[name].eval().requires_grad_(False)  # frozen, running statistics included
    on_cpu = accelerator.device.type == "cpu" and not recipe.train.compile  # compiled ones have their own sums
    if recipe.train.sync_batch_norm and (accelerator.num_processes > 1 or on_cpu):
        for network in networks.values():
            share_batch_norms(network)
    # not wrapped in DistributedDataParallel: a step averages gradients itself (see engine/averaging.py)
    live = {name: accelerator.prepare_model(network, evaluation_mode=True) for name, network in networks.items()}
    if accelerator.num_processes > 1:  # in case libraries or machines differ
        broadcast_(value for network in networks.values() for value in network.state_dict().values())
    averages = (
        {name: WeightAverages(network, recipe.train.ema) for name, network in networks.items()}
        if recipe.train.ema
        else {}
    )
    evaluated = {name: averages[name].module if name in averages else networks[name] for name in networks}
    return Networks(live, evaluated), averages


@torch.no_grad()
def broadcast_(values: Iterable[Tensor]) -> None:
    """Broadcast the values of rank 0 to all ranks, in place."""
    for value in values:
        value.copy_(broadcast(value.clone(), from_process=0))
