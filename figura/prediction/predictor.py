"""Predict from Python: `figura.load("runs/pose").predict("photos")`. docs/api.md has examples.

Slow imports are deferred until `load` has found the model and its recipe.
"""

import json
import operator
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.errors import UserError, printable
from figura.base.files import open_regular
from figura.evaluation.model_folder import model_folder
from figura.prediction.origin import Origin, find_origin
from figura.prediction.result import Result
from figura.prediction.results import Results
from figura.prediction.zoo import model_path

if TYPE_CHECKING:
    import torch

    from figura.prediction.model import Trained
    from figura.prediction.runner import Runner

StrPath = str | os.PathLike[str]


class Predictor:
    """A trained model, ready to predict; returned by `figura.load`.

    Results equal those of `figura predict` for the same images, batch size and device.

    Attributes:
        model: the model folder.
        trained: the networks and the recipe.
    """

    def __init__(
        self, model: Path, trained: "Trained", types: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self.model, self.trained, self._types = model, trained, types

    def __repr__(self) -> str:
        return f"<figura.Predictor of {self.model} on {self.device}>"

    @property
    def recipe(self) -> Path:
        """The params file with the `predict` section."""
        return self.trained.recipe.path

    @property
    def device(self) -> str:
        """The device that computes, such as `cpu` or `cuda`."""
        return str(self.trained.device.device)

    @property
    def saves(self) -> dict[str, str]:
        """The form of each saved output, by name: `image`, `mask`, `array` or `records`."""
        return dict(self.trained.predict.save)

    def predict(
        self, images: Any, *, batch_size: int | None = None, every: int = 1, skip: bool = False,
        progress: bool = False, workers: int = 1, tile: int | None = None, overlap: int | None = None,
    ) -> Results:  # fmt: skip
        """Return the results of all images, in their order.

        Args:
            images: a path of an image, a folder (all images below it), a pattern such as `photos/*.jpg`, or a video; an
                array, uint8 RGB (height, width, 3), or a batch of them (N, height, width, 3); a PIL picture; or a list
                or iterator of these. A list of only paths is expanded as by the command, with each file once, even if
                matched twice. OpenCV's arrays are BGR: `[..., ::-1]` makes them RGB.
            batch_size: default: `evaluate.batch_size` of the recipe.
            every: use each `every`-th frame of videos.
            skip: skip unusable inputs, including paths that match nothing, and list them in `Results.faults`. Skipped
                inputs still get a number (`image.id`), except paths that match nothing in a list of only paths.
            progress: show a progress bar.
            workers: threads that read images ahead.
            tile: predict from tiles of so many pixels a side, put together again: memory depends on it, not on the
                image. For networks that make a picture of the input's size or a multiple of it.
            overlap: of neighbouring tiles, in pixels, at most half of `tile`. Default: a quarter.

        Warns of images that are squeezed, transparent, of 16 bits or animated, and of other files in folders.

        Raises:
            UserError: an image is unusable (or with `skip`, all are); nothing is returned.
        """
        from figura.prediction.input_files import photos_from, refuse

        faults = list[str]()
        runner = self.start(faults.append if skip else refuse, batch_size=batch_size, workers=workers)
        photos = photos_from(images, _count("every", every), runner.report, runner.left_out)
        if tile is None:
            if overlap is not None:
                raise UserError("overlap: there are no tiles; set `tile`, too")
            return self._gathered(runner, list(runner.results(photos, progress)), faults)
        from figura.prediction.tiles import Tiling, tiled_results

        shared = None if overlap is None else _count("overlap", overlap, least=0)
        results = list(tiled_results(runner, photos, Tiling(_count("tile", tile), shared), progress))
        runner.images[:] = sorted((one.image for one in results), key=lambda image: image.id)
        return self._gathered(runner, results, faults)

    def stream(
        self, images: Any, *, batch_size: int | None = None, every: int = 1, skip: bool = False, workers: int = 1
    ) -> Iterator[Result]:
        """Yield results as they become ready, for more images than fit in memory; otherwise like `predict`.

        Images of the same size keep their order; others may come later, once there is a batch of their size. With
        `skip`, skipped images cause warnings; without, results of earlier images are yielded before the error is
        raised.
        """
        from figura.prediction.input_files import photos_from, refuse

        faults = list[str]()
        runner = self.start(faults.append if skip else refuse, batch_size=batch_size, workers=workers)
        photos = photos_from(images, _count("every", every), runner.report, runner.left_out)
        return _warning(runner.results(photos), faults, runner)

    def predict_video(
        self, video: StrPath, output: StrPath, *, batch_size: int | None = None, every: int = 1, progress: bool = True
    ) -> Results:
        """Write what `Result.draw` draws of each frame as a video; return the results, without pictures.

        It has the original duration but no sound, and replaces an earlier file when complete. `output` ends in .mp4
        (VP9) or .webm (VP8, written faster), which browsers play, or .mov (MPEG-4, faster still), which they do not.
        The readable part of a damaged video is used; a missing frame repeats the previous one. Skipped frames are
        listed in a warning and in `Results.faults`.

        Raises:
            UserError: `video` is not one video or not readable, the new one cannot be written, or the recipe saves no
                full-frame picture.
        """
        from figura.dump import writing
        from figura.prediction.input_files import File, count_photos, read_photos
        from figura.prediction.video import check_video_name, video_file

        source, target, faults = Path(video), Path(output), list[str]()
        runner = self.start(faults.append, batch_size=batch_size)
        check_video_name(target)
        _check_source(source, target)
        files, kept = [File(source, source.stem)], list[Result]()
        photos, total = read_photos(files, _count("every", every), runner.report), count_photos(files, every)
        with ExitStack() as stack, writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            frames = None
            for one in runner.results(photos, progress, total):
                if one.image.at is None or one.image.rate is None or one.name != one.image.name:
                    raise UserError(
                        f"{one.name}: the recipe makes no picture of a whole frame; use predict for its results"
                    )
                frames = frames or stack.enter_context(video_file(target, one.image.rate))
                frames.add(one.draw(), one.image.at)
                kept.append(replace(one, pictures={}, compared={}, video=target))
        lines = printable("\n".join(faults))
        if not kept:
            raise UserError(lines or f"{source}: the recipe makes nothing of its frames")
        if lines:
            warnings.warn(f"{target}: not all of the video could be used:\n{lines}", stacklevel=2)
        return self._gathered(runner, kept, faults)

    def start(self, report: Callable[[str], None], *, batch_size: int | None = None, workers: int = 1) -> "Runner":
        """Return a prediction that has not begun; for the arguments, see `Runner`."""
        from figura.prediction.runner import Runner

        size = None if batch_size is None else _count("batch_size", batch_size)
        with self._types():
            return Runner(self.trained, report, batch_size=size, workers=_count("workers", workers, least=0))

    def _gathered(self, runner: "Runner", results: list[Result], faults: list[str]) -> Results:
        _warn(runner)
        ordered = tuple(sorted(results, key=lambda one: one.image.id))
        lines = tuple(line for fault in faults for line in fault.split("\n"))
        return Results(ordered, tuple(runner.images), self.saves, self.trained.categories, runner.sheets(), lines)


def load(
    run: StrPath, *, recipe: StrPath | None = None, device: "str | torch.device" = "auto",
    settings: Mapping[str, Any] | None = None, trusted_types_only: bool = False,
) -> Predictor:  # fmt: skip
    """Load a trained model.

    Args:
        run: a name of the zoo, such as `photos_x2`, the folder of a run, such as `runs/pose`, or a model folder, such
            as one of its checkpoints.
        recipe: the params file with `predict` and `evaluate`. Default: the recipe in the model folder if it has these
            sections, else the one listed in a pipeline above the run.
        device: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1`, ..., or a `torch.device`.
        settings: overrides for the sections `predict` and `evaluate`, by dotted keys, like `--set` of `predict`:
            `{"predict.data.side": 0}`.
        trusted_types_only: for untrusted models: like the option of `predict`.

    Classes of the project are found from any working folder: while a model loads or a prediction starts, the folder
    whose pipeline lists the recipe is first on `sys.path` (not with `trusted_types_only`). A process has one module
    per name, such as `models`: a second project with the same name is rejected.

    Raises:
        UserError: there is no model, its recipe is missing or invalid, there is no such device, or modules of another
            project conflict.
    """
    model = model_folder(model_path(Path(run)))
    origin = find_origin(model, None if recipe is None else Path(recipe), trusted_types_only)
    assignments = [f"{key}={_as_json(key, value)}" for key, value in (settings or {}).items()]
    predictor = load_predictor(model, origin, assignments, str(device))
    if predictor.trained.is_try:
        warnings.warn(f"{model}: the weights of a try of {predictor.trained.recipe.train.steps} steps", stacklevel=2)
    return predictor


def load_predictor(model: Path, origin: Origin, assignments: Sequence[str] = (), device: str = "auto") -> Predictor:
    """Load a model folder whose recipe has been found, after assignments `key=value`. For errors, see `load`."""
    with origin.types():
        content = origin.checked_content(model, assignments)

        from figura.prediction.model import load_networks

        return Predictor(model, load_networks(origin.recipe, content, model, device), origin.types)


def _as_json(key: str, value: Any) -> str:
    """Return a setting as JSON, which is YAML. Raises UserError if it is not JSON, a path or a value of NumPy."""

    def plain(one: Any) -> Any:
        return os.fspath(one) if isinstance(one, os.PathLike) else one.tolist()

    try:
        return json.dumps(value, default=plain, ensure_ascii=False, allow_nan=False)
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"settings: {key}: {error}; allowed are numbers, strings, lists and dictionaries") from None


