"""Losses on logits that say what something is: classes are dimension 1, of whole instances or of every position."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from models.images.losses.pixel import at_least_float32, check_fits, instance_means
from models.interfaces import Loss


class CrossEntropy(Loss):
    """`-log softmax(logits)[label]`, the mean over positions; or with probabilities p as labels, `-sum of p log softmax`.

    With a `mask` it is the mean over what the mask shows, each position weighing its value; 0 where it shows nothing.

    Args:
        ignored: a label (255, say) whose positions are left out, as if the mask were 0 there.
        smoothing: share of the probability that is spread evenly over classes, in [0, 1) (Szegedy et al. 2016, section 7).
    """

    def __init__(self, *, ignored: int | None = None, smoothing: float = 0.0) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing {smoothing}: 0 <= smoothing < 1 is needed")
        self.ignored, self.smoothing = ignored, smoothing

    def forward(  # type: ignore[override]
        self, *, logits: Tensor, labels: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Logits (N, K, ...); labels (N, ...) of an integer type, or probabilities (N, K, ...); mask (N, ...) -> (N,)."""
        logs = F.log_softmax(at_least_float32(logits), dim=1)
        if labels.is_floating_point():
            if labels.shape != logits.shape:
                raise ValueError(
                    f"labels of shape {tuple(labels.shape)} and a float type are probabilities: those of logits "
                    f"{tuple(logits.shape)} have the same shape"
                )
            if self.ignored is not None:
                raise ValueError(f"ignored {self.ignored}: labels are probabilities; use a mask")
            hits = (labels * logs).sum(dim=1)
        else:
            if labels.shape != (len(logits), *logits.shape[2:]):
                raise ValueError(f"labels of shape {tuple(labels.shape)} do not fit logits of {tuple(logits.shape)}")
            labels = labels.long()
            if self.ignored is not None:
                shown = labels != self.ignored
                labels, mask = labels.where(shown, 0), shown.to(logs.dtype) * (1 if mask is None else mask)
            hits = logs.gather(1, labels.unsqueeze(1)).squeeze(1)
        values = -(1 - self.smoothing) * hits - self.smoothing * logs.mean(dim=1)
        return instance_means(values) if mask is None else _masked(values, mask)


class BinaryCrossEntropy(Loss):
    """`-t log s(z) - (1 - t) log(1 - s(z))`, s the sigmoid, z the logits, the mean over everything but instances.

    With a `mask` it is the mean over what the mask shows, as in `CrossEntropy`.
    """

    def forward(  # type: ignore[override]
        self, *, logits: Tensor, target: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Logits (N, ...); target of the same shape, any type, in [0, 1]; mask with sizes of 1 or the same -> (N,)."""
        if logits.shape != target.shape:
            raise ValueError(f"logits of shape {tuple(logits.shape)} against target of shape {tuple(target.shape)}")
        logits = at_least_float32(logits)
        values = F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="none")
        return instance_means(values) if mask is None else _masked(values, mask)


class Distillation(Loss):
    """`sum over classes of p (log p - log q)`, p = softmax(teacher / T) and q = softmax(student / T), mean over positions.

    The Kullback-Leibler divergence of the teacher from the student (Hinton, Vinyals and Dean 2015, section 2). The
    teacher gets no gradient.

    Args:
        temperature: T, above 0; the higher, the more of what the teacher thinks of wrong classes counts.
        times_square: multiply by T^2, which undoes that gradients shrink by it; a cross entropy beside it then keeps
            its share when T changes.
    """

    def __init__(self, *, temperature: float, times_square: bool = False) -> None:
        super().__init__()
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature {temperature}: a number above 0 is needed")
        self.temperature, self.factor = temperature, temperature**2 if times_square else 1.0

    def forward(self, *, student: Tensor, teacher: Tensor) -> Tensor:  # type: ignore[override]
        """Logits (N, K, ...) of one shape -> (N,)."""
        if student.shape != teacher.shape:
            raise ValueError(f"student of shape {tuple(student.shape)} against teacher of {tuple(teacher.shape)}")
        q = F.log_softmax(at_least_float32(student) / self.temperature, dim=1)
        p = F.log_softmax(at_least_float32(teacher.detach()) / self.temperature, dim=1)
        return self.factor * instance_means((p.exp() * (p - q)).sum(dim=1))


def _masked(values: Tensor, mask: Tensor) -> Tensor:
    check_fits("mask", mask, values)
    return instance_means(values, mask.to(torch.promote_types(mask.dtype, values.dtype)))
