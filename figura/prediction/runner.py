"""Run a trained model on arbitrary photos as defined in a recipe's `predict` section."""

import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from figura.base.errors import UserError, memory_asked
from figura.base.modes import evaluating
from figura.base.pictures import Pixels, left_out_line
from figura.base.seeding import random_kept, seed_here
from figura.engine.data import collated
from figura.engine.inference import named_injectors, run_injectors
from figura.engine.weights import to_device
from figura.interfaces import Example, Injector, Networks, Records, State
from figura.prediction.comparison import Comparison
from figura.prediction.inputs import Photo, PhotoExamples, SettingError
from figura.prediction.model import Trained
from figura.prediction.result import ImageInfo, Result, image_of
from figura.prediction.streaming import batch_by_shape, collated_with_photos, prefetch
from figura.recipe.schema import Grid
from figura.recipe.types import COMPARISON, PHOTOS, build
from figura.report.sheets import as_pixels, side_by_side

T = TypeVar("T")


class Runner:
    """One prediction: the results of photos, as they are ready; used once.

    All examples of a batch have one shape; rarer shapes wait for more, at most two batches in total. Noise is seeded by
    (seed, draw, batch).

    Args:
        trained: the model.
        report: gets a line about each unusable input. If it raises UserError, the prediction ends with that.
        batch_size: number of examples; None: `evaluate.batch_size`.
        workers: threads that read photos ahead; 0: none.

    Attributes:
        images: the readable photos so far.
        examples: number of examples so far.
        suspicions: names of photos by kind of likely mistake (`Photo.suspicions`).
        left_out: files of folders that are no images, by what they are.
    """

    def __init__(
        self, trained: Trained, report: Callable[[str], None], *, batch_size: int | None = None, workers: int = 1
    ) -> None:
        self.trained, self.report, self.workers = trained, report, workers
        predict, evaluate, path = trained.predict, trained.recipe.evaluate, trained.recipe.path
        self.batch_size = batch_size or evaluate.batch_size
        self.networks = Networks(dict(trained.networks), dict(trained.networks))
        self.photos: PhotoExamples = build(predict.data, PHOTOS, "predict.data", path)
        self.mode = evaluate.modes[predict.mode]
        built = named_injectors(self.mode.injectors, f"evaluate.modes.{predict.mode}")
        built |= named_injectors(predict.injectors, "predict.injectors")
        self.injectors, self.reads = needed(built, predict.save)
        self.grid: Grid | None = None if predict.grid is None else evaluate.grids[predict.grid]
        self.grid_injectors: dict[str, Injector] = {}
        if self.grid is not None:
            self.grid_injectors = named_injectors(self.grid.injectors, f"evaluate.grids.{predict.grid}")
            self.reads |= {*self.grid.rows, *self.grid.columns}
        self.comparisons: dict[str, Comparison] = {}  # by the saved picture that they compare
        for name, entry in predict.compare.items():
            comparison: Comparison = build(entry, COMPARISON, f"predict.compare.{name}", path)
            if comparison.target in self.photos.provides(predict.data.arguments):  # the photos have the ground truth
                self.comparisons[name] = comparison
                self.reads |= {comparison.target, *comparison.inputs}
        self.images: list[ImageInfo] = []
        self.examples = 0
        self.suspicions: dict[str, list[str]] = {}
        self.left_out = Counter[str]()
        self._grid_examples: list[Example] = []
        self._names: set[str] = set()  # of all examples
        self._pending: dict[str, ImageInfo] = {}  # of the examples without results yet, by name
        self._ready: deque[Result] = deque()
        self._taken = 0  # photos
        self._failure: UserError | None = None

    def results(self, photos: Iterable[Photo], progress: bool = False, total: int | None = None) -> Iterator[Result]:
        """Yield the results of photos, batch by batch.

        While a batch runs, gradients are off, networks in eval mode and random generators seeded; the previous state is
        restored in between.

        Args:
            photos: the photos.
            progress: show a progress bar.
            total: the number of photos, for the bar.

        Raises:
            SettingError: a setting that fits no photo.
            UserError: raised by `report`; results of earlier photos are yielded before.
        """
        for fault in self.photos.faults:
            self.report(fault)
        with tqdm(total=total, unit="image", desc="predict", disable=not progress) as bar:
            examples = self._until_error(self._examples(self._until_error(photos)))
            for index, batch in enumerate(batch_by_shape(examples, self.batch_size)):
                failure = None
                try:
                    with evaluating(*self.networks.live.values()):
                        self._keep_for_grid(batch)
                        self._batch(batch, index, range(self.mode.repeat))
                except UserError as error:
                    failure = error
                for one in batch:
                    del self._pending[one["name"]]
                bar.update(self._done - bar.n)
                while self._ready:
                    yield self._ready.popleft()
                if failure is not None:
                    raise failure
            bar.update(self._done - bar.n)
        if self._failure is not None:
            raise self._failure

    def _until_error(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items until a UserError, which `results` raises after the results of the items before."""
        try:
            yield from items
        except UserError as error:
            self._failure = error

    def sheets(self) -> dict[str, Pixels]:
        """Return the pictures of the grid, by `<grid>.<name>`: of the first examples, every row with every column."""
        if self.grid is None or not self._grid_examples:
            return {}
        with evaluating(*self.networks.live.values()):
            return self.attempt(str(self.trained.predict.grid), self._sheets, self.grid) or {}

    def warnings(self) -> list[str]:
        """Return a line for each kind of suspicion, with a count and an example, and one on other files."""
        lines = [f"{len(names)} {kind} (e.g. {names[0]})" for kind, names in self.suspicions.items()]
        return lines + ([left_out_line(self.left_out)] if self.left_out else [])

    def suspect(self, photo: Photo) -> None:
        """Count the suspicions of a photo that has been read."""
        for kind, detail in photo.suspicions.items():
            self.suspicions.setdefault(kind, []).append(f"{photo.name}{detail}")

    @property
    def on_grid(self) -> int:
        """The number of examples on the grid, the first ones."""
        return len(self._grid_examples)

    @property
    def unfinished_files(self) -> set[Path | None]:
        """The files that may still have results: the newest one read, and those of pending examples."""
        ready = (one.image for one in self._ready)
        return {one.file for one in (*self.images[-1:], *self._pending.values(), *ready)}

    def attempt(self, subject: object, act: Callable[..., T], *arguments: Any) -> T | None:
        """Return the result of `act`; if it fails, report that and return None. SettingErrors are not caught."""
        try:
            return act(*arguments)
        except SettingError:
            raise
        except Exception as error:  # noqa: BLE001  # the other photos are done all the same
            self.report(said(subject, error))
            return None

    @property
    def _done(self) -> int:
        """The number of photos read, without those that still have results to come."""
        return self._taken - len({image.id for image in self._pending.values()})

    def _examples(self, photos: Iterable[Photo]) -> Iterator[Example]:
        for photo, result in prefetch(photos, self._read, self.workers):
            self._taken += 1
            if isinstance(result, UserError):
                self.report(str(result))
                continue
            for fault in photo.faults:
                self.report(fault)
            self.suspect(photo)
            image = image_of(photo)
            self.images.append(image)
            for example in result:
                if example["name"] in self._names:
                    self.report(f"{example['name']}: another input has results of this name already; rename one")
                else:
                    self._names.add(example["name"])
                    self._pending[example["name"]] = image
                    yield example

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

    def _keep_for_grid(self, examples: list[Example]) -> None:
        """Count examples, and keep the first ones for the grid."""
        self.examples += len(examples)
        if self.grid is not None:
            names = {*self.grid.rows, *self.grid.columns}
            missing = self.grid.size - len(self._grid_examples)
            self._grid_examples += [{name: one[name] for name in names} for one in examples[:missing]]

    def _batch(self, examples: list[Example], place: int, draws: range) -> None:
        """Predict from a batch; if that fails, predict from each example separately."""
        for draw in draws:
            labels = [f"{one['name']}-{draw}" if self.mode.repeat > 1 else one["name"] for one in examples]
            images = [self._pending[one["name"]] for one in examples]
            if len(examples) == 1:
                drawn = self.attempt(images[0].source, self._drawn, examples, place, draw)
                if drawn is None:
                    return
            else:
                try:
                    drawn = self._drawn(examples, place, draw)
                except SettingError:
                    raise
                except Exception:  # noqa: BLE001  # said when an example fails alone
                    for one in examples:
                        self._batch([one], place, range(draw, draws.stop))
                    return
            for row, (label, image) in enumerate(zip(labels, images, strict=True)):
                if (result := self.attempt(image.source, self._result, *drawn, row, label, image)) is not None:
                    self._ready.append(result)

    def _drawn(
        self, examples: list[Example], place: int, draw: int
    ) -> tuple[State, dict[str, list[float]], dict[str, list[Pixels]]]:
        """Return the state after the injectors, and the numbers and the pictures of the comparisons."""
        batch = to_device(collated_with_photos(examples), self.trained.device.device)
        with random_kept():
            seed_here(self.trained.recipe.seed, "predict", draw, place)
            state = self._run(batch, self.injectors)
            return state, *self._compared(state, len(examples))

    def _result(
        self, state: State, numbers: Mapping[str, list[float]], compared: Mapping[str, list[Pixels]],
        row: int, label: str, image: ImageInfo,
    ) -> Result:  # fmt: skip
        """Return the result of one example: a row of the batch."""
        pictures: dict[str, Pixels] = {}
        records: dict[str, list[dict[str, Any]]] = {}
        arrays: dict[str, NDArray[np.float32]] = {}
        for name, form in self.trained.predict.save.items():
            values: dict[str, Any] = records if form == "records" else arrays if form == "array" else pictures
            values[name] = converted(name, state[name][row], form)
        scores = {name: float(column[row]) for name, column in numbers.items()}
        beside = {name: cells[row] for name, cells in compared.items()}
        return Result(label, image, self.trained.categories, pictures, records, arrays, scores, beside)

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
            cells = [_pixels(title, state[title]) for title in titles]
            compared[name] = [side_by_side([[column[row] for column in cells]], titles) for row in range(count)]
        return numbers, compared

    def _run(self, batch: Mapping[str, Any], injectors: Mapping[str, Injector]) -> State:
        last = self.trained.recipe.train.steps or 2**62  # schedules have arrived where they end
        return run_injectors(injectors, batch, self.networks, last, self.trained.device)[0]

    def _sheets(self, grid: Grid) -> dict[str, Pixels]:
        images = [name for name, form in grid.save.items() if form == "image"]
        row, column = (next((n for n in images if n in names), None) for names in (grid.rows, grid.columns))
        sheets: dict[str, list[list[Pixels]]] = {n: [] for n in images if n not in (*grid.rows, *grid.columns)}
        for index, one in enumerate(self._grid_examples):
            pairs = [{n: one[n] for n in grid.rows} | {n: o[n] for n in grid.columns} for o in self._grid_examples]
            batch = to_device(collated(pairs), self.trained.device.device)
            with random_kept():
                seed_here(self.trained.recipe.seed, "predict", "grid", index)
                state = self._run(batch, self.grid_injectors)
            for name, sheet in sheets.items():
                cells = list(_pixels(name, state[name]))
                blank = np.full_like(cells[0], 255)
                if not sheet:
                    sheet.append([blank, *(blank if column is None else _pixels(column, state[column]))])
                sheet.append([blank if row is None else _pixels(row, state[row])[0], *cells])
        titles = [f"{row} / {column}", *("" for _ in self._grid_examples)]
        return {f"{self.trained.predict.grid}.{name}": side_by_side(sheet, titles) for name, sheet in sheets.items()}


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


def needed(injectors: Mapping[str, Injector], outputs: Iterable[str]) -> tuple[dict[str, Injector], set[str]]:
    """Return the injectors that `outputs` depend on, in order, and the names that examples must have.

    An injector that completes records in place names them in `amends`.
    """
    names, chosen = {*outputs, "name"}, []
    for key, injector in reversed(list(injectors.items())):
        if names & {*injector.adds, *getattr(injector, "amends", ())}:
            chosen.append(key)
            names = names - set(injector.adds) | set(injector.reads)
    return {key: injectors[key] for key in reversed(chosen)}, names


def converted(name: str, value: Any, form: str) -> Any:
    """Convert a state value of one example to a form of `predict.save`.

    `image` is (3 or 1, H, W) in [-1, 1], or uint8; `mask` (1, H, W) in [0, 1], of any type. Both become pixels, uint8
    (H, W, 3).
    `array` becomes float32; `records` stay a list of dictionaries.

    Raises:
        SettingError: an image or a mask has another shape.
        UserError: the value contains NaN or infinity.
    """
    if form == "records":
        return Records(value)
    if form == "array":
        return value.detach().float().cpu().numpy()
    if value.ndim != 3 or value.shape[0] not in (1, 3) or value.numel() == 0:
        found = f"found the shape {tuple(value.shape)}; a picture is (3 or 1, height, width)"
        raise SettingError(f"predict.save.{name}: {found}; save it as array")
    if form == "mask":
        value = 2 * value.float() - 1
    if value.dtype == torch.uint8:
        return np.repeat(value.permute(1, 2, 0).cpu().numpy(), 3 // len(value), axis=2)
    return _pixels(name, value[None])[0]


def _pixels(name: str, images: Tensor) -> Pixels:
    """Return (N, H, W, 3) pixels of (N, 3 or 1, H, W) in [-1, 1]. Raises UserError for NaN or infinity."""
    values = images.detach().float().cpu().numpy()
    if wrong := values.size - int(np.isfinite(values).sum()):
        raise UserError(f"{name}: {wrong} of {values.size} values are NaN or infinite; a picture has none")
    return as_pixels(values)
