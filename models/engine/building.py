"""What a training is made of, built from a recipe: the accelerator, the networks and their averages, who made it."""

from pathlib import Path

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from models.engine.assemble import build_datasets, build_networks
from models.engine.batches import Loaders
from models.engine.checkpoint import load_start
from models.engine.injectors import Networks
from models.engine.provenance import code_version, data_version, file_versions, package_versions
from models.engine.recipe import resolved
from models.engine.schema import Recipe


def make_accelerator(recipe: Recipe, run: Path) -> Accelerator:
    """Return one with the recipe's precision and trackers."""
    return Accelerator(
        cpu=not torch.accelerator.is_available(),  # without it, two processes on a machine without GPU do not find each other
        mixed_precision=recipe.train.precision,
        log_with=list(recipe.runtime.trackers) or None,
        project_dir=str(run / "live"),
        # two forwards of a discriminator before one backward: its statistics may not be overwritten between them
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
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
    live = {name: accelerator.prepare_model(network) for name, network in networks.items()}
    for network in live.values():
        if isinstance(
            network, DistributedDataParallel
        ):  # it starts the networks alike; a step averages their gradients
            network.require_backward_grad_sync = False
    averages = (
        {name: _average(network, recipe.train.ema.decay) for name, network in networks.items()}
        if recipe.train.ema
        else {}
    )
    evaluated = {name: averages[name].module if name in averages else networks[name] for name in networks}
    return Networks(live, evaluated), averages


def _average(network: nn.Module, decay: float) -> AveragedModel:
    return AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=False)


def made_by(recipe: Recipe, processes: int) -> dict[str, str]:
    """Return what the state of a training depends on, as text."""
    entries = [*recipe.data.train.values(), *recipe.data.validation.values()]
    roots = [entry.arguments["root"] for entry in entries if "root" in entry.arguments]
    return {
        "recipe": resolved(recipe), "code": code_version(), "packages": str(package_versions()),
        "data": data_version(roots), "start": file_versions(recipe.starts_from().values()), "processes": str(processes),
    }  # fmt: skip
