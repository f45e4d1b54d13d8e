"""Run trained networks on arbitrary photos as defined in a recipe's `predict` section, and hand over each result."""

import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn
from tqdm import tqdm

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError, memory_asked, printable
from figura.base.modes import evaluating
from figura.base.seeding import random_kept, seed_here
from figura.engine.data import collated
from figura.engine.inference import named_injectors, run_injectors
from figura.engine.weights import to_device
from figura.interfaces import Example, Injector, Networks, State
from figura.prediction.comparison import Comparison
from figura.prediction.device import Device
from figura.prediction.inputs import Photo, PhotoExamples, SettingError
from figura.prediction.outputs import Output, converted, pixels_of
from figura.prediction.streaming import batch_by_shape, collated_with_photos, prefetch
from figura.recipe.schema import Grid, Predict, Recipe
from figura.recipe.types import COMPARISON, PHOTOS, build, construct, find_type
from figura.report.sheets import Pixels, side_by_side

T = TypeVar("T")


class Runner:
    """Predicts from photos; subclasses handle each result (`take`) and unusable inputs (`report`).

    All examples of a batch have one shape; rarer shapes wait for more, at most two batches in total. Noise is seeded by
    (seed, draw, batch). `workers` threads prefetch photos (0: none). Each object is used once.
    """

    def __init__(
        self, recipe: Recipe, predict: Predict, networks: Mapping[str, nn.Module], accelerator: Device,
        *, batch_size: int, workers: int,
    ) -> None:  # fmt: skip
        self.recipe, self.predict, self.accelerator = recipe, predict, accelerator
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
        self.done = 0
        self._grid_examples: list[Example] = []
        self._written: set[str] = set()
        self._photos: dict[str, Photo] = {}  # of the pending examples, by name
        self._faults, self._examples = 0, 0
        self._spent: dict[str, float] = defaultdict(float)  # seconds

    @property
    def columns(self) -> list[str]:
        """The numbers of the comparisons: columns of `predictions.csv`."""
        return [f"{name}.{one}" for name, comparison in self.comparisons.items() for one in comparison.names]

    def take(self, output: Output) -> None:
        """Handle one result."""
        raise TypeError(f"{type(self).__name__} takes no results")

    def note(self, photo: Photo) -> None:
        """Handle a photo that was read, before its results, if any."""

    def batches(self, photos: Iterable[Photo], progress: tqdm) -> Iterator[None]:
        """Predict from photos; yield after each batch, once its results have been handled.

        While a batch runs, gradients are off, networks in eval mode and random generators seeded; the previous state is
        restored in between.

        Raises:
            SettingError: a setting that fits no photo.
        """

        def examples() -> Iterator[Example]:
            for photo, result in prefetch(photos, self._read, self.workers):
                progress.update()
                if isinstance(result, UserError):
                    self._report(str(result))
                else:
                    self.done += 1
                    for fault in photo.faults:
                        self._report(fault)
                    self.note(photo)
                    yield from (one for one in result if self._is_new(one, photo))

        for fault in self.photos.faults:
            self._report(fault)
        for place, batch in enumerate(self._timed("read", batch_by_shape(examples(), self.batch_size))):
            with evaluating(*self.networks.live.values()):
                self._keep_for_grid(batch)
                self._batch(batch, place, range(self.mode.repeat))
            for one in batch:
                del self._photos[one["name"]]
            yield

    def sheets(self) -> dict[str, Pixels]:
        """Return the pictures of the grid, by `<grid>.<name>`: of the first examples, every row with every column."""
        if self.grid is None or not self._grid_examples:
            return {}
        with evaluating(*self.networks.live.values()):
            return self._attempt(str(self.predict.grid), self._sheets, self.grid) or {}

    def _report(self, message: str) -> None:
        self._faults += 1
        tqdm.write(printable(f"skipped: {message}"), file=sys.stderr)

    def _attempt(self, subject: object, act: Callable[..., T], *arguments: Any) -> T | None:
        """Return the result of `act`; if it fails, report that and return None. SettingErrors are not caught."""
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

    def _keep_for_grid(self, examples: list[Example]) -> None:
        """Count examples, and keep the first ones for the grid."""
        self._examples += len(examples)
        if self.grid is not None:
            names = {*self.grid.rows, *self.grid.columns}
            missing = self.grid.size - len(self._grid_examples)
            self._grid_examples += [{name: one[name] for name in names} for one in examples[:missing]]

    def _batch(self, examples: list[Example], place: int, draws: range) -> None:
        """Predict from a batch and hand over its results; if that fails, predict from each example separately."""
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
            for row, (label, one) in enumerate(zip(labels, examples, strict=True)):
                photo = self._photos[one["name"]]
                self._attempt(photo.path, self._take_row, *drawn, row, label, photo)
            self._spent["write"] += time.perf_counter() - start

    def _drawn(
        self, examples: list[Example], labels: Sequence[str], place: int, draw: int
    ) -> tuple[State, dict[str, list[float]], dict[str, list[Pixels]]]:
        """Return the state after the injectors, and the numbers and the pictures of the comparisons."""
        batch = to_device(collated_with_photos(examples), self.accelerator.device)
        with random_kept():
            seed_here(self.recipe.seed, "predict", draw, place)
            state = self._run(batch, self.injectors)
            start = time.perf_counter()
            compared = self._compared(state, len(labels))
        self._spent["write"] += time.perf_counter() - start
        return state, *compared

    def _take_row(
        self, state: State, numbers: Mapping[str, list[float]], compared: Mapping[str, list[Pixels]],
        row: int, label: str, photo: Photo,
    ) -> None:  # fmt: skip
        """Hand over the results of one example: a row of the batch."""
        self.take(
            Output(
                label, photo,
                {name: converted(name, state[name][row], form) for name, form in self.predict.save.items()},
                {name: float(column[row]) for name, column in numbers.items()},
                {name: pictures[row] for name, pictures in compared.items()},
            )
        )  # fmt: skip

    def _compared(self, state: State, count: int) -> tuple[dict[str, list[float]], dict[str, list[Pixels]]]:
        """Return the numbers of the comparisons by column, and each prediction beside its truth."""
        numbers: dict[str, list[float]] = {}
        compared: dict[str, list[Pixels]] = {}
        for name, comparison in self.comparisons.items():
            titles = [*comparison.inputs, name, comparison.target]
            image, target = _picture(state, name), _picture(state, comparison.target)
            if image.shape != target.shape:
                sizes = f"{tuple(image.shape[1:])}, and {comparison.target!r} {tuple(target.shape[1:])}"
                raise SettingError(f"predict.compare.{name}: {name!r} is {sizes}; both must be of one shape")
            numbers |= {f"{name}.{one}": values.tolist() for one, values in comparison(image, target).items()}
            cells = [pixels_of(title, state[title]) for title in titles]
            compared[name] = [side_by_side([[column[row] for column in cells]], titles) for row in range(count)]
        return numbers, compared

    def _run(self, batch: Mapping[str, Any], injectors: Mapping[str, Injector], prefix: str = "") -> State:
        last = self.recipe.train.steps or 2**62
        state, seconds = run_injectors(injectors, batch, self.networks, last, self.accelerator)
        for name, spent in seconds.items():
            self._spent[prefix + name] += spent
        return state

    def _sheets(self, grid: Grid) -> dict[str, Pixels]:
        injectors = named_injectors(grid.injectors, f"evaluate.grids.{self.predict.grid}")
        images = [name for name, form in grid.save.items() if form == "image"]
        row, column = (next((n for n in images if n in names), None) for names in (grid.rows, grid.columns))
        sheets: dict[str, list[list[Pixels]]] = {n: [] for n in images if n not in (*grid.rows, *grid.columns)}
        for place, one in enumerate(self._grid_examples):
            pairs = [{n: one[n] for n in grid.rows} | {n: o[n] for n in grid.columns} for o in self._grid_examples]
            batch = to_device(collated(pairs), self.accelerator.device)
            with random_kept():
                seed_here(self.recipe.seed, "predict", "grid", place)
                state = self._run(batch, injectors, f"{self.predict.grid}.")
            for name, sheet in sheets.items():
                cells = list(pixels_of(name, state[name]))
                blank = np.full_like(cells[0], 255)
                if not sheet:
                    sheet.append([blank, *(blank if column is None else pixels_of(column, state[column]))])
                sheet.append([blank if row is None else pixels_of(row, state[row])[0], *cells])
        titles = [f"{row} / {column}", *("" for _ in self._grid_examples)]
        return {f"{self.predict.grid}.{name}": side_by_side(sheet, titles) for name, sheet in sheets.items()}


def said(subject: object, error: Exception) -> str:
    """Return a line about an error: for bad input its message, for a bug also its type and line of code."""
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
    """Return the comparisons whose ground truth photos have, by the saved picture that they compare."""
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
