"""Contrastive learning on patches (Park et al., ECCV 2020, section 3): does a patch of the output show its input?

Features of the output and of the input at the same place are to be alike, and unlike those at other places of the same
input. Features are what layers of a network give, by the taps of `Forward`.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from figura.base.errors import UserError
from figura.interfaces import Loss

from .argument_types import Count, Positive
from .example_means import at_least_float32

Features = Mapping[str, Tensor]


class PatchProjection(nn.Module):
    """Features at random places, projected by two layers with ReLU between them to unit vectors.

    Each tapped layer has its own projection. The places are drawn for each example and layer, without replacement, and
    are the same in both sets of features. There are fewer patches where a layer has fewer places.

    Args:
        channels: of each tapped layer, in the order of the taps.
        patches: places of each layer; 256 in the paper.
        size: of the vectors.
    """

    outputs: ClassVar[tuple[str, ...]] = ("queries", "keys")

    def __init__(self, *, channels: Sequence[Count], patches: Count = 256, size: Count = 256) -> None:
        super().__init__()
        self.channels, self.patches = list(channels), patches
        self.projections = nn.ModuleList(
            nn.Sequential(nn.Linear(width, size), nn.ReLU(), nn.Linear(size, size)) for width in channels
        )
        for module in self.projections.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, queries: Features, keys: Features) -> dict[str, dict[str, Tensor]]:
        """Features (N, C, H, W) by layer, the same layers and shapes -> unit vectors (N, patches, size) by layer.

        No gradient flows back through `keys`, as in the paper: the input is not to become like the output.

        Raises:
            UserError: the layers or their channels are not those of `channels`.
        """
        if [one.shape[1] for one in queries.values()] != self.channels or keys.keys() != queries.keys():
            found = ", ".join(f"{name} {one.shape[1]}" for name, one in queries.items())
            raise UserError(f"features for PatchProjection: found channels {found}; `channels` says {self.channels}")
        projected: dict[str, dict[str, Tensor]] = {"queries": {}, "keys": {}}
        for projection, (name, query) in zip(self.projections, queries.items(), strict=True):
            places = torch.rand(len(query), query[0, 0].numel(), device=query.device).argsort(dim=1)[:, : self.patches]
            projected["queries"][name] = _projected(projection, query, places)
            with torch.no_grad():
                projected["keys"][name] = _projected(projection, keys[name], places)
        return projected


def _projected(projection: nn.Module, features: Tensor, places: Tensor) -> Tensor:
    """Project the features (N, C, H, W) at places (N, P), numbers of pixels, to unit vectors (N, P, size)."""
    pixels = features.flatten(2).transpose(1, 2)
    chosen = pixels.gather(1, places[..., None].expand(-1, -1, pixels.shape[2]))
    return F.normalize(projection(chosen), dim=2, eps=1e-7)


class PatchNCE(Loss):
    """Cross-entropy of finding each query's own key among the keys of all places of its image (eq. 3 and 4).

    With unit vectors q_i and k_j of places i and j: the mean over i and layers of `-log(exp(q_i k_i / t) / sum over j
    of exp(q_i k_j / t))`, t the temperature.
    """

    def __init__(self, *, temperature: Positive = 0.07) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, *, queries: Features, keys: Features) -> Tensor:  # type: ignore[override]
        """Unit vectors (N, P, size) by layer -> (N,), at least float32."""
        layers = [self._layer(at_least_float32(queries[name]), at_least_float32(keys[name])) for name in queries]
        return torch.stack(layers).mean(dim=0)

    def _layer(self, queries: Tensor, keys: Tensor) -> Tensor:
        logits = queries @ keys.transpose(1, 2) / self.temperature
        return (logits.logsumexp(dim=2) - logits.diagonal(dim1=1, dim2=2)).mean(dim=1)
