"""Looks at the validation split while a training runs: its batches one by one, the means over all of it, samples."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from operator import itemgetter
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor

from models.base.distributed import raise_on_all_ranks
from models.base.seeding import seed_here
from models.engine.data import Loaders
from models.engine.weights import to_device
from models.recipe.schema import Recipe

Batch = dict[str, Any]


class Validation:
    """The validation split of a recipe, on a device. Noise is seeded by the place in the split, whatever the iteration.

    Every process gets the same from each method, and the same as if it were alone.
    """

    def __init__(self, recipe: Recipe, loaders: Loaders, device: torch.device) -> None:
        self.recipe, self.loaders, self.device = recipe, loaders, device
        self._batches: Iterator[Any] = iter(())

    def next_batch(self) -> Batch:
        """Return the next batch, beginning again at the end."""
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self.loaders.validation(workers=0))
            batch = next(self._batches)
        return dict(to_device(batch, self.device))

    def means(self, losses: Callable[[Batch], Mapping[str, Tensor]]) -> dict[str, float]:
        """Return the mean of each loss over the instances that have it; `losses` gives (batch,) values of a batch.

        Batches are dealt out, so `losses` may not wait for other processes. Where it fails in one, all fail.
        """
        share = self.loaders.share
        own: list[tuple[int, dict[str, tuple[float, int]]]] = []
        with raise_on_all_ranks():
            batches = self.loaders.validation(self.recipe.runtime.workers, share=share)
            for place, batch in zip(count(share.start, share.step), batches, strict=False):
                seed_here(self.recipe.seed, "evaluation", place)
                found = losses(to_device(batch, self.device))
                own.append((place, {n: (value.double().sum().item(), len(value)) for n, value in found.items()}))
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for _, values in sorted(gather_object(own), key=itemgetter(0)):  # rounding depends on the order
            for name, (total, instances) in values.items():
                sums[name] = sums.get(name, 0.0) + total
                counts[name] = counts.get(name, 0) + instances
        return {name: total / counts[name] for name, total in sums.items()}

    def samples(self, state: Callable[[Batch], Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the names of `runtime.samples` that a pass over the first instances knows; none where none are asked for."""
        samples = self.recipe.runtime.samples
        if samples is None:
            return {}
        seed_here(self.recipe.seed, "samples")
        found = state(to_device(next(iter(self.loaders.validation(0, size=samples.count))), self.device))
        return {name: found[name] for name in samples.names if name in found}
