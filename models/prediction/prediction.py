"""Runs trained networks on any photos, as a recipe's section `predict` says, and writes the results.

Results are `<name>.<saved name>.png`, `.npy`, or `.json` (a list of records, one on each line) for each example, and
`<grid>.<saved name>.png` for a grid, which pairs the first examples with each other: every row with every column.
`predictions.csv` has a row for each result. Where photos know what is true, `<name>.<saved name>.compared.png` shows
both, and the table has the numbers of `predict.compare`.
"""

import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from tqdm import tqdm

from models.base.error_collector import ErrorCollector
from models.base.errors import UserError, memory_asked, printable
from models.base.modes import evaluating
from models.base.pictures import write_png
from models.base.seeding import seed_here
from models.dump import RecordsFile
from models.engine.data import collated
from models.engine.inference import named_injectors, run_injectors
from models.engine.weights import to_device
from models.interfaces import Example, Injector, Networks, Records, State
from models.prediction.comparison import Comparison, PredictionTable
from models.prediction.inputs import File, Photo, PhotoExamples, SettingError, count_photos, read_photos
from models.prediction.streaming import batch_by_shape, collated_with_photos, prefetch
from models.recipe.schema import Grid, Predict, Recipe
from models.recipe.types import COMPARISON, PHOTOS, build, construct, find_type
from models.report.sheets import Pixels, as_pixels, side_by_side

T = TypeVar("T")


