"""Checks of weights before they are written: each raises UserError, words a warning, or does nothing."""

import math
from collections.abc import Mapping, Sequence

from accelerate import PartialState
from accelerate.utils import gather_object
from torch import nn

from figura.base.errors import UserError
from figura.engine.weights import digest, not_finite
from figura.recipe.schema import Recipe
from figura.training.loss_log import LossLog
from figura.training.warnings import advice


def refuse_not_finite(
    networks: Mapping[str, nn.Module], averages: Mapping[str, nn.Module], recipe: Recipe, iteration: int, broke: str
) -> None:
    """Raise UserError if weights of networks, or of their averages, are not finite.

    `broke` is the text of `warnings.what_broke`; if it is empty, the error advises on the network instead.
    """
    for what, group in (("network", networks), ("averages of network", averages)):
        for name, network in group.items():
            if broken := not_finite(network):
                count = len(network.state_dict())
                raise UserError(
                    f"{recipe.path}: {what} {name!r}: {broken[0]} is not finite after iteration {iteration}"
                    f", and {len(broken) - 1} of {count - 1} other tensors; no model was written. "
                    + (broke or advice(recipe, name))
                )


def refuse_different_ranks(networks: Mapping[str, nn.Module], iteration: int) -> None:
    """Raise UserError on all ranks if one has other weights than rank 0. Collective."""
    if PartialState().num_processes == 1:
        return
    own = {name: digest(network) for name, network in networks.items()}
    digests: list[dict[str, str]] = gather_object([own])
    for rank, theirs in enumerate(digests):
        if different := [name for name in own if theirs[name] != digests[0][name]]:
            raise UserError(
                f"after iteration {iteration}, rank {rank} has other weights than rank 0: network"
                f" {', '.join(different)}; code of yours that updates weights must do the same on all ranks"
            )


def end_judged(nonfinite: Mapping[str, Sequence[int]], log: LossLog, recipe: Recipe, broke: str) -> str:
    """Return a warning if the last updates or the last validation of a training are not finite; else an empty text.

    Raises UserError if both are not. `nonfinite` are the iterations of these updates, by step; `broke` is as in
    `refuse_not_finite`.
    """
    validation = log.validation[-1] if log.validation else {}
    losses = [name.removesuffix(".raw") for name, value in validation.items() if not math.isfinite(value)]
    steps = [
        f"step {name!r}: the last {len(row)} updates were not finite, from iteration {row[0]} on"
        for name, row in nonfinite.items()
    ]
    said = "; ".join([*steps, *([f"validation is not finite for {', '.join(losses)}"] if losses else [])])
    if steps and losses:
        raise UserError(f"{recipe.path}: {said}; no model was written. {broke}")
    return f"warning: {said}; the weights are finite, and are written" if said else ""
