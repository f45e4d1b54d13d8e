"""From datasets to batches: a weighted mixture in training, the sorted split in validation; both repeat exactly."""

import itertools
import math
import os
import sys
import tempfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from multiprocessing.queues import Queue
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from figura.base.errors import UserError
from figura.base.sampling import evenly_spaced
from figura.base.seeding import generator
from figura.engine.signals import outlive_signals
from figura.interfaces import Example, ExampleDataset, Records, Schedule
from figura.recipe.schema import Recipe
from figura.recipe.types import SCHEDULE, build

Key = tuple[str, int, int]  # dataset, epoch, index
SOCKET = "/pymp-12345678/listener-12345678"  # path that multiprocessing uses below the temporary folder
LONGEST = (107 if sys.platform == "linux" else 103) - len(SOCKET)  # bytes of that folder's path; a kernel limit
SHARED_MEMORY = (
    "make /dev/shm larger (of a container: `--shm-size`), or use fewer workers; `runtime.workers: 0` needs none"
)


class Mixture(Dataset[Example]):
    """Several datasets combined. An example is keyed and seeded by (dataset, epoch, index)."""

    def __init__(self, datasets: Mapping[str, ExampleDataset], seed: int) -> None:
        self.datasets, self.seed = datasets, seed

    def __getitem__(self, key: Key) -> Example:
        name, epoch, index = key
        return self.datasets[name].example(index, generator(self.seed, "example", name, epoch, index))


