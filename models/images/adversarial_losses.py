"""Adversarial losses on a discriminator's logits, and the gradient penalty.

Logits are (N, 1, h, w), one per patch, or (N, K). An example's value is the mean over its map, so the mean over a batch
is the mean over all logits, as in the papers. There are no hidden factors: pix2pix's half is `weight: 0.5`.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.base.distributed import mean_over_ranks
from figura.interfaces import Loss

from .argument_types import NonNegative
from .example_means import at_least_float32

Kind = Literal[
    "vanilla", "lsgan", "hinge", "relativistic_average", "wgan",
    "relativistic_average_lsgan", "relativistic_average_hinge",
]  # fmt: skip
Role = Literal["discriminator", "generator"]
Target = Literal["real", "fake"]


def cross_entropy(logits: Tensor, target: Target) -> Tensor:
    """Elementwise binary cross-entropy of sigmoid(logits) with all ones (real) or all zeros (fake); same shape."""
    return -F.logsigmoid(logits if target == "real" else -logits)


def hinge(logits: Tensor, target: Target) -> Tensor:
    """Elementwise max(0, 1 - z) for real, max(0, 1 + z) for fake; same shape."""
    return (1 - logits if target == "real" else 1 + logits).clamp_min(0)


class Adversarial(Loss):
    """The distance of logits from `target`, for the discriminator's own loss and for the generator's.

    With z the logits, for each element:

    | kind | real | fake | source |
    | --- | --- | --- | --- |
    | vanilla | -log s(z), s the sigmoid | -log(1 - s(z)) | Goodfellow et al. 2014, non-saturating |
    | lsgan | (z - 1)^2 | z^2 | Mao et al. 2017, eq. 9 with a = 0, b = c = 1, without the half |
    | hinge | discriminator max(0, 1 - z); generator -z | discriminator max(0, 1 + z) | Lim and Ye 2017 |
    | wgan | -z | z | Arjovsky et al. 2017 |

    and, with u = z - mean(opposite), the relativistic averages (Jolicoeur-Martineau 2018), whose generator loss also
    pushes real images towards "fake":

    | kind | real | fake |
    | --- | --- | --- |
    | relativistic_average | -log s(u) | -log(1 - s(u)) |
    | relativistic_average_lsgan | (u - 1)^2 | (u + 1)^2 |
    | relativistic_average_hinge | max(0, 1 - u) | max(0, 1 + u) |

    Only relativistic averages read `opposite`, the logits of the other images (fakes if `logits` are of real images).
    Its mean is over the whole (micro-)batch and map on all ranks, so a value depends on the rest of the batch.
    Gradients pass through it unless the step detaches it. `role` selects one of the two hinge losses; other kinds
    ignore it.
    """

    def __init__(self, *, kind: Kind, role: Role, target: Target) -> None:
        super().__init__()
        if kind == "hinge" and role == "generator" and target == "fake":
            raise ValueError("target 'fake': the hinge generator has no such term; write target: real")
        self.kind, self.role, self.target = kind, role, target

    def forward(self, *, logits: Tensor, opposite: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Logits (N, 1, h, w) or (N, K), any float type -> (N,), at least float32."""
        relativistic = self.kind.startswith("relativistic_average")
        if relativistic and opposite is None:
            raise ValueError(
                f"{self.kind} compares two batches: input 'opposite' (the other batch's logits) is missing"
            )
        if not relativistic and opposite is not None:
            raise ValueError(f"{self.kind} reads 'logits' alone: take input 'opposite' out")
        logits = at_least_float32(logits)
        if opposite is not None:
            logits = logits - mean_over_ranks(at_least_float32(opposite).mean())
        return self._distance(logits).reshape(len(logits), -1).mean(dim=1)

    def _distance(self, logits: Tensor) -> Tensor:
        if self.kind == "lsgan":
            return (logits - 1 if self.target == "real" else logits).square()
        if self.kind == "wgan" or (self.kind == "hinge" and self.role == "generator"):
            return -logits if self.target == "real" else logits
        if self.kind == "relativistic_average_lsgan":
            return (logits - 1 if self.target == "real" else logits + 1).square()
        return hinge(logits, self.target) if self.kind.endswith("hinge") else cross_entropy(logits, self.target)


class GradientPenalty(Loss):
    """`(|d z / d points|_2 - centre)^2`: keeps a discriminator's slope at `centre` (Gulrajani et al. 2017, eq. 3).

    z is the mean of an example's logits, so that a penalty does not grow with the number of patches. The choice of
    points makes the penalty; `weight` contains the paper's factor:

    | penalty | centre | points | weight |
    | --- | --- | --- | --- |
    | R1 (Mescheder et al. 2018) | 0 | real | gamma / 2 |
    | R2 (the same) | 0 | fake | gamma / 2 |
    | WGAN-GP (Gulrajani et al. 2017), one-centred | 1 | between both | lambda, 10 in the paper |
    | one-centred at real or fake | 1 | real, or fake | lambda |

    A lazy penalty (Karras et al. 2020, appendix B) has `every: 16` in its entry, and 16 times the weight. The
    discriminator must treat examples independently: batch normalisation mixes their slopes. The penalty is
    differentiated twice, outside of autocast.
    """

    training_only: ClassVar[bool] = True
    differentiated: ClassVar[frozenset[str]] = frozenset({"points"})

    def __init__(self, *, centre: NonNegative = 1.0) -> None:
        super().__init__()
        self.centre = centre

    def forward(self, *, points: Tensor, logits: Tensor) -> Tensor:  # type: ignore[override]
        """Points (N, ...) that take a gradient, and the logits (N, ...) computed from them -> (N,)."""
        mean = at_least_float32(logits).reshape(len(logits), -1).mean(dim=1)
        with torch.autocast(points.device.type, enabled=False):
            (slope,) = torch.autograd.grad(mean.sum(), points, create_graph=True)
        # The gradient of vector_norm is 0 where the slope is 0; that of sqrt(sum of squares) would be infinite.
        norm = torch.linalg.vector_norm(at_least_float32(slope).reshape(len(points), -1), dim=1)
        return (norm - self.centre).square()
