"""Composite heads: feature map -> composite fields.

Source: `CompositeField4` and, with one log-scale per vector, `CompositeField3` in openpifpaf/network/heads.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from .argument_types import Count, Kind

LogScales = Literal["shared", "vector"]
ScaleLaw = Literal["softplus", "exp", "linear"]
Dropout = Annotated[float, Field(ge=0.0, lt=1.0)]

SCALE_LAWS: dict[ScaleLaw, Callable[[Tensor], Tensor]] = {
    "softplus": F.softplus,
    "exp": lambda raw: raw.clamp_max(20).exp(),
    "linear": lambda raw: raw,
}


@dataclass(frozen=True)
class Layout:
    """The raw components of a kind of field.

    With `log_scales: shared` they are: log-scale logit, confidence logit, vectors (x, y), scales. With `vector`:
    confidence logit, vectors, one log-scale logit per vector, scales. A log-scale logit is the network's raw
    uncertainty of its vectors (log b of a Laplace law, or a log-variance; the loss decides).

    Attributes:
        positional: one flag per vector: true if it points from the cell to a position, false if it is a size.
        scales: number of scales.
        log_scales: `shared` by all components of a cell, or one per `vector`.
        scale_law: the function from a raw scale to a scale in cells.
    """

    positional: tuple[bool, ...]
    scales: int
    log_scales: LogScales = "shared"
    scale_law: ScaleLaw = "softplus"

    @property
    def components(self) -> int:
        """The number of components per field."""
        vectors = len(self.positional)
        return 1 + (1 if self.log_scales == "shared" else vectors) + 2 * vectors + self.scales


LAYOUTS: dict[Kind, Layout] = {
    "cif": Layout(positional=(True,), scales=1),  # a joint: its position, its scale
    "caf": Layout(positional=(True, True), scales=2),  # a connection: both ends, their scales
    "cifdet": Layout(positional=(True, False), scales=0),  # a box: its centre, its width and height
}


def form(kind: Kind, log_scales: LogScales, scale_law: ScaleLaw) -> str:
    """Describe raw fields as text, `cif, log_scales: shared, scale_law: exp`; a head and its loss must agree on it."""
    scale = f", scale_law: {scale_law}" if LAYOUTS[kind].scales else ""
    return f"{kind}, log_scales: {log_scales}{scale}"


class CompositeHead(nn.Module):
    """1 x 1 convolution, pixel shuffle and crop.

    Maps (N, channels, h, w) to (N, fields, components, u (h - 1) + 1, u (w - 1) + 1). The crop removes
    floor((u - 1) / 2) rows and columns at the start and ceil((u - 1) / 2) at the end. A grid of (n - 1) / s + 1 cells
    then becomes one of (n - 1) / (s / u) + 1 cells, and the first cell still lies on the first pixel.

    Args:
        channels: of the feature map.
        kind: cif, caf or cifdet; its layout has 5, 8 or 6 components.
        fields: number of joints, connections or categories.
        upsample: u, at least 1.
        dropout: probability of dropping a channel of the feature map in training.
        log_scales: `shared`, for `losses.Composite`; `vector`, for the earlier losses (5, 9 or 7 components).
        scale_law: softplus, exp or linear; must be that of the loss.
    """

    renamed: ClassVar[dict[str, str]] = {"spreads": "log_scales"}

    def __init__(
        self, channels: int, *, kind: Kind, fields: Count, upsample: Count = 2, dropout: Dropout = 0.0,
        log_scales: LogScales = "shared", scale_law: ScaleLaw = "softplus",
    ) -> None:  # fmt: skip
        super().__init__()
        self.layout = replace(LAYOUTS[kind], log_scales=log_scales, scale_law=scale_law)
        self.fields, self.upsample = fields, upsample
        self.dropout = nn.Dropout2d(dropout)
        self.conv = nn.Conv2d(channels, fields * self.layout.components * upsample**2, 1)

    def forward(self, features: Tensor, decode: bool = False) -> Tensor:
        """Return raw fields for the losses; with `decode`, float32 fields for the decoders (see `decoded`)."""
        x = self.conv(self.dropout(features))
        if self.upsample > 1:
            start, end = (self.upsample - 1) // 2, self.upsample // 2
            x = F.pixel_shuffle(x, self.upsample)
            x = x[:, :, start : x.shape[2] - end, start : x.shape[3] - end]
        x = x.contiguous().view(x.shape[0], self.fields, self.layout.components, x.shape[2], x.shape[3])
        return decoded(x, self.layout) if decode else x


def decoded(fields: Tensor, layout: Layout) -> Tensor:
    """Convert raw fields (N, F, components, h, w) to confidences in (0, 1), positions in cells, and scales >= 0.

    The result has the component order of `log_scales: shared`; with one log-scale per vector, it keeps the first.
    Log-scale logits and sizes stay raw. The cell in column i, row j adds (i, j) to its positional vectors. The result
    is always float32, because half precision cannot resolve the positions of a large grid.
    """
    fields = fields.float()
    rows, columns = (torch.arange(n, device=fields.device, dtype=fields.dtype) for n in fields.shape[-2:])
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"))
    n = len(layout.positional)
    if layout.log_scales == "shared":
        log_scale, confidence, vectors, scales = fields.split((1, 1, 2 * n, layout.scales), dim=2)
    else:
        confidence, vectors, log_scales, scales = fields.split((1, 2 * n, n, layout.scales), dim=2)
        log_scale = log_scales[:, :, :1]
    both = zip(vectors.split(2, dim=2), layout.positional, strict=True)
    places = [vector + grid if place else vector for vector, place in both]
    scales = SCALE_LAWS[layout.scale_law](scales).clamp_min(0)
    return torch.cat((log_scale, confidence.sigmoid(), *places, scales), dim=2)