class Prediction:
    """Writes the results of one call into a folder; memory does not grow with the number of photos.

    All examples of a batch have one shape; rarer shapes wait for more, at most two batches in total. Noise is seeded by
    (seed, draw, batch). `workers` threads prefetch photos (0: none).
    """

    def __init__(
        self, recipe: Recipe, predict: Predict, networks: Mapping[str, nn.Module], folder: Path,
        accelerator: Accelerator, *, batch_size: int, workers: int,
    ) -> None:  # fmt: skip
        self.recipe, self.predict, self.folder, self.accelerator = recipe, predict, folder, accelerator
        self.batch_size, self.workers = batch_size, workers
        moved = {name: network.to(accelerator.device) for name, network in networks.items()}
        self.networks = Networks(moved, moved)
        self.photos = _photos(predict, recipe.path)
        self.mode, evaluate = recipe.evaluate.modes[predict.mode], recipe.evaluate
        built = named_injectors(self.mode.injectors, f"evaluate.modes.{predict.mode}")
        built |= named_injectors(predict.injectors, "predict.injectors")
        self.injectors, self.reads = needed(built, predict.save)
        self.grid: Grid | None = None if predict.grid is None else evaluate.grids[predict.grid]
        if self.grid is not None:
            self.reads |= {*self.grid.rows, *self.grid.columns}
        self.comparisons = _comparisons(predict, recipe.path)
        for comparison in self.comparisons.values():
            self.reads |= {comparison.target, *comparison.inputs}
        self.table = PredictionTable(
            folder, [f"{name}.{one}" for name, comparison in self.comparisons.items() for one in comparison.names]
        )
        self._grid_examples: list[Example] = []
        self._written: set[str] = set()
        self._photos: dict[str, Photo] = {}  # of the examples that wait, by name
        self._faults, self._examples = 0, 0
        self._spent: dict[str, float] = defaultdict(float)  # seconds

    def write(self, files: Sequence[File], every: int) -> None:
        """Predict from the files, and from each `every`-th frame of videos; report what cannot be used and go on.

        Raises:
            SettingError: at once, for what no photo fits.
            UserError: at the end, if any input could not be used.
        """
        start, done = time.perf_counter(), 0
        progress = tqdm(
            total=count_photos(files, every), unit="image", desc="predict", disable=not self.recipe.runtime.progress
        )
        with closing(self.table), progress, evaluating(*self.networks.live.values()):

            def examples() -> Iterator[Example]:
                nonlocal done
                for photo, result in prefetch(read_photos(files, every, self._report), self._read, self.workers):
                    progress.update()
                    if isinstance(result, UserError):
                        self._report(str(result))
                    else:
                        done += 1
                        for fault in photo.faults:
                            self._report(fault)
                        yield from (one for one in result if self._is_new(one, photo))

            for fault in self.photos.faults:
                self._report(fault)
            for place, batch in enumerate(self._timed("read", batch_by_shape(examples(), self.batch_size))):
                self._note(batch)
                self._batch(batch, place, range(self.mode.repeat))
                for one in batch:
                    del self._photos[one["name"]]
            if self.grid is not None:
                self._attempt(str(self.predict.grid), self._grid, self.grid)
        self._summary(done, time.perf_counter() - start)
        if self._faults:
            raise UserError(f"{self._faults} of the inputs could not be used (see above); the others are done")

    def _report(self, message: str) -> None:
        self._faults += 1
        tqdm.write(printable(f"skipped: {message}"), file=sys.stderr)

    def _attempt(self, subject: object, act: Callable[..., T], *arguments: Any) -> T | None:
        """Return what `act` returns; if it fails, report that, and return None. SettingErrors pass."""
        try:
            return act(*arguments)
        except SettingError:
            raise
        except Exception as error:  # noqa: BLE001  # the other photos are done all the same
            self._report(said(subject, error))
            return None

    def _read(self, photo: Photo) -> tuple[Photo, list[Example] | UserError]:
        try:
            examples = self.photos.examples(photo)
        except SettingError:
            raise
        except UserError as error:
            return photo, error
        except Exception as error:  # noqa: BLE001  # the other photos are done all the same
            return photo, UserError(said(photo.path, error))
        return photo, [{name: one[name] for name in one.keys() & self.reads} for one in examples]

    def _is_new(self, example: Example, photo: Photo) -> bool:
        name = example["name"]
        if name in self._written:
            self._report(f"{name}: another input has results of this name already; rename one")
            return False
        self._written.add(name)
        self._photos[name] = replace(photo, frame=None)
        return True

    def _timed(self, name: str, items: Iterable[T]) -> Iterator[T]:
        start = time.perf_counter()
        for item in items:
            self._spent[name] += time.perf_counter() - start
            yield item
            start = time.perf_counter()

    def _note(self, examples: list[Example]) -> None:
        """Count examples, and store the first ones for the grid."""
        self._examples += len(examples)
        if self.grid is not None:
            names = {*self.grid.rows, *self.grid.columns}
            missing = self.grid.size - len(self._grid_examples)
            self._grid_examples += [{name: one[name] for name in names} for one in examples[:missing]]

    def _batch(self, examples: list[Example], place: int, draws: range) -> None:
        """Predict from a batch and write its results; if that fails, predict from each of its examples alone."""
        for draw in draws:
            labels = [f"{one['name']}-{draw}" if self.mode.repeat > 1 else one["name"] for one in examples]
            if len(examples) == 1:
                photo = self._photos[examples[0]["name"]]
                drawn = self._attempt(photo.path, self._drawn, examples, labels, place, draw)
                if drawn is None:
                    return
            else:
                try:
                    drawn = self._drawn(examples, labels, place, draw)
                except SettingError:
                    raise
                except Exception:  # noqa: BLE001  # said when an example fails alone
                    for one in examples:
                        self._batch([one], place, range(draw, draws.stop))
                    return
            start = time.perf_counter()
            state, numbers = drawn
            for row, (label, one) in enumerate(zip(labels, examples, strict=True)):
                photo = self._photos[one["name"]]
                self._attempt(photo.path, self._write, state, row, label, photo, numbers)
            self._spent["write"] += time.perf_counter() - start

    def _drawn(
        self, examples: list[Example], labels: Sequence[str], place: int, draw: int
    ) -> tuple[State, dict[str, Any]]:
        """Return the state after the injectors, and the numbers of the comparisons."""
        batch = to_device(collated_with_photos(examples), self.accelerator.device)
        seed_here(self.recipe.seed, "predict", draw, place)
        state = self._run(batch, self.injectors)
        start = time.perf_counter()
        numbers = self._compared(state, labels)
        self._spent["write"] += time.perf_counter() - start
        return state, numbers

    def _write(self, state: State, row: int, label: str, photo: Photo, numbers: Mapping[str, Any]) -> None:
        """Write the results of one example, its row in the batch, and its row of the table."""
        for name, form in self.predict.save.items():
            write_result(self.folder / f"{label}.{name}", state[name][row], form)
        self.table.add(label, photo, {name: float(column[row]) for name, column in numbers.items()})

    def _compared(self, state: State, labels: Sequence[str]) -> dict[str, Any]:
        """Draw each prediction beside its truth; return the numbers of the comparisons, (N,) by column."""
        numbers: dict[str, Any] = {}
        for name, comparison in self.comparisons.items():
            titles = [*comparison.inputs, name, comparison.target]
            image, target = _picture(state, name), _picture(state, comparison.target)
            if image.shape != target.shape:
                sizes = f"{tuple(image.shape[1:])}, and {comparison.target!r} {tuple(target.shape[1:])}"
                raise SettingError(f"predict.compare.{name}: {name!r} is {sizes}; both must be of one shape")
            numbers |= {f"{name}.{one}": values.tolist() for one, values in comparison(image, target).items()}
            for label, *cells in zip(labels, *(_as_pixels(state[title]) for title in titles), strict=True):
                write_png(self.folder / f"{label}.{name}.compared.png", side_by_side([cells], titles))
        return numbers

    def _run(self, batch: Mapping[str, Any], injectors: Mapping[str, Injector], prefix: str = "") -> State:
        last = self.recipe.train.steps or 2**62
        state, seconds = run_injectors(injectors, batch, self.networks, last, self.accelerator)
        for name, spent in seconds.items():
            self._spent[prefix + name] += spent
        return state

    def _grid(self, grid: Grid) -> None:
        if not self._grid_examples:
            return
        injectors = named_injectors(grid.injectors, f"evaluate.grids.{self.predict.grid}")
        images = [name for name, form in grid.save.items() if form == "image"]
        row, column = (next((n for n in images if n in names), None) for names in (grid.rows, grid.columns))
        sheets: dict[str, list[list[Pixels]]] = {n: [] for n in images if n not in (*grid.rows, *grid.columns)}
        for place, one in enumerate(self._grid_examples):
            pairs = [{n: one[n] for n in grid.rows} | {n: o[n] for n in grid.columns} for o in self._grid_examples]
            seed_here(self.recipe.seed, "predict", "grid", place)
            state = self._run(to_device(collated(pairs), self.accelerator.device), injectors, f"{self.predict.grid}.")
            for name, sheet in sheets.items():
                cells = list(_as_pixels(state[name]))
                blank = np.full_like(cells[0], 255)
                if not sheet:
                    sheet.append([blank, *(blank if column is None else _as_pixels(state[column]))])
                sheet.append([blank if row is None else _as_pixels(state[row])[0], *cells])
        for name, sheet in sheets.items():
            titles = [f"{row} / {column}", *("" for _ in self._grid_examples)]
            write_png(self.folder / f"{self.predict.grid}.{name}.png", side_by_side(sheet, titles))
        if self._examples > len(self._grid_examples):
            size = f"evaluate.grids.{self.predict.grid}.size"
            print(f"{self.predict.grid}: the first {len(self._grid_examples)} of {self._examples} ({size})")

    def _summary(self, photos: int, seconds: float) -> None:
        examples = "" if self._examples == photos else f" ({self._examples} examples)"
        print(f"{photos} images{examples} in {seconds:.1f} s: {photos / seconds:.2f} images/s")
        if photos and not self._examples:
            kind = self.predict.data.type
            print(f"warning: nothing is written, because predict.data ({kind}) makes no example of these images")
        elif photos:
            times = (f"{name} {1000 * spent / photos:.2f}" for name, spent in self._spent.items())
            print(f"ms an image: {', '.join(times)}")
        if self.table.rows:
            means = ", ".join(f"{name} {mean:.4g}" for name, mean in self.table.means().items())
            average = f"; on average {means}" if means else ""
            print(printable(f"{self.table.path}: {self.table.rows} results{average}"))


