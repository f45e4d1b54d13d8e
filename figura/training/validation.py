"""The validation split during training: single batches, mean losses over the split."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from operator import itemgetter
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor

from figura.base.distributed import raise_on_all_ranks
from figura.base.seeding import seed_here
from figura.engine.data import Loaders
from figura.engine.weights import to_device
from figura.recipe.schema import Recipe

Batch = dict[str, Any]


class Validation:
    """The validation split of a recipe, on a device.

    Noise is seeded by the batch index in the split, not by the iteration.

    Every method returns the same on all ranks, for any number of ranks.
    """

    def __init__(self, recipe: Recipe, loaders: Loaders, device: torch.device) -> None:
        self.recipe, self.loaders, self.device = recipe, loaders, device
        self._batches: Iterator[Any] = iter(())

    def next_batch(self) -> Batch:
        """Return the next batch, cycling through the split."""
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self.loaders.validation(workers=0))
            batch = next(self._batches)
        return dict(to_device(batch, self.device))

    def means(self, losses: Callable[[Batch], Mapping[str, Tensor]]) -> dict[str, float]:
        """Return the mean of each loss over the examples that have it; `losses` maps a batch to (batch,) values.

        The examples are the full split, or `train.evaluate_limit` evenly spaced ones. Batches are sharded over ranks,
        so `losses` must not wait for other ranks. If one rank fails, all ranks fail.
        """
        shard = self.loaders.shard
        own: list[tuple[int, dict[str, tuple[float, int]]]] = []
        with raise_on_all_ranks():
            limit = self.recipe.train.evaluate_limit
            batches = self.loaders.validation(self.recipe.runtime.workers, limit=limit, shard=shard)
            for place, batch in zip(count(shard.start, shard.step), batches, strict=False):
                seed_here(self.recipe.seed, "evaluation", place)
                values = losses(to_device(batch, self.device))
                own.append((place, {n: (value.double().sum().item(), len(value)) for n, value in values.items()}))
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for _, totals in sorted(gather_object(own), key=itemgetter(0)):  # order affects rounding
            for name, (total, examples) in totals.items():
                sums[name] = sums.get(name, 0.0) + total
                counts[name] = counts.get(name, 0) + examples
        return {name: total / counts[name] for name, total in sums.items()}
