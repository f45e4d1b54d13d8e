"""The gradients of a step: how large they are, and that processes have them for the same parameters."""

from collections.abc import Mapping, Sequence

import torch
from accelerate import Accelerator
from torch import Tensor, nn


def norms_of(parameters: Mapping[str, Sequence[nn.Parameter]]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the 2-norm of the gradient of all parameters, and that of each network that has one.

    That of several networks is the norm of their norms: each gradient is read once.
    """
    gradients = {name: [p.grad for p in own if p.grad is not None] for name, own in parameters.items()}
    norms = {name: torch.nn.utils.get_total_norm(found) for name, found in gradients.items() if found}
    every = list(norms.values())
    if not every:
        return torch.zeros((), device=next(p.device for own in parameters.values() for p in own)), norms
    return every[0] if len(every) == 1 else torch.nn.utils.get_total_norm(every), norms


def clip(parameters: Sequence[nn.Parameter], norm: Tensor, value: float | None, largest: float | None) -> None:
    """Clip each element to +-`value`, then the 2-norm of the whole gradient, which is `norm` so far, to `largest`."""
    if value is not None:
        torch.nn.utils.clip_grad_value_(parameters, value)
    if largest is not None:
        if value is not None:
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)


def average(parameters: Sequence[nn.Parameter], accelerator: Accelerator) -> None:
    """Replace each gradient by its mean over the processes, once all parts of a batch have been through.

    Gates and mixtures of datasets may leave parameters out: where one process has no gradient it counts as zero, and
    what no process has a gradient for keeps none, because momentum and weight decay would move it. Steps may go back
    through forwards of earlier steps, in parts. `DistributedDataParallel` allows neither: it waits for the gradients of all
    parameters after each forward. What that costs is in docs/scaling.md.
    """
    kinds: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault(parameter.dtype, []).append(parameter)
    for dtype, chosen in kinds.items():
        reached = torch.tensor([parameter.grad is not None for parameter in chosen], dtype=dtype)
        parts = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in chosen]
        sizes = [*map(len, parts), len(chosen)]
        *means, shares = accelerator.reduce(torch.cat([*parts, reached.to(parts[0].device)]), "mean").split(sizes)
        for parameter, mean, share in zip(chosen, means, shares.tolist(), strict=True):
            parameter.grad = mean.view_as(parameter) if share else None
