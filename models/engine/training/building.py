"""What a training is made of, built from a recipe: the accelerator, the networks and their averages, who made it."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, broadcast
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from models.engine.injecting.injectors import Networks
from models.engine.recipes.assemble import build_datasets, build_networks
from models.engine.recipes.recipe import resolved
from models.engine.recipes.schema import Recipe
from models.engine.training.batch_norm import share_batch_norms
from models.engine.training.batches import Loaders
from models.engine.training.checkpoint import load_start
from models.engine.training.precision import (
    check_precision,
    convert_to_fp8,
    evaluation_precision,
    precision_handlers,
)
from models.engine.training.provenance import code_version, data_version, file_versions, package_versions

# How long a process waits for another, which may be scoring a dump; where one dies, the launcher ends the others at once.
PATIENCE = timedelta(hours=2)


def make_accelerator(recipe: Recipe, run: Path | None = None) -> Accelerator:
    """Return one with the recipe's precision, and with its trackers where there is the folder of a run for them.

    Raises:
        UserError: there is such a folder, and this machine cannot train in that precision.
    """
    precision = recipe.train.precision
    if run is None:
        precision = evaluation_precision(precision)
    else:
        check_precision(precision)
    return Accelerator(
        cpu=not torch.accelerator.is_available(),  # without it, two processes on a machine without GPU do not find each other
        mixed_precision=precision,
        kwargs_handlers=[*precision_handlers(precision), InitProcessGroupKwargs(timeout=PATIENCE)],
        log_with=None if run is None else list(recipe.runtime.trackers) or None,
        project_dir=None if run is None else str(run / "live"),
    )


def build_loaders(recipe: Recipe, accelerator: Accelerator) -> Loaders:
    """Open the datasets; return the batches that this process gets of them."""
    return Loaders(
        recipe, build_datasets(recipe, "train"), build_datasets(recipe, "validation"),
        process=accelerator.process_index, processes=accelerator.num_processes,
        pin=accelerator.device.type == "cuda",
    )  # fmt: skip


def start_networks(recipe: Recipe, accelerator: Accelerator) -> tuple[Networks, dict[str, AveragedModel]]:
    """Return the networks at the start of a training, prepared, and the averages of those that have one."""
    networks = build_networks(recipe)
    load_start(networks, recipe)
    for name in networks.keys() - {trained for step in recipe.steps.values() for trained in step.trains}:
        networks[name].eval().requires_grad_(False)  # loaded and kept as it is, running statistics included
    if accelerator.num_processes > 1 and recipe.train.sync_batch_norm:
        for network in networks.values():
            share_batch_norms(network)
    if accelerator.mixed_precision == "fp8":
        for network in networks.values():
            convert_to_fp8(network)
    # not wrapped for training: a step averages gradients itself (gradients.average says why)
    live = {name: accelerator.prepare_model(network, evaluation_mode=True) for name, network in networks.items()}
    if accelerator.num_processes > 1:  # should libraries or machines have differed
        spread(value for network in networks.values() for value in network.state_dict().values())
    averages = (
        {name: _average(network, recipe.train.ema.decay) for name, network in networks.items()}
        if recipe.train.ema
        else {}
    )
    evaluated = {name: averages[name].module if name in averages else networks[name] for name in networks}
    return Networks(live, evaluated), averages


@torch.no_grad()
def spread(values: Iterable[Tensor]) -> None:
    """Give all processes the values of the first one, in place."""
    for value in values:
        value.copy_(broadcast(value.clone(), from_process=0))


def _average(network: nn.Module, decay: float) -> AveragedModel:
    return AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=False)


def made_by(recipe: Recipe) -> dict[str, str]:
    """Return what the state of a training depends on, as text. The number of processes is no part of that."""
    entries = [*recipe.data.train.values(), *recipe.data.validation.values()]
    roots = [entry.arguments["root"] for entry in entries if "root" in entry.arguments]
    return {
        "recipe": resolved(recipe), "code": code_version(), "packages": str(package_versions()),
        "data": data_version(roots), "start": file_versions(recipe.starts_from().values()),
    }  # fmt: skip
