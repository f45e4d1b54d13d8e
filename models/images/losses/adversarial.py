"""Adversarial losses on logits that a discriminator gave, and the gradient penalty.

Logits are (N, 1, h, w), one a patch, or (N, K); a value an instance is the mean over its map. The mean over a batch is
then the mean over every logit, as the papers write it. No factor is hidden: the half of pix2pix is a `weight: 0.5`.
"""

from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from models.base.distributed import mean_over_ranks
from models.images.losses.pixel import at_least_float32
from models.interfaces import Loss

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
    """How far logits are from saying `target`: what the discriminator is taught, and what the generator wants said.

    With z the logits, per element:

    | kind | real | fake | source |
    | --- | --- | --- | --- |
    | vanilla | -log s(z), s the sigmoid | -log(1 - s(z)) | Goodfellow et al. 2014, not saturating |
    | lsgan | (z - 1)^2 | z^2 | Mao et al. 2017, eq. 9 with a = 0, b = c = 1, without the half |
    | hinge | discriminator max(0, 1 - z); generator -z | discriminator max(0, 1 + z) | Lim and Ye 2017 |
    | wgan | -z | z | Arjovsky et al. 2017 |

    and, with u = z - mean(opposite), relativistic averages (Jolicoeur-Martineau 2018), in which the generator also wants
    real images called fake:

    | kind | real | fake |
    | --- | --- | --- |
    | relativistic_average | -log s(u) | -log(1 - s(u)) |
    | relativistic_average_lsgan | (u - 1)^2 | (u + 1)^2 |
    | relativistic_average_hinge | max(0, 1 - u) | max(0, 1 + u) |

    `opposite` holds the logits of the other kind (of fakes where `logits` are of real images) and belongs to
    relativistic averages alone. Its mean is over the whole batch and map, on all processes, so that values depend on what
    is in a (micro-)batch; gradients pass through it unless the step detaches it. `role` tells the two hinge
    losses apart and changes no other kind.
    """

    def __init__(self, *, kind: Kind, role: Role, target: Target) -> None:
        super().__init__()
        for name, value, allowed in (("kind", kind, Kind), ("role", role, Role), ("target", target, Target)):
            if value not in get_args(allowed):
                raise ValueError(f"{name} {value!r}: write one of {', '.join(get_args(allowed))}")
        if kind == "hinge" and role == "generator" and target == "fake":
            raise ValueError("target 'fake': the hinge generator wants its images called real; write target: real")
        self.kind, self.role, self.target = kind, role, target

    def forward(self, *, logits: Tensor, opposite: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Logits (N, 1, h, w) or (N, K), any float type -> (N,), at least float32."""
        relativistic = self.kind.startswith("relativistic_average")
        if relativistic and opposite is None:
            raise ValueError(f"{self.kind} compares two batches: input 'opposite' (the other's logits) is missing")
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

    z is an instance's logits averaged over their map, so that a penalty does not grow with the number of patches.
    The points say which penalty it is, and `weight` has the factors that papers write before it:

    | penalty | centre | points | weight |
    | --- | --- | --- | --- |
    | R1 (Mescheder et al. 2018) | 0 | real | gamma / 2 |
    | R2 (the same) | 0 | fake | gamma / 2 |
    | WGAN-GP (Gulrajani et al. 2017), one-centred | 1 | between both | lambda, 10 in the paper |
    | one-centred at real or fake | 1 | real, or fake | lambda |

    A lazy one (Karras et al. 2020, appendix B) has `every: 16` in its entry, and 16 times the weight. The discriminator
    must judge instances alone: batch normalisation mixes their slopes. It is differentiated twice, outside of autocast.
    """

    training_only: ClassVar[bool] = True
    differentiated: ClassVar[frozenset[str]] = frozenset({"points"})

    def __init__(self, *, centre: float = 1.0) -> None:
        super().__init__()
        if not 0 <= centre < float("inf"):
            raise ValueError(f"centre {centre}: a slope, 0 or more, is needed")
        self.centre = centre

    def forward(self, *, points: Tensor, logits: Tensor) -> Tensor:  # type: ignore[override]
        """Points (N, ...) that take a gradient, and the logits (N, ...) computed from them -> (N,)."""
        if not points.requires_grad:
            raise ValueError("points carry no gradient: make them require one before the discriminator reads them")
        mean = at_least_float32(logits).reshape(len(logits), -1).mean(dim=1)
        slope = None
        if mean.requires_grad:
            with torch.autocast(points.device.type, enabled=False):
                (slope,) = torch.autograd.grad(mean.sum(), points, create_graph=True, allow_unused=True)
        if slope is None:
            raise ValueError("logits do not depend on points: compute them from these very points, with gradients on")
        # vector_norm, unlike the root of a sum of squares, has a finite gradient (0) where the slope is 0.
        norm = torch.linalg.vector_norm(at_least_float32(slope).reshape(len(points), -1), dim=1)
        return (norm - self.centre).square()
