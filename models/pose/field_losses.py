"""Shared parts of the losses of composite fields: cell selection, sums per example, weights, learnt ones too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from figura.interfaces import Loss

from ..images.example_means import at_least_float32
from .argument_types import Kind
from .heads import LAYOUTS

TASKS = ("confidence", "scale")  # vectors already have a log-scale per cell
BMIN = 0.1  # cells; default for targets without bmin


def soft_clamp(values: Tensor, limit: float | None) -> Tensor:
    """Map values v above `limit` M to M + ln(1 - M + v), with slope 1 at M; None has no effect."""
    if limit is None:
        return values
    return torch.where(values > limit, limit + (values - limit).clamp_min(0).log1p(), values)


def bounded(logit: Tensor) -> Tensor:
    """3 tanh(x / 3): within (-3, 3), slope 1 at 0."""
    return 3 * (logit / 3).tanh()


@dataclass(frozen=True)
class Cells:
    """The n foreground cells of a batch, and those with any regression target.

    Attributes:
        predicted: (n, components of a prediction).
        target: (n, components of a target).
        example: int64 (n,), which example of the batch each cell belongs to.
        weight: (n,), the weight of the cell's field.
        batch: number of examples.
        counts: how many cells are foreground, vectors are known, and scales are known.
    """

    predicted: Tensor
    target: Tensor
    example: Tensor
    weight: Tensor
    batch: int
    counts: Sequence[int]

    def total(self, values: Tensor, rows: Tensor) -> Tensor:
        """Sum values (m,) of the cells `rows` (m,) over each example; shape (batch,)."""
        return values.new_zeros(self.batch).index_add(0, self.example[rows], values * self.weight[rows])


def where(mask: Tensor, count: int) -> tuple[Tensor, ...]:
    """Return the indices of the `count` true elements as `mask.nonzero(as_tuple=True)`, without waiting for a GPU."""
    return torch.nonzero_static(mask, size=count).unbind(dim=1)


class FieldLoss(Loss):
    """A loss between a head's prediction (B, F, K, h, w) and target (B, F, T, h, w); forward returns its components.

    Targets are [confidence, (x, y) per vector, bmin per vector, scales]; T = 5, 9, 7 for cif, caf, cifdet. Cells with a
    NaN target are excluded from that component. Valid cells are selected before anything is computed, so that NaN never
    reaches a gradient.

    Args:
        head: cif, caf or cifdet.
        confidence: weight of the component; 0 skips it. `vector` and `scale` likewise.
        field_weights: one factor per field, for all components; None for 1.

    Raises:
        ValueError: no component has a weight above 0.
    """

    log_scale_per_vector: ClassVar[bool]  # the layout of predictions: one log-scale per vector, or one per cell
    field_weights: Tensor | None

    def __init__(
        self, *, head: Kind, confidence: float, vector: float, scale: float, field_weights: Sequence[float] | None
    ) -> None:
        super().__init__()
        weights = {"confidence": confidence, "vector": vector, "scale": scale}
        self.head, self.vectors, self.scales = head, len(LAYOUTS[head].positional), LAYOUTS[head].scales
        self.weights = {name: w for name, w in weights.items() if w > 0 and (name != "scale" or self.scales)}
        if not self.weights:
            raise ValueError(f"confidence {confidence}, vector {vector}, scale {scale}: {head} has no component left")
        fields = torch.tensor(field_weights) if field_weights else None
        self.register_buffer("field_weights", fields, persistent=False)
        self.first_vector = 1 if self.log_scale_per_vector else 2
        self.components = self.first_vector + 2 * self.vectors + self.log_scale_per_vector * self.vectors + self.scales

    def forward(  # type: ignore[override]
        self, *, fields: Tensor, target: Tensor, log_sigmas: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return component -> weighted sum over the cells of each example (B,), from raw fields and their target.

        Computes in the dtype of `fields`, in float32 where that is half precision. `log_sigmas` (2,) is this head's
        output of `TaskWeights`; the weights apply on top.
        """
        self._check(fields, target)
        target = target.to(torch.promote_types(fields.dtype, torch.float32))
        weights = target.new_ones(target.shape[1]) if self.field_weights is None else self.field_weights.to(target)
        foreground, known = target[:, :, 0] > 0, target[:, :, 1:].isfinite()
        judged = foreground | known.any(dim=2)
        vectors = self._whole(known[:, :, : 2 * self.vectors].unflatten(2, (self.vectors, 2)).all(dim=3), 2)
        masks = judged, foreground, vectors, known[:, :, 3 * self.vectors :]
        count, *counts = torch.stack([mask.sum() for mask in masks]).tolist()  # the only wait for a GPU
        example, field, row, column = where(judged, count)
        predicted = at_least_float32(fields[example, field, :, row, column])
        targets = target[example, field, :, row, column]
        cells = Cells(predicted, targets, example, weights[field], len(fields), counts)
        values = {}
        if "confidence" in self.weights:
            logits = at_least_float32(fields[:, :, self.first_vector - 1])
            values["confidence"] = self.confidence(logits, target[:, :, 0], weights, cells)
        if "vector" in self.weights:
            values["vector"] = self._vector(cells)
        if "scale" in self.weights:
            rows, which = where(cells.target[:, -self.scales :].isfinite(), cells.counts[2])
            raw, scales = (x[:, -self.scales :][rows, which] for x in (cells.predicted, cells.target))
            values["scale"] = cells.total(self.scale(raw, scales), rows)
        if log_sigmas is not None:
            values = task_weighted(values, log_sigmas)
        return {name: self.weights[name] * value for name, value in values.items()}

    def _vector(self, cells: Cells) -> Tensor:
        n, start = self.vectors, self.first_vector
        targets = cells.target[:, 1 : 1 + 2 * n].unflatten(1, (n, 2))
        rows, which = where(self._whole(targets.isfinite().all(dim=2), 1), cells.counts[1])
        vectors = cells.predicted[:, start : start + 2 * n].unflatten(1, (n, 2))[rows, which]
        bmin = cells.target[:, 1 + 2 * n : 1 + 3 * n][rows, which].nan_to_num(nan=BMIN)
        offset = vectors - targets[rows, which]
        return cells.total(self.regression(offset, bmin, cells, rows, which), rows)

    def _whole(self, known: Tensor, dim: int) -> Tensor:
        """Which vectors count, of those known; `dim` numbers the vectors of a cell."""
        if self.head == "cifdet":  # the box's size normalises the distance of its centre
            return known.all(dim=dim, keepdim=True).expand_as(known)
        return known

    def _check(self, fields: Tensor, target: Tensor) -> None:
        wanted = 1 + 3 * self.vectors + self.scales
        for role, tensor, components in (("fields", fields, self.components), ("target", target, wanted)):
            if tensor.ndim != 5 or tensor.shape[2] != components:
                shape = f"(B, F, {components}, h, w)"
                raise ValueError(f"{role} {tuple(tensor.shape)}: {type(self).__name__} of {self.head} needs {shape}")
        if (*fields.shape[:2], *fields.shape[3:]) != (*target.shape[:2], *target.shape[3:]):
            raise ValueError(f"fields {tuple(fields.shape)}, target {tuple(target.shape)}: same B, F, h, w are needed")
        if self.field_weights is not None and len(self.field_weights) != fields.shape[1]:
            raise ValueError(f"field_weights: {len(self.field_weights)} for {fields.shape[1]} fields")

    def confidence(self, logits: Tensor, target: Tensor, weights: Tensor, cells: Cells) -> Tensor:
        """Logits and target (B, F, h, w), weights (F,) -> (B,); ignores cells whose target is NaN or negative."""
        raise TypeError(f"{type(self).__name__} judges no confidences")

    def regression(self, offset: Tensor, bmin: Tensor, cells: Cells, rows: Tensor, which: Tensor) -> Tensor:
        """Offsets (m, 2) and bmin (m,) of the vectors numbered `which` (m,) in `rows` (m,) of `cells` -> (m,)."""
        raise TypeError(f"{type(self).__name__} judges no vectors")

    def scale(self, raw: Tensor, target: Tensor) -> Tensor:
        """Raw predictions (m,) and scales in cells (m,) -> (m,)."""
        raise TypeError(f"{type(self).__name__} judges no scales")


