"""Classification losses on logits with classes in dimension 1, for whole examples or for every position."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.interfaces import Loss
from models.images.example_means import at_least_float32, check_fits, example_means


class CrossEntropy(Loss):
    """`-log softmax(logits)[label]`, the mean over positions; for probabilities p as labels, `-sum of p log softmax`.

    With a `mask` it is the mean weighted by the mask, and 0 if the mask is 0 everywhere.

    Args:
        ignored: positions with this label (e.g. 255) are ignored, as if the mask were 0 there.
    """

    def __init__(self, *, ignored: int | None = None) -> None:
        super().__init__()
        self.ignored = ignored

    def forward(  # type: ignore[override]
        self, *, logits: Tensor, labels: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Logits (N, K, ...); integer labels (N, ...) or probabilities (N, K, ...); mask (N, ...) -> (N,)."""
        logs = F.log_softmax(at_least_float32(logits), dim=1)
        if labels.is_floating_point():
            if labels.shape != logits.shape:
                raise ValueError(
                    f"labels of shape {tuple(labels.shape)} and a float type are probabilities: they need the shape of "
                    f"the logits, {tuple(logits.shape)}"
                )
            if self.ignored is not None:
                raise ValueError(f"ignored {self.ignored}: labels are probabilities; use a mask")
            values = -(labels * logs).sum(dim=1)
        else:
            if labels.shape != (len(logits), *logits.shape[2:]):
                raise ValueError(f"labels of shape {tuple(labels.shape)} do not fit logits of {tuple(logits.shape)}")
            labels = labels.long()
            if self.ignored is not None:
                shown = labels != self.ignored
                labels, mask = labels.where(shown, 0), shown.to(logs.dtype) * (1 if mask is None else mask)
            values = -logs.gather(1, labels.unsqueeze(1)).squeeze(1)
        return example_means(values) if mask is None else _masked(values, mask)


class BinaryCrossEntropy(Loss):
    """`-t log s(z) - (1 - t) log(1 - s(z))` for target t and logits z, s the sigmoid; the mean over each example.

    With a `mask` it is the mean weighted by the mask, as in `CrossEntropy`.
    """

    def forward(  # type: ignore[override]
        self, *, logits: Tensor, target: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Logits (N, ...); target of the same shape, any type, in [0, 1]; mask with sizes of 1 or the same -> (N,)."""
        if logits.shape != target.shape:
            raise ValueError(f"logits of shape {tuple(logits.shape)} against target of shape {tuple(target.shape)}")
        logits = at_least_float32(logits)
        values = F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="none")
        return example_means(values) if mask is None else _masked(values, mask)


class Distillation(Loss):
    """`sum over classes of p (log p - log q)`, p = softmax(teacher / T), q = softmax(student / T); mean over positions.

    This is KL(teacher || student) (Hinton, Vinyals and Dean 2015, section 2). The teacher gets no gradient.

    Args:
        temperature: T, above 0; higher values increase the influence of the teacher's probabilities of wrong classes.
            Gradients shrink by 1 / T^2; a `weight` of T^2 keeps the balance with a cross entropy.
    """

    def __init__(self, *, temperature: float) -> None:
        super().__init__()
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature {temperature}: a number above 0 is needed")
        self.temperature = temperature

    def forward(self, *, student: Tensor, teacher: Tensor) -> Tensor:  # type: ignore[override]
        """Logits (N, K, ...) of one shape -> (N,)."""
        if student.shape != teacher.shape:
            raise ValueError(f"student of shape {tuple(student.shape)} against teacher of {tuple(teacher.shape)}")
        q = F.log_softmax(at_least_float32(student) / self.temperature, dim=1)
        p = F.log_softmax(at_least_float32(teacher.detach()) / self.temperature, dim=1)
        return example_means((p.exp() * (p - q)).sum(dim=1))


def _masked(values: Tensor, mask: Tensor) -> Tensor:
    check_fits("mask", mask, values)
    return example_means(values, mask.to(torch.promote_types(mask.dtype, values.dtype)))
