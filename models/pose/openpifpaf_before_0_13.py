"""OpenPifPaf's losses before 0.13: the first paper's (Kreiss, Bertoni and Alahi, CVPR 2019), 0.11's and 0.12's.

They read predictions with one log-scale per vector: [confidence, (x, y) per vector, log b per vector, scales]; that is
K = 5, 9, 7 components for cif, caf, cifdet. (The composite layout of cif also has 5, in another order.) Distances are
in cells.

A recipe declares a head that they train with `log_scales: vector` and with the `scale_law` of the loss: none (softplus)
for `BceLaplace12`, `scale_law: exp` for `BceLaplace11`, `scale_law: linear` for `Paper2019`.

    heads:
      cif: {fields: 17, log_scales: vector, scale_law: exp}
    losses:
      cif: {type: pose.BceLaplace11, head: cif, inputs: {fields: cif, target: cif_target}, weight: 1.0}
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .argument_types import Kind, NonNegative, Positive
from .field_losses import Cells, FieldLoss, bounded, soft_clamp
from .heads import SCALE_LAWS, ScaleLaw, form

PAPER_WEIGHTS: dict[Kind, tuple[float, float, float]] = {"cif": (30, 2, 2), "caf": (50, 3, 0), "cifdet": (30, 2, 0)}
PAPER_SHARE = 1000  # sums over cells are divided by it
LIMIT = 5.0
LEAST_SCALE = 0.1  # cells, in 0.12's relative difference of scales


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy with every target above 0 as foreground; 0 where the target is NaN or negative."""
    costs = -F.logsigmoid(torch.where(target > 0, logits, -logits))
    return torch.where(target >= 0, costs, 0)


class _LogScalePerVector(FieldLoss):
    log_scale_per_vector = True
    scale_law: ClassVar[ScaleLaw]

    @property
    def forms(self) -> dict[str, str]:
        """The layout that the input `fields` must have."""
        return {"fields": form(self.head, "vector", self.scale_law)}

    def log_b(self, cells: Cells, rows: Tensor, which: Tensor) -> Tensor:
        """The raw log-scales (m,) of the vectors numbered `which` in `rows`."""
        return cells.predicted[rows, 1 + 2 * self.vectors + which]


class Paper2019(_LogScalePerVector):
    """The loss of the first paper: mean cross-entropy, Laplace regression and L1 of scales, the last two summed / 1000.

    Confidence: cross-entropy, averaged over all cells of the batch that are not ignored. An example's value therefore
    also depends on how many cells its neighbours in the batch ignore; the mean over examples is the mean over cells.
    Regression: 0.694 + log b + d exp(-log b) for the distance d. Scale: |raw - scale|.

    Args:
        head: see `FieldLoss`.
        confidence: weight; None for the paper's: 30 (cif) or 50 (caf). The paper has no cifdet; it is treated like cif.
        vector: weight; None for 2 (cif) or 3 (caf).
        scale: weight; None for 2 (cif) or 0 (caf): the paper learns scales only from joints.
        background: factor on background cells.
        regression: `laplace`, or `l1` for d itself.
        field_weights: see `FieldLoss`.

    Raises:
        ValueError: no component has a weight above 0.
    """

    scale_law = "linear"

    def __init__(
        self, *, head: Kind, confidence: NonNegative | None = None, vector: NonNegative | None = None,
        scale: NonNegative | None = None, background: NonNegative = 1.0,
        regression: Literal["laplace", "l1"] = "laplace", field_weights: Sequence[NonNegative] | None = None,
    ) -> None:  # fmt: skip
        own = (confidence, vector, scale)
        weights = [p if one is None else one for one, p in zip(own, PAPER_WEIGHTS[head], strict=True)]
        super().__init__(
            head=head, confidence=weights[0], vector=weights[1], scale=weights[2], field_weights=field_weights
        )
        self.background, self.law = background, regression

    def confidence(self, logits: Tensor, target: Tensor, weights: Tensor, cells: Cells) -> Tensor:
        costs = _cross_entropy(logits, target) * torch.where(target > 0, 1.0, self.background)
        count = (target >= 0).sum().clamp_min(1)
        return costs.sum(dim=(2, 3)).mul(weights).sum(dim=1) * len(logits) / count

    def regression(self, offset: Tensor, bmin: Tensor, cells: Cells, rows: Tensor, which: Tensor) -> Tensor:
        distance = torch.linalg.vector_norm(offset, dim=1)
        if self.law == "l1":
            return distance / PAPER_SHARE
        log_b = self.log_b(cells, rows, which)
        return (0.694 + log_b + distance * (-log_b).exp()) / PAPER_SHARE

    def scale(self, raw: Tensor, target: Tensor) -> Tensor:
        return (raw - target).abs() / PAPER_SHARE


