"""From a checked recipe to objects: datasets, networks, steps. Each network is initialised from its own seed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from torch import nn

from models.engine.callbacks import Callback
from models.engine.errors import UserError
from models.engine.examples import Examples
from models.engine.injecting.injectors import Injector
from models.engine.problems import Problems
from models.engine.recipes.recipe import partial_names
from models.engine.recipes.schema import Declaration, Group, Recipe
from models.engine.recipes.slots import (
    CALLBACK,
    DATASET,
    INJECTOR,
    LOSS,
    NETWORK,
    OPTIMIZER,
    PICTURE,
    SCORE,
    build_schedule,
)
from models.engine.recipes.types import Slot, construct
from models.engine.scores import Picture, Score
from models.engine.seeding import seed_here
from models.engine.training.precision import gradient_scaler
from models.engine.training.steps import PlacedInjector, Step, WeightedLoss

T = TypeVar("T")


def _built(kind: type[T], entry: Declaration, slot: Slot, key: str, **given: Any) -> T:
    problems = Problems(Path("recipe"))
    found = construct(entry.type, entry.arguments, slot, key, problems, **given)
    problems.raise_any()
    assert isinstance(found, kind)
    return found


def build_datasets(recipe: Recipe, split: str) -> dict[str, Examples]:
    """Open the datasets of `data.<split>`, by name."""
    entries = recipe.data.train if split == "train" else recipe.data.validation
    return {n: _built(Examples, entry, DATASET, f"data.{split}.{n}") for n, entry in entries.items()}


def build_networks(recipe: Recipe) -> dict[str, nn.Module]:
    """Construct and initialise the networks, by name; adding one does not change how another starts."""
    networks = {}
    for name, entry in recipe.networks.items():
        seed_here(recipe.seed, "network", name)
        networks[name] = _built(nn.Module, entry, NETWORK, f"networks.{name}")
    return networks


def build_losses(recipe: Recipe, step: str, device: torch.device) -> dict[str, WeightedLoss]:
    """Construct the losses that belong to a step, by name."""
    partial = partial_names(recipe)
    return {
        name: WeightedLoss(
            loss=_built(nn.Module, entry, LOSS, f"losses.{name}").to(device),  # type: ignore[arg-type]
            inputs=entry.inputs,
            weight=entry.weight,
            schedule=build_schedule(entry.schedule, f"losses.{name}.schedule", Problems(Path())),
            partial=frozenset(entry.inputs.values()) & partial,
            gate=entry.gate,
        )
        for name, entry in recipe.losses.items()
        if recipe.loss_step(name) == step
    }


def build_injectors(entries: Mapping[str, Declaration], key: str) -> list[Injector]:
    """Construct injectors, in their order."""
    return [_built(Injector, entry, INJECTOR, f"{key}.{name}") for name, entry in entries.items()]


def parameter_groups(networks: dict[str, nn.Module], groups: dict[str, Group]) -> list[Any]:
    """Return the trainable parameters as an optimizer takes them: a list, or one dictionary a group that is not empty."""
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
    found = [{"params": chosen[None]}, *({"params": chosen[g], **(o.model_extra or {})} for g, o in groups.items())]
    return [group for group in found if group["params"]]


def build_steps(recipe: Recipe, networks: dict[str, nn.Module], accelerator: Accelerator) -> dict[str, Step]:
    """Construct the steps with their optimizers, by name; `networks` are the prepared ones."""
    steps = {}
    for name, entry in recipe.steps.items():
        trains = {network: networks[network] for network in entry.trains}
        optimizer = _built(
            torch.optim.Optimizer, entry.optimizer, OPTIMIZER, f"steps.{name}.optimizer",
            params=parameter_groups(trains, entry.groups),
        )  # fmt: skip
        if (scaling := recipe.train.rate_scaling) is not None:
            for group in optimizer.param_groups:
                group["lr"] *= scaling.factor(recipe.data.batch_size)
        steps[name] = Step(
            trains=trains,
            injectors=[
                PlacedInjector(injector, placed.gate, placed.only)
                for injector, placed in zip(
                    build_injectors(entry.injectors, f"steps.{name}.injectors"), entry.injectors.values(), strict=True
                )
            ],
            losses=build_losses(recipe, name, accelerator.device),
            optimizer=optimizer,
            lr_schedule=build_schedule(entry.lr_schedule, f"steps.{name}.lr_schedule", Problems(Path())),
            clip=entry.clip,
            clip_value=entry.clip_value,
            detach=entry.detach,
            gate=entry.gate,
            requires=entry.requires,
            scaler=gradient_scaler(accelerator),
        )
    return steps


def build_scores(recipe: Recipe) -> dict[str, Score]:
    """Construct `metrics.scores`, by name."""
    return {n: _built(Score, entry, SCORE, f"metrics.scores.{n}") for n, entry in recipe.metrics.scores.items()}


def build_pictures(recipe: Recipe) -> dict[str, Picture]:
    """Construct `metrics.pictures`, by name."""
    return {n: _built(Picture, entry, PICTURE, f"metrics.pictures.{n}") for n, entry in recipe.metrics.pictures.items()}


def build_callbacks(recipe: Recipe, further: Mapping[str, Callback]) -> dict[str, Callback]:
    """Construct `callbacks`, by name; return them with further ones.

    Raises:
        UserError: a further one has the name of one of the recipe's.
    """
    for name in recipe.callbacks.keys() & further.keys():
        raise UserError(f"callbacks: {name!r} is in the recipe already")
    built = {n: _built(Callback, entry, CALLBACK, f"callbacks.{n}") for n, entry in recipe.callbacks.items()}
    return {**built, **further}
