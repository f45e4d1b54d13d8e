"""The pool of earlier images that a discriminator learns from (Shrivastava et al., CVPR 2017, section 2.3)."""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from figura.base.distributed import current_shard, whole_batch
from figura.interfaces import Operation

from .argument_types import Share


class ImagePool(Operation):
    """Exchanges some images of a batch for those of earlier iterations.

    Every name has a pool of its own. Until it is full, images are stored and given on. Then, image by image, with
    probability `chance` a stored image at a random place is given on and the new one takes its place, else the new one
    is given on. No gradient flows back. In evaluations, images are given on as they are and none is stored.

    The pool is part of the training's state, and so of resume points. It holds the images of the whole batch in its
    order: with several processes, each has all of it, and they exchange their images.

    Args:
        names: name read, (N, ...) -> name added. All images of a name have one shape.
        size: images in a pool; 0 gives all images on.
        chance: see above.
    """

    def __init__(self, names: dict[str, str], size: Annotated[int, Field(ge=0)] = 50, chance: Share = 0.5) -> None:
        super().__init__(list(names), list(names.values()))
        self.size, self.chance = size, chance
        self.pools: dict[str, list[Tensor]] = {name: [] for name in names}

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        images = [tensor.detach() for tensor in tensors]
        if not self.size or not torch.is_grad_enabled():
            return images
        return [self._exchanged(self.pools[name], batch) for name, batch in zip(self.reads, images, strict=True)]

    def _exchanged(self, pool: list[Tensor], batch: Tensor) -> Tensor:
        if pool and pool[0].shape != batch.shape[1:]:
            raise ValueError(f"the pool holds images of shape {tuple(pool[0].shape)}; all images of a name have one")
        draws = whole_batch(torch.rand(len(batch), 2, device=batch.device)).tolist()
        given = [self._one(pool, image, *draw) for image, draw in zip(whole_batch(batch), draws, strict=True)]
        shard = current_shard()
        return torch.stack(given if shard is None else given[shard.of])

    def _one(self, pool: list[Tensor], image: Tensor, choice: float, place: float) -> Tensor:
        if len(pool) < self.size:
            pool.append(image.clone())
        elif choice < self.chance:
            index = int(place * self.size)
            earlier, pool[index] = pool[index], image.clone()
            return earlier.to(image.device)
        return image

    def state_dict(self) -> Mapping[str, Any]:
        """Return the images of each pool, (images, ...)."""
        return {name: torch.stack(pool) for name, pool in self.pools.items() if pool}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.pools = {name: list(state[name]) if name in state else [] for name in self.reads}
