"""Composite heads: from a feature map to composite fields (specification 1.6, the reference's versions 3 and 4)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Kind = Literal["cif", "caf", "cifdet"]
Spreads = Literal["shared", "vector"]
ScaleLaw = Literal["softplus", "exp", "linear"]

SCALE_LAWS: dict[ScaleLaw, Callable[[Tensor], Tensor]] = {
    "softplus": F.softplus,
    "exp": lambda raw: raw.clamp_max(20).exp(),
    "linear": lambda raw: raw,
}


@dataclass(frozen=True)
class Layout:
    """The raw components of a kind of field.

    With `spreads` shared: spread logit, confidence logit, vectors (x, y), scales; with one a vector: confidence logit,
    vectors, a spread logit a vector, scales. `positional` says of each vector whether it points from the cell to a
    place; otherwise it is a size. `scale_law` is what makes a scale in cells of a raw one.
    """

    positional: tuple[bool, ...]
    scales: int
    spreads: Spreads = "shared"
    scale_law: ScaleLaw = "softplus"

    @property
    def components(self) -> int:
        """How many there are."""
        vectors = len(self.positional)
        return 1 + (1 if self.spreads == "shared" else vectors) + 2 * vectors + self.scales


LAYOUTS: dict[Kind, Layout] = {
    "cif": Layout(positional=(True,), scales=1),  # a joint: its place, its scale
    "caf": Layout(positional=(True, True), scales=2),  # a connection: both ends, their scales
    "cifdet": Layout(positional=(True, False), scales=0),  # a box: its centre, its width and height
}


def form(kind: Kind, spreads: Spreads, scale_law: ScaleLaw) -> str:
    """What raw fields are, in words in which a head and a loss agree or not: `cif, spreads: shared, scale_law: exp`."""
    scale = f", scale_law: {scale_law}" if LAYOUTS[kind].scales else ""
    return f"{kind}, spreads: {spreads}{scale}"


class CompositeHead(nn.Module):
    """1 x 1 convolution, pixel shuffle, crop: (N, channels, h, w) -> (N, fields, components, u (h - 1) + 1, u (w - 1) + 1).

    After the pixel shuffle by u, floor((u - 1) / 2) rows and columns go at the start and ceil((u - 1) / 2) at the end,
    so that a grid of (n - 1) / s + 1 cells becomes one of (n - 1) / (s / u) + 1, its first cell still on the first pixel.

    Args:
        channels: of the feature map.
        kind: of the fields; components are those of its layout, 5 for cif, 8 for caf, 6 for cifdet.
        fields: joints, connections or categories.
        upsample: u, at least 1.
        dropout: probability with which a channel of the feature map is dropped in training.
        spreads: `shared`, for `losses.Composite`; `vector`, for the earlier losses: 5, 9, 7 components.
        scale_law: softplus, exp or linear, as the loss reads scales.

    Raises:
        ValueError: for numbers out of these ranges.
    """

    def __init__(
        self, channels: int, *, kind: Kind, fields: int, upsample: int = 2, dropout: float = 0.0,
        spreads: Spreads = "shared", scale_law: ScaleLaw = "softplus",
    ) -> None:  # fmt: skip
        super().__init__()
        if kind not in LAYOUTS:
            raise ValueError(f"kind {kind!r}: one of {', '.join(get_args(Kind))} is needed")
        if spreads not in get_args(Spreads) or scale_law not in SCALE_LAWS:
            raise ValueError(
                f"spreads {spreads!r}, scale_law {scale_law!r}: {' or '.join(get_args(Spreads))}, and one of "
                f"{', '.join(SCALE_LAWS)}, are needed"
            )
        if fields < 1 or upsample < 1:
            raise ValueError(f"fields {fields}, upsample {upsample}: at least 1 is needed of both")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout {dropout}: 0 <= dropout < 1 is needed")
        self.layout = replace(LAYOUTS[kind], spreads=spreads, scale_law=scale_law)
        self.fields, self.upsample = fields, upsample
        self.dropout = nn.Dropout2d(dropout)
        self.conv = nn.Conv2d(channels, fields * self.layout.components * upsample**2, 1)

    def forward(self, features: Tensor, decode: bool = False) -> Tensor:
        """Raw fields, as losses want them; with `decode`, float32 fields as decoders do: see `decoded`."""
        x = self.conv(self.dropout(features))
        if self.upsample > 1:
            start, end = (self.upsample - 1) // 2, self.upsample // 2
            x = F.pixel_shuffle(x, self.upsample)
            x = x[:, :, start : x.shape[2] - end, start : x.shape[3] - end]
        x = x.contiguous().view(x.shape[0], self.fields, self.layout.components, x.shape[2], x.shape[3])
        return decoded(x, self.layout) if decode else x


def decoded(fields: Tensor, layout: Layout) -> Tensor:
    """Raw fields (N, F, components, h, w) -> confidences in (0, 1), places in cells of the grid, scales, none below zero.

    The components come in the order of shared spreads, whatever the layout's: of spreads a vector the first is kept.
    The spread logit stays, and so do sizes. A positional vector of the cell in column i, row j gains (i, j). Float32,
    whatever the input: half precision cannot tell places of a large grid apart.
    """
    fields = fields.float()
    rows, columns = (torch.arange(n, device=fields.device, dtype=fields.dtype) for n in fields.shape[-2:])
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"))
    n = len(layout.positional)
    if layout.spreads == "shared":
        spread, confidence, vectors, scales = fields.split((1, 1, 2 * n, layout.scales), dim=2)
    else:
        confidence, vectors, spreads, scales = fields.split((1, 2 * n, n, layout.scales), dim=2)
        spread = spreads[:, :, :1]
    both = zip(vectors.split(2, dim=2), layout.positional, strict=True)
    places = [vector + grid if place else vector for vector, place in both]
    scales = SCALE_LAWS[layout.scale_law](scales).clamp_min(0)
    return torch.cat((spread, confidence.sigmoid(), *places, scales), dim=2)
