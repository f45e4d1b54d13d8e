"""The composite loss of composite fields (OpenPifPaf 0.13; Kreiss, Bertoni and Alahi, T-ITS 2021).

Sizes are in cells of the field. The spread logit z of a cell stands for s = 3 tanh(z / 3), the log-variance that its
confidence and its vectors share.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from models.pose.train.field_losses import Cells, FieldLoss, bounded, soft_clamp
from models.pose.train.heads import Kind, form

Regression = Literal["laplace", "gaussian"]
LN_2 = 0.69314  # the reference's digits: its logged values are reproduced
HALF_LN_2_PI = math.log(2 * math.pi) / 2
SCALE_PER_SPREAD = {"cif": 0.5, "caf": 0.5, "cifdet": 0.1}  # a joint's scale is read as two sigmas


def gradient_matched(logit: Tensor, sign: float, alpha: float, gamma: float) -> Tensor:
    """A Huber loss whose slope in `logit` is that of the focal loss (Lin et al. 2017); same shape.

    With q the probability of the wrong answer and p = 1 - q, alpha times the focal loss -q^gamma ln p has the slope
    -sign q phi, phi = alpha (q^gamma - gamma q^(gamma - 1) p ln p). That is the slope of (logit - tau)^2 / 2 for
    tau = logit + sign q phi, held constant. The value is therefore (q phi)^2 / 2, and no derivative of it is the slope.

    Args:
        logit: of being foreground.
        sign: 1 where foreground is right, -1 where background is.
        alpha: factor on the slope, above 0.
        gamma: 0 or more; 0 gives cross-entropy's slope.
    """
    with torch.no_grad():
        wrong, surprise = torch.sigmoid(-sign * logit), -F.logsigmoid(sign * logit)
        step = alpha * wrong**gamma * (wrong + gamma * (1 - wrong) * surprise)  # q phi
    return F.smooth_l1_loss(logit - logit.detach(), sign * step, reduction="none")  # exact, unlike logit - tau


class Composite(FieldLoss):
    """The loss of version 0.13. Predictions are [z, confidence, (x, y) a vector, scales], K = 5, 8, 6.

    Confidence: `gradient_matched`, and where there is something to find l -> l exp(-s) / 2 + s / 2. Regression: with
    e = sqrt(dx^2 + dy^2 + bmin^2) / (k scale), the negative log-likelihood of e under a Laplace law of spread
    2 exp(s / 2), up to ln 2, or under a normal law of variance exp(s). k is 0.5, and 0.1 for cifdet, whose scale is the
    norm of (width, height); an unknown scale is replaced by the predicted one, without gradient. Scale: Huber loss of
    |softplus(raw) - scale| / (b_scale (0.1 + scale)). Values may be negative: s falls where a network is sure.

    Args:
        head: cif, caf or cifdet; see `FieldLoss` for it, the weights and `field_weights`.
        confidence: weight; at 1 for all, vectors outweigh it by far at first.
        vector: weight.
        scale: weight; cifdet has none.
        focal_alpha: factor on the confidence's slope; 1 for none.
        focal_gamma: of the focal loss.
        background_clamp: the logit below which background is left alone; None: never.
        confidence_soft_clamp: where `soft_clamp` begins in this component (never reached at the default alpha and gamma).
        regression_soft_clamp: the same, on e.
        scale_soft_clamp: the same, on the relative difference.
        regression: the law.
        b_scale: tolerance of scales; values fall with its square.
        scale_log: compare logarithms, |ln softplus(raw) - ln scale| / b_scale.
        scale_floor: cells; a smaller scale counts as this much in e. Eyes and noses of small people, with scales of a seventh
            of a cell, otherwise outweigh everything.

    Raises:
        ValueError: for arguments out of range.
    """

    spread_a_vector = False

    def __init__(
        self, *, head: Kind, confidence: float = 1.0, vector: float = 1.0, scale: float = 1.0,
        focal_alpha: float = 0.5, focal_gamma: float = 1.0, background_clamp: float | None = -15.0,
        confidence_soft_clamp: float | None = 5.0, regression_soft_clamp: float | None = 5.0,
        scale_soft_clamp: float | None = 5.0, regression: Regression = "laplace", b_scale: float = 1.0,
        scale_log: bool = False, scale_floor: float = 0.0, field_weights: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(head=head, confidence=confidence, vector=vector, scale=scale, field_weights=field_weights)
        if regression not in get_args(Regression):
            raise ValueError(f"regression {regression!r}: one of {', '.join(get_args(Regression))} is needed")
        if focal_alpha <= 0 or focal_gamma < 0:
            raise ValueError(
                f"focal_alpha {focal_alpha}, focal_gamma {focal_gamma}: above 0, and 0 or more, are needed"
            )
        if background_clamp is not None and background_clamp >= 0:
            raise ValueError(f"background_clamp {background_clamp}: a negative logit, or null, is needed")
        self.clamps = (confidence_soft_clamp, regression_soft_clamp, scale_soft_clamp)
        if any(clamp is not None and clamp <= 0 for clamp in self.clamps) or b_scale <= 0 or scale_floor < 0:
            raise ValueError(
                f"soft clamps {self.clamps}, b_scale {b_scale}, scale_floor {scale_floor}: clamps above 0 or null, "
                "b_scale above 0 and a floor of 0 or more are needed"
            )
        # neither slopes nor costs of confidences get above this, as -p ln p <= 1 / e; mostly there is nothing to clamp
        highest = focal_alpha * (1 + focal_gamma / math.e)
        reached = confidence_soft_clamp is not None and highest > confidence_soft_clamp
        self.confidence_clamp = confidence_soft_clamp if reached else None
        self.alpha, self.gamma, self.background_clamp, self.law = focal_alpha, focal_gamma, background_clamp, regression
        self.b_scale, self.scale_log, self.scale_floor = b_scale, scale_log, scale_floor

    @property
    def forms(self) -> dict[str, str]:
        """The form that a role's fields must have."""
        return {"fields": form(self.head, "shared", "softplus")}

    def confidence(self, logits: Tensor, target: Tensor, weights: Tensor, cells: Cells) -> Tensor:
        background = target == 0
        if self.background_clamp is not None:
            background &= ~(logits.detach() < self.background_clamp)  # not >=, which would hide a NaN
        costs = soft_clamp(gradient_matched(logits, -1.0, self.alpha, self.gamma), self.confidence_clamp)
        empty = torch.where(background, costs, 0).sum(dim=(2, 3)).mul(weights).sum(dim=1)
        rows = (cells.target[:, 0] > 0).nonzero().squeeze(1)
        z, logits = cells.predicted[rows, :2].unbind(dim=1)
        costs = soft_clamp(gradient_matched(logits, 1.0, self.alpha, self.gamma), self.confidence_clamp)
        s = bounded(z)
        return empty + cells.total((costs * (-s).exp() + s) / 2, rows)

    def regression(self, offset: Tensor, bmin: Tensor, cells: Cells, rows: Tensor, which: Tensor) -> Tensor:
        if self.scales:
            size = cells.target[:, -self.scales :][rows, which]
            guess = F.softplus(cells.predicted[:, -self.scales :][rows, which].detach())
            size = torch.where(size.isnan(), guess, size)
        else:
            size = torch.linalg.vector_norm(cells.target[rows, 3:5], dim=1)
        distance = torch.linalg.vector_norm(torch.cat((offset, bmin[:, None]), dim=1), dim=1)
        error = distance / (SCALE_PER_SPREAD[self.head] * size.clamp_min(self.scale_floor))
        error = soft_clamp(error, self.clamps[1])
        s = bounded(cells.predicted[rows, 0])
        if self.law == "gaussian":
            return error.square() * (-s).exp() / 2 + s / 2 + HALF_LN_2_PI
        beta = s / 2 + LN_2
        return error * (-beta).exp() + beta

    def scale(self, raw: Tensor, target: Tensor) -> Tensor:
        found = F.softplus(raw)
        if self.scale_log:
            tiny = torch.finfo(found.dtype).tiny
            difference = (found.clamp_min(tiny).log() - target.log()).abs() / self.b_scale
        else:
            difference = (found - target).abs() / (self.b_scale * (0.1 + target))
        difference = soft_clamp(difference, self.clamps[2])
        return F.smooth_l1_loss(difference, torch.zeros_like(difference), reduction="none")