def _warning(results: Iterator[Result], faults: list[str], runner: "Runner") -> Iterator[Result]:
    """Yield results, each after warnings about inputs skipped before it; at the end, warn of suspicions."""
    while True:
        try:
            one = next(results, None)
        finally:  # also before an error
            for fault in faults:
                warnings.warn(printable(fault), stacklevel=2)
            faults.clear()
        if one is None:
            _warn(runner)
            return
        yield one


def _warn(runner: "Runner") -> None:
    for line in runner.warnings():
        warnings.warn(printable(line), stacklevel=3)


def _check_source(source: Path, target: Path) -> None:
    """Raise UserError if the source is not one video that can be opened, or is the target."""
    from figura.base.pictures import VIDEOS

    if source.suffix.lower() not in VIDEOS:
        raise UserError(f"{source}: no video; videos end in {', '.join(VIDEOS)}")
    open_regular(source, "name one video, no folder or pattern").close()
    if source.resolve() == target.resolve():
        raise UserError(f"{target}: is the video to read; name another output")


def _count(name: str, value: int, least: int = 1) -> int:
    """Return a whole number, also of NumPy; raises UserError if it is none, or less than `least`."""
    with suppress(TypeError):
        if (whole := operator.index(value)) >= least:
            return whole
    raise UserError(f"{name}: found {value!r}; a whole number from {least} is needed")