class _Focal(_LogScalePerVector):
    """Shared by 0.11 and 0.12: the arguments, and components that are sums of weight 1."""

    def __init__(
        self, *, head: Kind, confidence: NonNegative = 1.0, vector: NonNegative = 1.0, scale: NonNegative = 1.0,
        focal_gamma: NonNegative = 1.0, b_scale: Positive = 1.0, field_weights: Sequence[NonNegative] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(head=head, confidence=confidence, vector=vector, scale=scale, field_weights=field_weights)
        self.gamma, self.b_scale = focal_gamma, b_scale


class BceLaplace11(_Focal):
    """The loss of version 0.11, with hard clamps that cut the gradient.

    Confidence: cross-entropy clamped to [0.02, 5], times (1 - exp(-cross-entropy))^gamma without gradient. Regression:
    log b + (d + 0.1) exp(-log b), with the distance d clamped at 5 and log b from below at -3. Scale:
    |exp(raw) - scale| clamped at 5, / b_scale. `FieldLoss` explains `head`, the weights and `field_weights`.

    Raises:
        ValueError: no component has a weight above 0.
    """

    scale_law = "exp"

    def confidence(self, logits: Tensor, target: Tensor, weights: Tensor, cells: Cells) -> Tensor:
        costs = _cross_entropy(logits, target).clamp(0.02, LIMIT)
        costs = costs * (1 - (-costs.detach()).exp()) ** self.gamma
        return torch.where(target >= 0, costs, 0).sum(dim=(2, 3)).mul(weights).sum(dim=1)

    def regression(self, offset: Tensor, bmin: Tensor, cells: Cells, rows: Tensor, which: Tensor) -> Tensor:
        distance = torch.linalg.vector_norm(offset, dim=1).clamp_max(LIMIT)
        log_b = self.log_b(cells, rows, which).clamp_min(-3)
        return log_b + (distance + 0.1) * (-log_b).exp()

    def scale(self, raw: Tensor, target: Tensor) -> Tensor:
        return (SCALE_LAWS["exp"](raw) - target).abs().clamp_max(LIMIT) / self.b_scale


class BceLaplace12(_Focal):
    """The loss of version 0.12, with soft clamps at 5.

    Confidence: half the softly clamped cross-entropy, times (1 - p)^gamma with gradient; p is the probability of the
    correct class. Background logits are clamped to at least -15; a target between 0 and 1 is foreground with that
    weight. Regression: log b + d exp(-log b), the second term softly clamped, with d = sqrt(dx^2 + dy^2 + bmin^2) and
    log b = 3 tanh(raw / 3). Scale: |softplus(raw) - scale| / (b_scale (0.1 + scale)), softly clamped.

    Takes the arguments of `BceLaplace11`.
    """

    scale_law = "softplus"

    def confidence(self, logits: Tensor, target: Tensor, weights: Tensor, cells: Cells) -> Tensor:
        logits = torch.where(target == 0, logits.clamp_min(-15), logits)
        costs = soft_clamp(_cross_entropy(logits, target), LIMIT)
        log_wrong = F.logsigmoid(torch.where(target > 0, -logits, logits))
        costs = costs * (self.gamma * log_wrong).exp() * torch.where(target > 0, target, 1) / 2
        return costs.sum(dim=(2, 3)).mul(weights).sum(dim=1)

    def regression(self, offset: Tensor, bmin: Tensor, cells: Cells, rows: Tensor, which: Tensor) -> Tensor:
        distance = torch.linalg.vector_norm(torch.cat((offset, bmin[:, None]), dim=1), dim=1)
        log_b = bounded(self.log_b(cells, rows, which))
        return log_b + soft_clamp(distance * (-log_b).exp(), LIMIT)

    def scale(self, raw: Tensor, target: Tensor) -> Tensor:
        return soft_clamp((F.softplus(raw) - target).abs() / (self.b_scale * (LEAST_SCALE + target)), LIMIT)
