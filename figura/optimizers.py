"""Optimizers with types without a dot: Muon. Others are dotted, such as `torch.optim.Adam`."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration; Jordan et al. 2024
SMALLEST = 8  # with a shorter side (input and output convolutions), there is no spectrum worth equalising


def orthogonalised(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Bring all singular values of a batch of matrices (B, rows, columns) near 1, by Newton-Schulz iteration.

    X <- a X + b (X X') X + c (X X')^2 X from X / |X|_F; singular values end between about 0.7 and 1.2 (Jordan et al.,
    *Muon: an optimizer for hidden layers in neural networks*, 2024). Every iterate is a polynomial in S = X X' times
    the first X. Long matrices therefore iterate on S, a square of the shorter side, and only two products involve X.
    """
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    norm = torch.linalg.matrix_norm(wide, keepdim=True) + 1e-7
    rows, columns = wide.shape[1:]
    # multiply-adds in rows^3, r = columns / rows: 5 iterations on X take 10 r + 5, on S 2 r + 17
    iterate = _iterated_on_squares if columns > 1.5 * rows else _iterated
    x = iterate(wide / norm, iterations)
    return x if wide is matrices else x.mT


def _iterated(x: Tensor, iterations: int) -> Tensor:
    a, b, c = COEFFICIENTS
    for _ in range(iterations):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


def _iterated_on_squares(x: Tensor, iterations: int) -> Tensor:
    a, b, c = COEFFICIENTS
    square = x @ x.mT
    product = None
    for left in reversed(range(iterations)):
        factor = torch.baddbmm(square, square, square, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        product = factor if product is None else factor @ product
        square = factor @ square @ factor if left else square
    return x if product is None else product @ x


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for matrices and convolutions, Adam for everything else.

    A weight of two or more dimensions is flattened to a matrix (outputs, the rest). If both sides are at least 8, its
    update is `-lr sqrt(max(1, rows / columns))` times its orthogonalised Nesterov momentum (Jordan et al. 2024).
    `torch.optim.Muon` supports only 2-D weights, and updates them one by one, which dominates the time on small
    networks; here weights of equal shape are updated together. `torch.optim.Adam` with `rest_lr` and `betas` updates
    the other parameters. A learning-rate schedule multiplies both rates.

    Args:
        params: parameters.
        lr: length of a step in spectral norm; 0.002 to 0.02.
        rest_lr: Adam's learning rate.
        momentum: of the running mean of the matrices' gradients.
        betas: of Adam.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        rest_lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.99),
    ) -> None:
        if lr <= 0 or rest_lr <= 0 or not 0 <= momentum < 1:
            raise ValueError(
                f"lr {lr}, rest_lr {rest_lr}, momentum {momentum}: rates > 0 and 0 <= momentum < 1 are needed"
            )
        parameters = list(params)
        if any(isinstance(one, dict) for one in parameters):
            raise ValueError("Muon sorts parameters itself; leave out `groups`")
        matrices = [p for p in parameters if p.ndim >= 2 and min(p.shape[0], p[0].numel()) >= SMALLEST]
        chosen = set(map(id, matrices))
        rest = [p for p in parameters if id(p) not in chosen]
        groups = [{"params": matrices, "lr": lr}, {"params": rest, "lr": rest_lr}]
        super().__init__([group for group in groups if group["params"]], {"momentum": momentum})
        self._adam = torch.optim.Adam(rest, lr=rest_lr, betas=betas, fused=True) if rest else None
        self._matrices = bool(matrices)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        if closure is not None:
            raise ValueError("Muon takes no closure")
        if self._matrices:
            group = self.param_groups[0]
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for parameters in by_shape.values():
                self._update(parameters, group["lr"], group["momentum"])
        if self._adam is not None:
            self._adam.param_groups[0]["lr"] = self.param_groups[-1]["lr"]
            self._adam.step()

    def _update(self, parameters: list[Tensor], lr: float, momentum: float) -> None:
        gradients = torch.stack([parameter.grad.flatten(1) for parameter in parameters if parameter.grad is not None])
        for parameter in parameters:
            if "mean" not in self.state[parameter]:
                self.state[parameter]["mean"] = torch.zeros_like(parameter).flatten(1)
        means = torch.stack([self.state[parameter]["mean"] for parameter in parameters]).lerp_(gradients, 1 - momentum)
        for parameter, mean in zip(parameters, means.unbind(), strict=True):
            self.state[parameter]["mean"] = mean
        rows, columns = gradients.shape[1:]
        scale = -lr * max(1.0, rows / columns) ** 0.5
        updates = orthogonalised(gradients.lerp(means, momentum)).mul_(scale)
        torch._foreach_add_(parameters, [u.view(p.shape) for u, p in zip(updates.unbind(), parameters, strict=True)])

    def state_dict(self) -> dict[str, Any]:
        """Return both parts' states."""
        return {"matrices": super().state_dict(), "rest": self._adam.state_dict() if self._adam else {}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state_dict["matrices"])
        if self._adam:
            self._adam.load_state_dict(state_dict["rest"])
