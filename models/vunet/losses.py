"""The KL divergence between VUNet's posterior and prior."""

from typing import Literal

import torch
from torch import Tensor

from figura.interfaces import Loss


class LatentKL(Loss):
    """KL divergence between Gaussians of unit covariance: half the squared distance of their means, in nats.

    Esser, Sutter and Ommer (CVPR 2018), equation 4. It is symmetric, and gradients flow into both sides. `posterior`
    and `prior` map the same latent names to means (N, c, 1, 1); the divergence is summed over all levels and channels.
    With `unit` "nats_per_element" the sum is divided by the C·H·W elements of `image` (N, C, H, W), to be comparable
    with losses that are means over elements. This unit without an image is a ValueError.
    """

    def __init__(self, *, unit: Literal["nats", "nats_per_element"] = "nats") -> None:
        super().__init__()
        self.per_element = unit == "nats_per_element"

    def forward(  # type: ignore[override]
        self, *, posterior: dict[str, Tensor], prior: dict[str, Tensor], image: Tensor | None = None
    ) -> Tensor:
        """Return nats (N,), at least float32."""
        nats = sum(_half_square(posterior[name], prior[name]) for name in posterior)
        if not self.per_element:
            return torch.as_tensor(nats)
        if image is None:
            raise ValueError("LatentKL with unit 'nats_per_element' needs the input 'image'")
        return torch.as_tensor(nats / image[0].numel())


def _half_square(q: Tensor, p: Tensor) -> Tensor:
    dtype = torch.promote_types(q.dtype, torch.float32)
    return 0.5 * (q.to(dtype) - p.to(dtype)).square().flatten(1).sum(dim=1)
