"""LAMB and LARS fit the length of each tensor's update to that of the tensor, which large batches need.

Biases and the scales of normalisations are short, so that they would hardly move: a group takes them out of it, as the
published runs do, `steps.G.groups.rest: {pattern: "bias|norm", adapt: false, weight_decay: 0.0}`. A tensor of zeros, or one
whose gradient is zero, has a ratio of 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def trust_ratios(lengths: Sequence[Tensor], updates: Sequence[Tensor], otherwise: float = 1.0) -> Tensor:
    """Return `length / update` of each pair of norms, numbers of no dimension, and `otherwise` where one is 0: (count,)."""
    length, update = torch.stack(tuple(lengths)), torch.stack(tuple(updates))
    some = (length > 0) & (update > 0)
    return torch.where(some, length / torch.where(some, update, 1), otherwise)


class _Layerwise(torch.optim.Optimizer):
    """Updates the parameters of a group that have a gradient together; subclasses say how."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        if closure is not None:
            raise ValueError(f"{type(self).__name__} takes no closure")
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self.update(group, parameters, [p.grad for p in parameters if p.grad is not None])

    def update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Update the parameters of a group in place."""
        raise TypeError(f"{type(self).__name__} updates nothing")


class LAMB(_Layerwise):
    """Adam whose step for each tensor is as long as the tensor times the rate (You et al. 2020, algorithm 2).

    With m and v Adam's two means, their bias corrected, `u = m / (sqrt(v) + eps) + weight_decay w` and
    `w <- w - lr min(|w|, clip) / |u| u`.

    Args:
        params: parameters, or groups of them.
        lr: length of a step relative to the tensor's; 0.001 to 0.01.
        betas: of the running means of gradients and of their squares.
        eps: beside the root, above 0.
        weight_decay: part of the update, so that it is adapted too.
        clip: |w| at most, in the ratio; none where null.
        adapt: whether the ratio is taken; without it, AdamW with its decay in the update.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip: float | None = 10.0,
        adapt: bool = True,
    ) -> None:
        _check(lr, weight_decay)
        if not all(0 <= beta < 1 for beta in betas) or eps <= 0:
            raise ValueError(f"betas {betas}, eps {eps}: 0 <= beta < 1 and eps > 0 are needed")
        if clip is not None and clip <= 0:
            raise ValueError(f"clip {clip}: a length above 0, or null, is needed")
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "clip": clip, "adapt": adapt}
        super().__init__(params, options)

    def update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        first, second = group["betas"]
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state |= {"step": 0, "mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
            state["step"] += 1
        states = [self.state[parameter] for parameter in parameters]
        means, squares = [state["mean"] for state in states], [state["square"] for state in states]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, [math.sqrt(1 - second ** state["step"]) for state in states])
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(means, roots)
        torch._foreach_div_(updates, [1 - first ** state["step"] for state in states])
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["adapt"]:
            lengths, sizes = torch._foreach_norm(parameters), torch._foreach_norm(updates)
            if group["clip"] is not None:
                torch._foreach_clamp_max_(lengths, group["clip"])
            torch._foreach_mul_(updates, trust_ratios(lengths, sizes).unbind())
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


class LARS(_Layerwise):
    """Momentum with a rate of its own for each tensor (You, Gitman and Ginsburg 2017, algorithm 1).

    `v <- momentum v + rate (g + weight_decay w)` and `w <- w - v`, with the rate
    `lr trust |w| / (|g| + weight_decay |w|)`.

    Args:
        params: parameters, or groups of them.
        lr: what a schedule changes; 1 leaves lengths to `trust`.
        momentum: of the running sum of updates.
        weight_decay: times the weights, added to the gradient.
        trust: how far a tensor goes in one step, relative to its length.
        clip: the rate is `min(lr, trust |w| / (...))` instead, never above that of momentum alone (LARC).
        adapt: whether tensors have rates of their own; without, it is momentum with `lr`.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        clip: bool = False,
        adapt: bool = True,
    ) -> None:
        _check(lr, weight_decay)
        if not 0 <= momentum < 1 or trust <= 0:
            raise ValueError(f"momentum {momentum}, trust {trust}: 0 <= momentum < 1 and trust > 0 are needed")
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "clip": clip}
        super().__init__(params, {**options, "adapt": adapt})

    def update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        lr, decay = group["lr"], group["weight_decay"]
        updates = torch._foreach_add(gradients, parameters, alpha=decay)
        if group["adapt"]:
            lengths, slopes = torch._foreach_norm(parameters), torch._foreach_norm(gradients)
            bounds = torch._foreach_add(slopes, lengths, alpha=decay)
            wanted = torch._foreach_mul(lengths, group["trust"])
            ratios = trust_ratios(wanted, bounds, otherwise=lr if group["clip"] else 1.0)
            torch._foreach_mul_(updates, (ratios.clamp_max(lr) if group["clip"] else lr * ratios).unbind())
        else:
            torch._foreach_mul_(updates, lr)
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["velocity"] = torch.zeros_like(parameter)
        velocities = [self.state[parameter]["velocity"] for parameter in parameters]
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, updates)
        torch._foreach_sub_(parameters, velocities)


def _check(lr: float, weight_decay: float) -> None:
    if lr <= 0 or weight_decay < 0:
        raise ValueError(f"lr {lr}, weight_decay {weight_decay}: lr > 0 and weight_decay >= 0 are needed")
