"""Warnings about settings that are likely mistakes, and what to do about updates that are not finite."""

import re
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from figura.base.errors import REPRO
from figura.engine.step import Step
from figura.recipe.late_parts import late_parts
from figura.recipe.picture_sizes import other_sizes
from figura.recipe.schema import Recipe
from figura.recipe.trial import is_try
from figura.recipe.types import partial_names
from figura.training.loss_log import LossLog


def warnings(recipe: Recipe, steps: Mapping[str, Step], last: int) -> list[str]:
    """Return all warnings about a training of `last` iterations."""
    found = [*other_sizes(recipe), *from_tries(recipe), *left_out(recipe, steps), *late_parts(recipe, last)]
    return [*found, *empty_groups(recipe, steps), *upset_norms(steps)]


def from_tries(recipe: Recipe) -> list[str]:
    """Return warnings for networks that start from the weights of a try: its recipe is beside them."""
    return [
        f"network {name!r} starts from {file}, the weights of a try"
        for name, file in recipe.starts_from().items()
        if is_try(Path(file).parent)
    ]


def left_out(recipe: Recipe, steps: Mapping[str, Step]) -> list[str]:
    """Return warnings for steps whose injectors read, in training, what some batches lack."""
    lines, optional = [], set(partial_names(recipe))
    for name, step in steps.items():
        injectors = [one for one in step.injectors.values() if one.only != "evaluation"]
        if lacking := optional & {need for one in injectors for need in one.optional}:
            lines.append(f"steps.{name} is left out for batches that lack {', '.join(sorted(lacking))}")
            optional |= {added for one in injectors for added in one.injector.adds}
    return lines


def empty_groups(recipe: Recipe, steps: Mapping[str, Step]) -> list[str]:
    """Return warnings for groups of an optimizer whose pattern is in no parameter's name: their options do nothing."""
    lines = []
    for name, step in steps.items():
        known = [
            f"{network}.{parameter.removeprefix('module.')}"
            for network, module in step.trains.items()
            for parameter, _ in module.named_parameters()
        ]
        lines += [
            f"steps.{name}.groups.{key}: the pattern {group.pattern!r} is in no parameter's name, such as {known[0]}"
            for key, group in recipe.steps[name].groups.items()
            if known and not any(re.search(group.pattern, one) for one in known)
        ]
    return lines


def upset_norms(steps: Mapping[str, Step]) -> list[str]:
    """Return warnings for steps with lr x clip_value > sqrt(eps) of batch norm: one update may destabilise it."""
    lines = []
    for name, step in steps.items():
        modules = [module for network in step.trains.values() for module in network.modules()]
        norms = [module.eps for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        if step.clip_value is not None and norms and max(step.rates) * step.clip_value > min(norms) ** 0.5:
            lines.append(
                f"steps.{name}: learning rate {max(step.rates):g} x clip_value {step.clip_value:g} = "
                f"{max(step.rates) * step.clip_value:g} is above sqrt(eps) = {min(norms) ** 0.5:g} of its batch norm"
            )
    return lines


def what_broke(run: Path, recipe: Recipe, begun: Mapping[str, int], log: LossLog, resumable: int) -> str:
    """Return which loss was the first that was not finite, and what to do; empty if the last updates were finite.

    A loss can make those of other steps infinite in turn, so the rates of all steps are named. `begun` is the iteration
    of the first of the last updates in a row that were not finite, by step; `resumable` that of the last resume point.
    """
    if not begun:
        return ""
    earliest = min(begun, key=begun.__getitem__)
    at, loss = log.first_nonfinite(begun[earliest]) or (begun[earliest], None)
    step = earliest if loss is None else recipe.loss_step(loss)
    what = f"a gradient of step {step!r}" if loss is None else f"the loss {loss!r} of step {step!r}"
    replay = f"`figura replay {run} --step {at}` shows the batch and what broke"
    before = list(recipe.steps)[: list(recipe.steps).index(step) + 1]
    if at == 1 and all(begun.get(name) == 1 for name in before):
        remedy = "No update came before it: look for a fault in its inputs or its code; a lower rate does not help"
    else:
        rates = ", ".join(f"{n} {log.latest[key]:g}" for n in recipe.steps if (key := f"{n}.lr") in log.latest)
        remedy = f"Lower a learning rate ({rates}) or clip, or look for inputs that are not finite"
        if resumable:
            remedy += f"; then `FIGURA_RESUME_ANYWAY=1 {REPRO}` goes on from the last resume point"
    return f"The first that was not finite is {what}, in iteration {at}: {replay}. {remedy}"


def advice(recipe: Recipe, network: str) -> str:
    """Return what to do about a network whose weights are not finite."""
    step = next((name for name, entry in recipe.steps.items() if network in entry.trains), None)
    lower = f"Lower steps.{step}.optimizer.lr or clip (steps.{step}.clip), or" if step else "Check its weights, or"
    return f"{lower} look for inputs that are not finite, which do this too"
