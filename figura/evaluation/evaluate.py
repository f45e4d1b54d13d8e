"""Run trained networks over `evaluate.data` in the modes, grids and averages of `evaluate`, and write a dump."""

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from tqdm import tqdm

from figura.base.checksums import SUMS
from figura.base.distributed import raise_on_all_ranks
from figura.base.errors import UserError
from figura.base.modes import evaluating
from figura.base.sampling import evenly_spaced
from figura.base.seeding import generator, seed_here
from figura.dump import EXAMPLES, GRIDS, SUFFIX, write_value
from figura.engine.build import build_datasets, build_losses, on_split_of
from figura.engine.data import Key, Mixture, ValidationBatches, collated, load_batches
from figura.engine.inference import named_injectors, run_injectors
from figura.engine.step import WeightedLoss
from figura.engine.weights import to_device
from figura.evaluation.dump_writer import FILES, Encoder, Entry, Output, Turn
from figura.interfaces import ExampleDataset, Injector, Networks, Records, State, batch_size
from figura.recipe.schema import Format, Grid, Mode, Recipe
from figura.recipe.types import DATASET, build

KEYS = ("mode", "index", "draw", "dataset")  # key columns; same-named values of the example are dropped


class Evaluation:
    """Writes a dump, with the raw value of each loss for each example if the mode has the loss's inputs.

    Batches, rows of grids, and averages are sharded over the ranks. Noise is seeded by (seed, mode, draw, batch), so a
    dump depends on `evaluate.batch_size`, but not on the number of ranks. GPU and CPU draw different numbers.

    Args:
        recipe: its `evaluate` section defines what to dump.
        networks: the trained networks by name; moved to the accelerator's device.
        folder: output folder.
        accelerator: spans all ranks.
        data: opened datasets to run on; default: those of `evaluate.data`.
        limit: dump at most this many examples, evenly spaced.
    """

    def __init__(
        self, recipe: Recipe, networks: Mapping[str, nn.Module], folder: Path, accelerator: Accelerator, *,
        data: Mapping[str, ExampleDataset] | None = None, limit: int | None = None,
    ) -> None:  # fmt: skip
        self.recipe, self.folder, self.accelerator, self.limit = recipe, folder, accelerator, limit
        moved = {name: network.to(accelerator.device) for name, network in networks.items()}
        self.networks = Networks(moved, moved)
        self.data = build_datasets(recipe, "evaluate") if data is None else data
        # `index` runs through all datasets: the index of each one's first example
        self._firsts = dict(zip(self.data, accumulate(map(len, self.data.values()), initial=0), strict=False))
        self.losses: dict[str, WeightedLoss] = {}
        for step in recipe.steps:
            self.losses |= build_losses(recipe, step, accelerator.device)
        self.losses = {name: loss for name, loss in self.losses.items() if loss.weight != 0}
        self.shard = slice(accelerator.process_index, None, accelerator.num_processes)
        self.progress = recipe.runtime.progress and accelerator.is_main_process
        self._spent: dict[str, Counter[str]] = {}  # seconds, by mode and injector
        self.times: dict[str, dict[str, float]] = {}  # milliseconds per image and draw, by mode and injector
        self._averaged: dict[str, str] = {}  # SHA-256 of this rank's averages, by path

    def write(self, texts: Mapping[str, str] | None = None) -> None:
        """Write everything in `evaluate`, and `texts` by file name.

        Averages from an earlier call are reused. Collective: if one rank fails, all fail.

        Raises:
            UserError: an output, a loss or the data have a value that is not finite, or the disk is full.
        """
        output = Output(self.folder, self.accelerator)
        modes = evaluating(*self.networks.live.values())
        with raise_on_all_ranks(), output, Encoder(self.folder) as self._encoder, modes:
            images = self._examples(output)
            self._grids(output)
            self._averages(output)
        self.times = self._times(images)
        with raise_on_all_ranks():
            if self.accelerator.is_main_process:
                output.finish(texts or {})

    def _examples(self, output: Output) -> int:
        """Run the modes over this rank's shard; return the number of timed examples.

        If there are several batches, the first is not timed: it compiles. Files of a batch are encoded during the
        next one.
        """
        evaluate = self.recipe.evaluate
        sampler = ValidationBatches(self.data, evaluate.batch_size, self.limit, self.shard)
        loader = load_batches(Mixture(self.data, self.recipe.seed), sampler, self.recipe.runtime.workers)
        injectors = {n: named_injectors(m.injectors, f"evaluate.modes.{n}") for n, m in evaluate.modes.items()}
        self._spent = {mode: Counter() for mode in evaluate.modes}
        images = sum(map(len, sampler))
        waiting: deque[tuple[Turn, list[Entry]]] = deque()
        with tqdm(total=images, unit="image", desc="eval-dump", disable=not self.progress) as progress:
            for place, keys, batch in zip(sampler.places, sampler, loader, strict=True):
                if output.failed():
                    break
                waiting.append(((0, place), self._batch(place, keys, batch, injectors)))
                if len(waiting) > 1:
                    _add(output, *waiting.popleft())
                if place == sampler.places[0] and len(sampler) > 1:
                    self._spent = {mode: Counter() for mode in evaluate.modes}
                    images -= len(keys)
                progress.update(len(keys))
        for turn, entries in waiting:
            _add(output, turn, entries)
        return images

    def _batch(
        self, place: int, keys: Sequence[Key], batch: Mapping[str, Any], injectors: Mapping[str, Mapping[str, Injector]]
    ) -> list[Entry]:
        """Run all modes on a batch; return its rows and records."""
        evaluate = self.recipe.evaluate
        own = ({k: v for k, v in row.items() if k not in KEYS} for row in _numbers(batch))
        ids = [
            {"index": self._firsts[dataset] + index, "dataset": dataset, **row}
            for (dataset, _, index), row in zip(keys, own, strict=True)
        ]
        files, entries = self._save("inputs", batch, evaluate.inputs, [str(row["index"]) for row in ids])
        for name, mode in evaluate.modes.items():
            for draw in range(mode.repeat):
                rows, records = self._mode(name, mode, injectors[name], batch, (draw, place), ids)
                entries += [(EXAMPLES, row | saved) for row, saved in zip(rows, files, strict=True)]
                entries += records
        return entries

    def _mode(
        self, name: str, mode: Mode, injectors: Mapping[str, Injector], batch: Mapping[str, Any],
        where: tuple[int, int], ids: Sequence[Mapping[str, Any]],
    ) -> tuple[list[dict[str, Any]], list[Entry]]:  # fmt: skip
        """Run one mode on a batch; return one row per example, and records."""
        draw, place = where
        seed_here(self.recipe.seed, "dump", name, draw, place)
        state, spent = self._state(batch, injectors)
        losses: dict[str, list[float]] = {}
        for loss_name, loss in self.losses.items():
            if set(loss.inputs.values()) <= state.keys() and not loss.loss.training_only:
                losses |= {n: value.tolist() for n, value in loss.values(loss_name, state).items()}
        for loss_name, values in losses.items():
            for row, value in zip(ids, values, strict=True):
                if not math.isfinite(value):
                    self._refuse_nonfinite(torch.tensor(value), name, str(row["index"]), f"loss.{loss_name}")
        keys = [f"{row['index']}-{draw}" if mode.repeat > 1 else str(row["index"]) for row in ids]
        saved, records = self._save(name, state, mode.save, keys)
        self._spent[name].update(spent)
        times = {f"ms.{n}": 1000 * s / len(ids) for n, s in spent.items()} if self.recipe.evaluate.timing else {}
        rows = [
            {"mode": name, "draw": draw, **ids[i], **{f"loss.{n}": values[i] for n, values in losses.items()}}
            | times
            | saved[i]
            for i in range(len(ids))
        ]
        return rows, records

    def _times(self, images: int) -> dict[str, dict[str, float]]:
        """Return the milliseconds per image and draw, averaged over the images of all ranks."""
        ranks = gather_object([(self._spent, images)])
        total = sum(count for _, count in ranks)
        spent = {name: sum((seconds[name] for seconds, _ in ranks), Counter[str]()) for name in self._spent}
        return {
            name: {n: 1000 * seconds / (total * mode.repeat) for n, seconds in spent[name].items()}
            for name, mode in self.recipe.evaluate.modes.items()
        }

    def _state(self, batch: Mapping[str, Any], injectors: Mapping[str, Injector]) -> tuple[State, dict[str, float]]:
        last = self.recipe.train.steps or 2**62
        batch = to_device(batch, self.accelerator.device)
        return run_injectors(injectors, batch, self.networks, last, self.accelerator)

    def _save(
        self, folder: str, values: Mapping[str, Any], formats: Mapping[str, Format], keys: Sequence[str]
    ) -> tuple[list[dict[str, Any]], list[Entry]]:
        """Save values in their formats; return each example's columns (numbers, and paths of files).

        Also returns the records, and the files that are still being encoded. A number of the data may be unknown (NaN);
        any other value must be finite. For an example whose value is None, nothing is saved.
        """
        saved: list[dict[str, Any]] = [{} for _ in keys]
        records: list[Entry] = []
        files: dict[str, Future[bytes]] = {}
        for name, form in formats.items():
            if isinstance(values[name], Mapping if form != "records" else Mapping | Tensor):
                kind = type(values[name]).__name__
                raise UserError(f"{self.folder}: {folder}, {name!r}: a {kind} cannot be saved as {form}")
            if form == "records":
                records += [(f"{folder}/{name}.json", value) for value in values[name]]
                continue
            for row, key, one in zip(saved, keys, values[name], strict=True):
                if one is None:
                    continue
                value = torch.as_tensor(one).detach().cpu()
                if form != "number" or folder != "inputs":
                    self._refuse_nonfinite(value, folder, key, name)
                if form == "number":
                    if value.numel() != 1:
                        shape = f"shape {tuple(value.shape)} is no number; save it as array"
                        raise UserError(f"{self.folder}: {folder}, {name!r}: {shape}")
                    row[name] = float(value)
                else:
                    path = row[f"file.{name}"] = f"{folder}/{key.zfill(6)}.{name}{SUFFIX[form]}"
                    files[path] = self._encoder.add(path, value)
        return saved, [*records, (FILES, files)]

    def _refuse_nonfinite(self, value: Tensor, part: str, key: str, name: str) -> None:
        """Raise UserError for NaN or infinity in a value to be saved as `name` of a mode, a grid or inputs."""
        if math.isfinite(value.sum()):  # implies that all are; one pass over the values instead of three
            return
        if wrong := value.numel() - int(value.isfinite().sum()):
            raise UserError(
                f"{self.folder}: {part}, example {key}, {name!r}: {wrong} of {value.numel()} values are NaN or "
                "infinite; look at the weights and at this example"
            )

    def _grids(self, output: Output) -> None:
        for number, (name, grid) in enumerate(self.recipe.evaluate.grids.items(), start=1):
            for place, entries in self._grid(name, grid):
                if output.failed():
                    return
                _add(output, (number, place), entries)

    def _grid(self, name: str, grid: Grid) -> Iterator[tuple[int, list[Entry]]]:
        """Yield the entries of this rank's rows of a grid, with their row indices."""
        ((dataset, data), *_) = self.data.items()  # the first dataset represents the split
        chosen = evenly_spaced(len(data), grid.size)
        mixture = Mixture({dataset: data}, self.recipe.seed)
        examples = {index: mixture[(dataset, 0, index)] for index in chosen}
        injectors = named_injectors(grid.injectors, f"evaluate.grids.{name}")
        for place, row in list(enumerate(chosen))[self.shard]:
            pairs = [
                {n: examples[row][n] for n in grid.rows} | {n: examples[column][n] for n in grid.columns}
                for column in chosen
            ]
            seed_here(self.recipe.seed, "grid", name, row)
            try:
                batch = collated(pairs)
            except RuntimeError as error:  # examples of several sizes
                raise UserError(f"{self.folder}: grid {name!r}: its examples are one batch: {error}") from None
            state, _ = self._state(batch, injectors)
            files, records = self._save(name, state, grid.save, [f"{row}-{column}" for column in chosen])
            rows = [{"grid": name, "row": row, "column": c} | f for c, f in zip(chosen, files, strict=True)]
            yield place, [*((GRIDS, one) for one in rows), *records]

    def _averages(self, output: Output) -> None:
        missing = [name for name in list(self.recipe.evaluate.averages)[self.shard] if name not in self._averaged]
        if missing:
            data = self._training_data()
            self._averaged = {name: self._average(data, name) for name in missing}
        places = {name: index for index, name in enumerate(self.recipe.evaluate.averages)}
        for name, checksum in self._averaged.items():
            turn = 1 + len(self.recipe.evaluate.grids), places[name]
            output.add(turn, [(SUMS, {f"averages/{name}.npy": checksum})])

    def _training_data(self) -> ExampleDataset:
        """Open the first training dataset, as `evaluate.data` has it: without the augmentation of `data.train`."""
        (name, entry), *_ = self.recipe.data.train.items()
        plain = on_split_of(self.recipe.evaluate.data.get(name), entry)
        key = f"data.train.{name}" if plain is None else f"evaluate.data.{name}"
        data: ExampleDataset = build(plain or entry, DATASET, key, self.recipe.path)
        return data

    def _average(self, data: ExampleDataset, name: str) -> str:
        """Write an average over training examples; return its SHA-256."""
        average = self.recipe.evaluate.averages[name]
        chosen = evenly_spaced(len(data), average.examples)
        total: Tensor | None = None
        for index in tqdm(chosen, unit="image", desc=name, disable=not self.progress):
            example = data.example(index, generator(self.recipe.seed, "average", index))
            value = torch.as_tensor(example[average.of]).double()
            self._refuse_nonfinite(value, "averages", str(index), name)
            if total is not None and value.shape != total.shape:
                shapes = f"example {index} has the shape {tuple(value.shape)}, earlier ones {tuple(total.shape)}"
                raise UserError(f"{self.folder}: averages: {name}: {shapes}; equal shapes have a mean")
            total = value if total is None else total + value
        assert total is not None
        return write_value(self.folder / "averages" / f"{name}.npy", total / len(chosen))


def _add(output: Output, turn: Turn, entries: Sequence[Entry]) -> None:
    """Add the entries of a turn once all of its files are encoded."""
    done = [
        (name, {path: file.result() for path, file in content.items()} if name == FILES else content)
        for name, content in entries
    ]
    output.add(turn, done)


def _numbers(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the plain numbers and strings of each example of a batch, i.e. its one-dimensional values."""
    columns = {
        name: value.tolist() if isinstance(value, Tensor) else list(value)
        for name, value in batch.items()
        if (isinstance(value, Tensor) and value.ndim == 1)
        or (isinstance(value, (list, tuple)) and not isinstance(value[0], Records))
    }
    return [{name: values[index] for name, values in columns.items()} for index in range(batch_size(batch))]
