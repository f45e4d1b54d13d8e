"""Compiled networks (`train.compile`): `torch.compile`, in place, so that weights keep their names.

Training uses the compiled networks, and so do its evaluations and samples, unless they use averages (`train.ema`).
Losses, averages, dumps and predictions are not compiled.
"""

from collections.abc import Mapping

import torch
from torch import nn

from figura.base.errors import UserError, one_line
from figura.interfaces import Loss
from figura.recipe.schema import Recipe


def compile_networks(networks: Mapping[str, nn.Module], losses: Mapping[str, Loss], recipe: Recipe) -> None:
    """Compile networks in place.

    Every batch shape is compiled separately: its result does not depend on the shapes seen before, and a killed
    training resumes to the same weights. Layers draw noise with PyTorch's functions, so the numbers are the same as
    without compilation. Outputs that no loss reads get zero gradients (`step.drop_zeros`).

    Args:
        networks: prepared networks, by name.
        losses: losses of all steps, by name.
        recipe: says which networks are checkpointed.

    Raises:
        UserError: a network is checkpointed, a loss differentiates networks twice, or this machine cannot compile.
    """
    for name, entry in recipe.networks.items():
        if entry.checkpointing:
            raise UserError(
                f"{recipe.path}: networks.{name}.checkpointing: not with train.compile, whose compiler chooses what "
                "the backward pass computes again; leave one of them out"
            )
    for name, loss in losses.items():
        if loss.differentiated:
            raise UserError(
                f"{recipe.path}: train.compile: losses.{name} differentiates networks twice, and compiled ones can be "
                "differentiated once; leave train.compile out"
            )
    for device in {parameter.device for network in networks.values() for parameter in network.parameters()}:
        _check_compiler(device, recipe)
    for network in networks.values():
        network.compile(dynamic=False, options={"fallback_random": True})


def _check_compiler(device: torch.device, recipe: Recipe) -> None:
    """Compile a sum as a test. Raises UserError."""
    try:
        torch.compile(lambda values: values + 1)(torch.zeros(2, device=device))
    except Exception as error:  # noqa: BLE001  # whatever the compiler meets: no program, no headers, an old GPU
        needs = "Triton" if device.type == "cuda" else "a C++ compiler (g++, or the one that CXX names) and Python.h"
        raise UserError(
            f"{recipe.path}: train.compile: nothing can be compiled for {device.type} here: "
            f"{one_line(str(error).strip().partition(chr(10))[0])}; install {needs}, or leave train.compile out"
        ) from None