class TaskWeights(nn.Module):
    """A network of learnt log sigmas u, two per head (Kendall, Gal and Cipolla, CVPR 2018).

    u = 3 tanh(a / 3), where a is the parameter and starts at 0. A recipe lists the network under `networks`, trains it
    in the step, and calls it with a `Forward` without inputs and with one output per head. Each head's loss reads its
    output as `log_sigmas`. The parameters are float32. Put them into an optimizer group without weight decay, because
    decay would pull every sigma towards 1.

    Args:
        heads: names of the heads; they become the outputs.

    Raises:
        ValueError: an empty list or a repeated name.
    """

    def __init__(self, *, heads: Sequence[str]) -> None:
        super().__init__()
        if not heads or len(set(heads)) < len(heads):
            raise ValueError(f"heads {list(heads)}: names of one or more different heads are needed")
        self.unbounded = nn.ParameterDict({head: nn.Parameter(torch.zeros(len(TASKS))) for head in heads})

    def forward(self) -> dict[str, Tensor]:
        """Return head -> log sigmas of `confidence` and `scale`, float32 (2,), within (-3, 3)."""
        return {head: 3 * (a / 3).tanh() for head, a in self.unbounded.items()}


def task_weighted(values: Mapping[str, Tensor], log_sigmas: Tensor) -> dict[str, Tensor]:
    """Weight the components (B,) of a head by its log sigmas u (2,) from `TaskWeights`.

    Confidence follows a normal distribution, u + value exp(-2 u) / 2 + ln(2 pi) / 2; scale follows a Laplace
    distribution, u + value exp(-u) + ln 2. Vectors do not change.
    """
    weighted = dict(values)
    confidence, scale = log_sigmas.unbind()
    # constants with OpenPifPaf's digits, so that logged values match; they have no gradient
    if "confidence" in values:
        weighted["confidence"] = 0.919 + confidence + values["confidence"] * (-2 * confidence).exp() / 2
    if "scale" in values:
        weighted["scale"] = 0.694 + scale + values["scale"] * (-scale).exp()
    return weighted
