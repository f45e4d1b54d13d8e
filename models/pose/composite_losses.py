"""The loss of composite fields in OpenPifPaf 0.13 (Kreiss, Bertoni and Alahi, T-ITS 2021).

Source: openpifpaf/network/losses/components.py. Sizes are in cells. Each cell has one log-scale logit z, which encodes
the log-variance s = 3 tanh(z / 3), which the cell's confidence and vectors share.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from .argument_types import Kind, NonNegative, Positive
from .field_losses import Cells, FieldLoss, bounded, soft_clamp, where
from .heads import form

Negative = Annotated[float, Field(lt=0.0, allow_inf_nan=False)]
LN_2 = 0.69314  # OpenPifPaf's digits, to reproduce the values it logs
HALF_LN_2_PI = math.log(2 * math.pi) / 2
SIGMA_PER_SCALE = {"cif": 0.5, "caf": 0.5, "cifdet": 0.1}  # a joint's scale is two sigmas


def gradient_matched(logit: Tensor, sign: float, alpha: float, gamma: float) -> Tensor:
    """A Huber loss whose gradient in `logit` is that of the focal loss (Lin et al. 2017); same shape.

    Let q be the probability of the wrong class and p = 1 - q. Alpha times the focal loss -q^gamma ln p has the gradient
    -sign q phi, phi = alpha (q^gamma - gamma q^(gamma - 1) p ln p). (logit - tau)^2 / 2 with the constant tau = logit +
    sign q phi has the same gradient; its value is (q phi)^2 / 2.

    Args:
        logit: of foreground.
        sign: 1 for foreground targets, -1 for background.
        alpha: factor on the gradient, above 0.
        gamma: 0 or more; 0 gives the gradient of cross-entropy.
    """
    with torch.no_grad():
        wrong, surprise = torch.sigmoid(-sign * logit), -F.logsigmoid(sign * logit)
        step = alpha * wrong**gamma * (wrong + gamma * (1 - wrong) * surprise)  # q phi
    return F.smooth_l1_loss(logit - logit.detach(), sign * step, reduction="none")  # exact, unlike logit - tau


class Composite(FieldLoss):
    """The loss of version 0.13. Predictions are [z, confidence, (x, y) per vector, scales], K = 5, 8, 6 components.

    Confidence: `gradient_matched`; in foreground cells its value l becomes l exp(-s) / 2 + s / 2. Regression: with e =
    sqrt(dx^2 + dy^2 + bmin^2) / (k scale), the negative log-likelihood of e under a Laplace distribution with scale b =
    2 exp(s / 2) (without the constant ln 2), or under a normal distribution with variance exp(s). k is 0.5 for joints;
    for cifdet k is 0.1 and the scale is the norm of (width, height). The predicted scale, without gradient, replaces an
    unknown one. Scale: Huber loss of |softplus(raw) - scale| / (b_scale (0.1 + scale)). Values can be negative: s
    decreases where the network is confident.

    Args:
        head: cif, caf or cifdet. `FieldLoss` explains it, the weights and `field_weights`.
        confidence: weight. With weights of 1, the vectors dominate it at first.
        vector: weight.
        scale: weight; cifdet has no scales.
        focal_alpha: factor on the gradient of the confidence; 1 has no effect.
        focal_gamma: of the focal loss.
        background_clamp: background cells with a lower logit have no loss; None for no limit.
        confidence_soft_clamp: limit of `soft_clamp` in this component (out of reach at the default alpha and gamma).
        regression_soft_clamp: the same for e.
        scale_soft_clamp: the same for the relative difference.
        regression: distribution of e, laplace or gaussian.
        b_scale: tolerance of scales; small errors count 1 / b_scale^2.
        scale_log: compare logarithms, |ln softplus(raw) - ln scale| / b_scale.
        scale_floor: smallest scale in e, cells. Eyes and noses of small people have scales of a seventh of a cell;
            without a floor they dominate.

    Raises:
        ValueError: no component has a weight above 0.
    """

    log_scale_per_vector = False

    def __init__(
        self, *, head: Kind, confidence: NonNegative = 1.0, vector: NonNegative = 1.0, scale: NonNegative = 1.0,
        focal_alpha: Positive = 0.5, focal_gamma: NonNegative = 1.0, background_clamp: Negative | None = -15.0,
        confidence_soft_clamp: Positive | None = 5.0, regression_soft_clamp: Positive | None = 5.0,
        scale_soft_clamp: Positive | None = 5.0, regression: Literal["laplace", "gaussian"] = "laplace",
        b_scale: Positive = 1.0, scale_log: bool = False, scale_floor: NonNegative = 0.0,
        field_weights: Sequence[NonNegative] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(head=head, confidence=confidence, vector=vector, scale=scale, field_weights=field_weights)
        self.regression_clamp, self.scale_clamp = regression_soft_clamp, scale_soft_clamp
        # gradients and values of the confidence stay below this, as -p ln p <= 1 / e; usually nothing is clamped
        highest = focal_alpha * (1 + focal_gamma / math.e)
        reached = confidence_soft_clamp is not None and highest > confidence_soft_clamp
        self.confidence_clamp = confidence_soft_clamp if reached else None
        self.alpha, self.gamma, self.background_clamp, self.law = focal_alpha, focal_gamma, background_clamp, regression
        self.b_scale, self.scale_log, self.scale_floor = b_scale, scale_log, scale_floor

    @property
    def forms(self) -> dict[str, str]:
        """The layout that the input `fields` must have."""
        return {"fields": form(self.head, "shared", "softplus")}

    def confidence(self, logits: Tensor, target: Tensor, weights: Tensor, cells: Cells) -> Tensor:
        background = target == 0
        if self.background_clamp is not None:
            background &= ~(logits.detach() < self.background_clamp)  # >= would hide a NaN
        costs = soft_clamp(gradient_matched(logits, -1.0, self.alpha, self.gamma), self.confidence_clamp)
        background_total = torch.where(background, costs, 0).sum(dim=(2, 3)).mul(weights).sum(dim=1)
        (rows,) = where(cells.target[:, 0] > 0, cells.counts[0])
        z, logits = cells.predicted[rows, :2].unbind(dim=1)
        costs = soft_clamp(gradient_matched(logits, 1.0, self.alpha, self.gamma), self.confidence_clamp)
        s = bounded(z)
        return background_total + cells.total((costs * (-s).exp() + s) / 2, rows)

    def regression(self, offset: Tensor, bmin: Tensor, cells: Cells, rows: Tensor, which: Tensor) -> Tensor:
        if self.scales:
            size = cells.target[:, -self.scales :][rows, which]
            predicted = F.softplus(cells.predicted[:, -self.scales :][rows, which].detach())
            size = torch.where(size.isnan(), predicted, size)
        else:
            size = torch.linalg.vector_norm(cells.target[rows, 3:5], dim=1)
        distance = torch.linalg.vector_norm(torch.cat((offset, bmin[:, None]), dim=1), dim=1)
        error = distance / (SIGMA_PER_SCALE[self.head] * size.clamp_min(self.scale_floor))
        error = soft_clamp(error, self.regression_clamp)
        s = bounded(cells.predicted[rows, 0])
        if self.law == "gaussian":
            return error.square() * (-s).exp() / 2 + s / 2 + HALF_LN_2_PI
        beta = s / 2 + LN_2
        return error * (-beta).exp() + beta

    def scale(self, raw: Tensor, target: Tensor) -> Tensor:
        predicted = F.softplus(raw)
        if self.scale_log:
            tiny = torch.finfo(predicted.dtype).tiny
            difference = (predicted.clamp_min(tiny).log() - target.log()).abs() / self.b_scale
        else:
            difference = (predicted - target).abs() / (self.b_scale * (0.1 + target))
        difference = soft_clamp(difference, self.scale_clamp)
        return F.smooth_l1_loss(difference, torch.zeros_like(difference), reduction="none")
