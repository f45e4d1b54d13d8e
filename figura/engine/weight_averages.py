"""Moving averages of a network's weights (`train.ema`)."""

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from figura.recipe.schema import Ema


class WeightAverages(AveragedModel):
    """The averages of a network, in a copy of it; buffers such as running statistics are those of the last update.

    The number of updates stays on the CPU. `AveragedModel` itself copies it to the GPU in every update, and waits.
    """

    def __init__(self, network: nn.Module, ema: Ema) -> None:
        super().__init__(network)
        self.ema = ema

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Add a network's current weights; the first update copies them."""
        averages: list[Tensor] = [*self.module.parameters()]
        weights: list[Tensor] = [*model.parameters()]
        if not weights:
            pass  # buffers alone, such as a pool of pictures; `_foreach` takes no empty list
        elif (count := int(self.n_averaged)) == 0:
            torch._foreach_copy_(averages, weights)
        else:
            torch._foreach_lerp_(averages, weights, 1 - self.ema.decay_at(count))
        for own, latest in zip(self.module.buffers(), model.buffers(), strict=True):
            own.copy_(latest)
        self.n_averaged += 1