def said(subject: object, error: Exception) -> str:
    """Return a line about an error: of bad input what it says, of a bug its type and the line of code as well."""
    if isinstance(error, UserError):
        return str(error) if str(subject) in str(error) else f"{subject}: {error}"
    if lacking := memory_asked(error):
        return f"{subject}: {lacking}"
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename}:{place.lineno}, {place.name}"
    return f"{subject}: {type(error).__name__}: {error} (unexpected, at {where}; please report it)"


def _picture(state: State, name: str) -> Tensor:
    value = state[name]
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise SettingError(f"predict.compare: {name!r} is no picture in [-1, 1], and cannot be compared")
    return value.float()


def _comparisons(predict: Predict, file: Path) -> dict[str, Comparison]:
    """Return the comparisons whose true picture the photos know, by the saved picture that they judge."""
    errors = ErrorCollector(file)
    kind: Any = find_type(predict.data.type, PHOTOS, "predict.data.type", errors)
    errors.raise_any()
    provided = kind.provides(predict.data.arguments)
    built: dict[str, Comparison] = {
        name: build(entry, COMPARISON, f"predict.compare.{name}", file) for name, entry in predict.compare.items()
    }
    return {name: comparison for name, comparison in built.items() if comparison.target in provided}


def _photos(predict: Predict, file: Path) -> PhotoExamples:
    errors = ErrorCollector(file)
    photos: PhotoExamples = construct(predict.data.type, predict.data.arguments, PHOTOS, "predict.data", errors)
    errors.raise_any()
    return photos


def needed(injectors: Mapping[str, Injector], outputs: Iterable[str]) -> tuple[dict[str, Injector], set[str]]:
    """Return the injectors that `outputs` depend on, in order, and the names that examples must have."""
    names, chosen = {*outputs, "name"}, []
    for key, injector in reversed(list(injectors.items())):
        if names & set(injector.adds):
            chosen.append(key)
            names = names - set(injector.adds) | set(injector.reads)
    return {key: injectors[key] for key in reversed(chosen)}, names


def _as_pixels(images: Tensor) -> Pixels:
    return as_pixels(images.detach().float().cpu().numpy())


def write_result(base: Path, value: Any, form: str) -> None:
    """Write one value to `base` with a suffix added: `.png`, `.npy` or `.json`.

    `image` is (3 or 1, H, W) in [-1, 1], or uint8; `mask` (1, H, W) in [0, 1].
    """
    if form == "records":
        records = RecordsFile(base.with_name(f"{base.name}.json"))
        records.add(Records(value))
        records.close()
    elif form == "array":
        base.parent.mkdir(parents=True, exist_ok=True)
        np.save(base.with_name(f"{base.name}.npy"), value.detach().float().cpu().numpy())
    elif value.dtype == torch.uint8:
        write_png(base.with_name(f"{base.name}.png"), value.permute(1, 2, 0).cpu().numpy())
    else:
        pixels = _as_pixels((2 * value - 1 if form == "mask" else value)[None])[0]
        write_png(base.with_name(f"{base.name}.png"), pixels)