class TrainBatches(Sampler[list[Key]]):
    """The infinite sequence of training batches from iteration `start` on; yields this rank's `shard` of each batch.

    Every batch comes from one dataset: the one whose number of batches so far, divided by its weight, is lowest. An
    epoch ends when that dataset has no full batch left. Each epoch reshuffles each dataset.

    With `schedules`, which multiply weights, every batch comes from the dataset that lacks most of its share so far,
    the sum of its weight by that of all weights over the iterations. Each dataset then has epochs of its own, and is
    reshuffled after its last full batch; an epoch of the training has as many batches as all of them.
    """

    def __init__(
        self, lengths: Mapping[str, int], weights: Mapping[str, float], batch_size: int, seed: int, start: int = 0,
        shard: slice = slice(None), schedules: Mapping[str, Schedule] | None = None,
    ) -> None:  # fmt: skip
        for name, length in lengths.items():
            if length < batch_size:
                raise UserError(
                    f"data.train.{name}: {length} examples are fewer than one batch (data.batch_size: {batch_size})"
                )
        self.lengths, self.weights, self.batch_size = lengths, weights, batch_size
        self.seed, self.start, self.shard, self.schedules = seed, start, shard, schedules or {}
        self.plan = [] if self.schedules else self._plan()

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return len(self.plan) or sum(length // self.batch_size for length in self.lengths.values())

    def _plan(self) -> list[tuple[str, int]]:
        """Return the (dataset, start offset) of each batch of an epoch, the same for all epochs."""
        counts = dict.fromkeys(self.lengths, 0)
        plan: list[tuple[str, int]] = []
        while True:
            name = min(counts, key=lambda n: counts[n] / self.weights[n])
            if (counts[name] + 1) * self.batch_size > self.lengths[name]:
                return plan
            plan.append((name, counts[name] * self.batch_size))
            counts[name] += 1

    def __iter__(self) -> Iterator[list[Key]]:
        return self._scheduled() if self.schedules else self._planned()

    def _scheduled(self) -> Iterator[list[Key]]:
        counts, lacking = dict.fromkeys(self.lengths, 0), dict.fromkeys(self.lengths, 0.0)
        orders: dict[str, tuple[int, NDArray[np.int64]]] = {}
        for iteration in itertools.count():
            weights = self._weights_at(iteration)
            total = sum(weights.values())
            for name, weight in weights.items():
                lacking[name] += weight / total
            name = max((name for name in weights if weights[name]), key=lambda n: lacking[n])
            lacking[name] -= 1
            epoch, place = divmod(counts[name], self.lengths[name] // self.batch_size)
            counts[name] += 1
            if iteration < self.start:
                continue
            if name not in orders or orders[name][0] != epoch:
                orders[name] = epoch, epoch_order(self.seed, name, epoch, self.lengths[name])
            batch = orders[name][1][place * self.batch_size : (place + 1) * self.batch_size]
            yield [(name, epoch, int(index)) for index in batch[self.shard]]

    def _weights_at(self, iteration: int) -> dict[str, float]:
        scheduled = {name: schedule(iteration) for name, schedule in self.schedules.items()}
        weights = {name: weight * scheduled.get(name, 1.0) for name, weight in self.weights.items()}
        if min(weights.values()) < 0 or not 0 < sum(weights.values()) < math.inf:
            raise UserError(
                f"data.train: at iteration {iteration}, weights are {weights}; numbers from 0, one above 0, are needed"
            )
        return weights

    def _planned(self) -> Iterator[list[Key]]:
        epoch, skipped = divmod(self.start, len(self.plan))
        while True:
            orders = {name: epoch_order(self.seed, name, epoch, length) for name, length in self.lengths.items()}
            for name, first in self.plan[skipped:]:
                batch = orders[name][first : first + self.batch_size]
                yield [(name, epoch, int(index)) for index in batch[self.shard]]
            epoch, skipped = epoch + 1, 0


def epoch_order(seed: int, dataset: str, epoch: int, length: int) -> NDArray[np.int64]:
    """Return the permutation of the `length` examples of a training dataset in an epoch."""
    return generator(seed, "order", dataset, epoch).permutation(length)


class ValidationBatches(Sampler[list[Key]]):
    """Every example of every dataset once, in order; all examples of a batch belong to one `ExampleDataset.group`.

    A batch is yielded as soon as it is full; incomplete batches, at most one per group, come last. `limit` selects that
    many evenly spaced examples. `shard` selects this rank's batches; `places` are their indices among all batches.
    """

    def __init__(
        self,
        datasets: Mapping[str, ExampleDataset],
        batch_size: int,
        limit: int | None = None,
        shard: slice = slice(None),
    ) -> None:
        every = [
            [(name, 0, chosen[place]) for place in batch]
            for name, chosen in _chosen(datasets, limit).items()
            for batch in _grouped([datasets[name].group(index) for index in chosen], batch_size)
        ]
        self.batches, self.places = every[shard], range(len(every))[shard]

    def __iter__(self) -> Iterator[list[Key]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _chosen(datasets: Mapping[str, ExampleDataset], limit: int | None) -> dict[str, Sequence[int]]:
    lengths = {name: len(data) for name, data in datasets.items()}
    if limit is None or limit >= sum(lengths.values()):
        return {name: range(length) for name, length in lengths.items()}
    places, first, chosen = evenly_spaced(sum(lengths.values()), limit), 0, dict[str, Sequence[int]]()
    for name, length in lengths.items():
        chosen[name] = [place - first for place in places if first <= place < first + length]
        first += length
    return chosen


def _grouped(groups: Sequence[Hashable], size: int) -> Iterator[list[int]]:
    waiting: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        waiting.setdefault(group, []).append(index)
        if len(waiting[group]) == size:
            yield waiting.pop(group)
    yield from waiting.values()


class CollatedBatches(Dataset[Any]):
    """Dataset of collated batches, indexed by the keys of their examples.

    An error in the data or of the operating system is returned instead of the batch: PyTorch would re-raise it with the
    worker's traceback as its message.
    """

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = mixture

    def __getitem__(self, keys: list[Key]) -> Any:
        try:
            return collated([self.mixture[key] for key in keys])
        except UserError as error:
            return error
        except OSError as error:
            if error.errno is None:  # a bug
                raise
            return error
        except RuntimeError as error:
            if "shared memory" not in str(error):
                raise
            return UserError(f"a data loader worker: {error}; {SHARED_MEMORY}")


class Batches:
    """Collated batches; each `iter` starts over.

    Raises:
        UserError, OSError: raised by the dataset, also in a worker.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return _raise_faults(iter(self.loader))


def _raise_faults(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if isinstance(batch, Exception):
            raise batch
        yield batch


class Loaders:
    """The batches of a recipe, for one rank.

    Raises:
        UserError: the ranks cannot divide the batch size evenly, or a training set is smaller than a batch.
    """

    def __init__(
        self, recipe: Recipe, train: Mapping[str, ExampleDataset], validation: Mapping[str, ExampleDataset], *,
        rank: int, ranks: int, pin: bool,
    ) -> None:  # fmt: skip
        self.recipe, self.train_data, self.validation_data = recipe, train, validation
        self.pin, self.shard = pin, slice(rank, None, ranks)
        self.schedules: dict[str, Schedule] = {
            name: build(entry.schedule, SCHEDULE, f"data.train.{name}.schedule", recipe.path)
            for name, entry in recipe.data.train.items()
            if entry.schedule is not None
        }
        size = recipe.data.batch_size
        if size % ranks:
            raise UserError(
                f"data.batch_size: found {size}, which {ranks} ranks cannot share evenly; "
                "FIGURA_PROCESSES=2 starts two a machine"
            )
        self.batches_per_epoch = self._train_batches(0).batches_per_epoch

    def _train_batches(self, start: int) -> TrainBatches:
        return TrainBatches(
            {name: len(data) for name, data in self.train_data.items()},
            {name: entry.weight for name, entry in self.recipe.data.train.items()},
            self.recipe.data.batch_size, self.recipe.seed, start, self.shard, self.schedules,
        )  # fmt: skip

    def train(self, start: int) -> Batches:
        """Return infinite training batches from iteration `start` on."""
        mixture = Mixture(self.train_data, self.recipe.seed)
        return load_batches(mixture, self._train_batches(start), self.recipe.runtime.workers, self.pin)

    def validation(
        self, workers: int, size: int | None = None, limit: int | None = None, shard: slice = slice(None)
    ) -> Batches:
        """Return the sorted validation split, or a `shard` of it, in batches of `size` (default: as in training).

        For `limit` and `shard`, see `ValidationBatches`.
        """
        # not `evaluate.batch_size`: noise is drawn per batch, and the train stage does not depend on that section
        batches = ValidationBatches(self.validation_data, size or self.recipe.data.batch_size, limit, shard)
        return load_batches(Mixture(self.validation_data, self.recipe.seed), batches, workers)


def load_batches(mixture: Mixture, sampler: Sampler[list[Key]], workers: int, pin: bool = False) -> Batches:
    """Return collated batches, prefetched by `workers` processes (0: in this process).

    Raises:
        UserError: workers cannot open sockets because the path of the temporary folder is too long.
    """
    if workers:
        _check_sockets()
    loader = DataLoader(
        CollatedBatches(mixture), sampler=sampler, batch_size=None, num_workers=workers, collate_fn=_unchanged,
        pin_memory=pin, worker_init_fn=_start_worker, prefetch_factor=4 if workers else None,
    )  # fmt: skip
    return Batches(loader)


def _check_sockets() -> None:
    """Raise UserError if socket paths would be too long; a worker would fail silently in a thread."""
    folder = tempfile.gettempdir()
    if (size := len(os.fsencode(folder))) > LONGEST:
        raise UserError(
            f"TMPDIR: {folder} has {size} bytes; at most {LONGEST} are allowed, because data loader workers open "
            "sockets there; set TMPDIR to a shorter path, or `runtime.workers: 0`"
        )


def collated(examples: list[Any]) -> Any:
    """Stack examples into a batch; `Records` are not stacked but listed, one entry per example."""
    return collate(examples, collate_fn_map={Records: _listed, **default_collate_fn_map})


def _listed(batch: list[Records], *, collate_fn_map: Any = None) -> list[Records]:
    return batch


def _unchanged(batch: Any) -> Any:
    return batch


def _start_worker(worker: int) -> None:
    outlive_signals()
    Queue._on_queue_feeder_error = _send_error  # type: ignore[attr-defined]
    import cv2  # lazy, because a training may need no images; more than one thread per worker would slow training down

    cv2.setNumThreads(0)


def _send_error(queue: "Queue[Any]", error: Exception, unsent: Any) -> None:
    """Send an error in place of a batch that a worker cannot send.

    Python's feeder thread would print the error and continue, and training would wait for the batch forever.
    """
    if not isinstance(unsent, tuple):  # raw bytes: the pipe is broken
        os._exit(1)
    place, _ = unsent
    queue.put((place, UserError(f"a data loader worker cannot send a batch: {error}; {SHARED_MEMORY}")))
