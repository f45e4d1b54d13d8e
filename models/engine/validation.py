"""Looks at the validation split while a training runs: its batches one by one, the means over all of it, samples."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from models.engine.batches import Loaders
from models.engine.checkpoint import to_device
from models.engine.schema import Recipe
from models.engine.seeding import seed_here

Batch = dict[str, Any]


class Validation:
    """The validation split of a recipe, on a device. Noise is seeded by the place in the split, whatever the iteration."""

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
        """Return the mean of each loss over the instances that have it; `losses` gives (batch,) values of a batch."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for place, batch in enumerate(self.loaders.validation(self.recipe.runtime.workers)):
            seed_here(self.recipe.seed, "evaluation", place)
            for name, value in losses(to_device(batch, self.device)).items():
                sums[name] = sums.get(name, 0.0) + value.double().sum().item()
                counts[name] = counts.get(name, 0) + len(value)
        return {name: total / counts[name] for name, total in sums.items()}

    def samples(self, state: Callable[[Batch], Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the names of `runtime.samples` that a pass over the first instances knows; none where none are asked for."""
        samples = self.recipe.runtime.samples
        if samples is None:
            return {}
        seed_here(self.recipe.seed, "samples")
        found = state(to_device(next(iter(self.loaders.validation(0, size=samples.count))), self.device))
        return {name: found[name] for name in samples.names if name in found}
