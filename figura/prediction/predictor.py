"""Predict from Python: `figura.load("runs/pose").predict("photos")`. docs/api.md has examples.

Slow imports are deferred until `load` has found the model and its recipe.
"""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from figura.base.error_collector import shown
from figura.base.errors import UserError, printable
from figura.base.files import open_regular
from figura.evaluation.model_folder import model_folder
from figura.prediction.origin import Origin, find_origin
from figura.prediction.results import Result, Results
from figura.prediction.settings import checked_content

if TYPE_CHECKING:
    import torch

    from figura.prediction.inference import Inference, Trained

StrPath = str | os.PathLike[str]


class Predictor:
    """A trained model, ready to predict; returned by `figura.load`.

    Results equal those of `figura predict` for the same images, batch size and device.

    Attributes:
        model: the model folder.
        recipe: the params file with its `predict` section.
    """

    def __init__(self, model: Path, origin: Origin, trained: "Trained") -> None:
        self.model, self.recipe, self._origin, self._trained = model, origin.recipe, origin, trained

    def __repr__(self) -> str:
        return f"<figura.Predictor of {self.model} on {self.device}>"

    @property
    def device(self) -> str:
        """The device that computes, such as `cpu` or `cuda`."""
        return str(self._trained.device.device)

    @property
    def saves(self) -> dict[str, str]:
        """The form of each saved output, by name: `image`, `mask`, `array` or `records`."""
        return dict(self._trained.predict.save)

    def predict(
        self, images: Any, *, batch_size: int | None = None, every: int = 1, skip: bool = False,
        progress: bool = False, workers: int = 1,
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

        Raises:
            UserError: an image is unusable (or with `skip`, all are); nothing is returned.
        """
        run = self._inference(batch_size, workers, not skip)
        results = run.results(images, _count("every", every), progress)
        return self._gathered(run, tuple(results))

    def stream(
        self, images: Any, *, batch_size: int | None = None, every: int = 1, skip: bool = False, workers: int = 1
    ) -> Iterator[Result]:
        """Yield results as they become ready, for more images than fit in memory; otherwise like `predict`.

        Images of the same size keep their order; others may come later, once there is a batch of their size. With
        `skip`, skipped images cause warnings; without, results of earlier images are yielded before the error is
        raised.
        """
        run = self._inference(batch_size, workers, not skip)
        return _warning(run, run.results(images, _count("every", every), False))

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
        from figura.prediction.inputs import File, count_photos
        from figura.prediction.saving import writing
        from figura.prediction.video import check_video_name, video_file

        source = _path("video", video, "the path of one video")
        target = _path("output", output, "the path of the new video")
        every = _count("every", every)
        run = self._inference(batch_size, 1, False)
        check_video_name(target)
        _check_source(source, target)
        total, kept = count_photos([File(source, source.stem)], every), list[Result]()
        with writing(target), ExitStack() as stack:
            target.parent.mkdir(parents=True, exist_ok=True)
            frames = None
            for one in run.results(source, every, progress, total):
                place = _place(one)
                frames = frames or stack.enter_context(video_file(target, run.rates[one.image.id]))
                frames.add(one.draw(), place // every)
                kept.append(replace(one, pictures={}, compared={}, video=target))
        faults = printable("\n".join(run.faults))
        if not kept:
            raise UserError(faults or f"{source}: the recipe makes nothing of its frames")
        if faults:
            warnings.warn(f"{target}: not all of the video could be used:\n{faults}", stacklevel=2)
        return self._gathered(run, tuple(kept))

    def _inference(self, batch_size: int | None, workers: int, strict: bool) -> "Inference":
        from figura.prediction.inference import Inference

        size = None if batch_size is None else _count("batch_size", batch_size)
        threads = _count("workers", workers, least=0)
        with self._origin.types():
            return Inference(self._trained, batch_size=size, workers=threads, strict=strict)

    def _gathered(self, run: "Inference", results: tuple[Result, ...]) -> Results:
        images = tuple(run.images[number] for number in sorted(run.images))
        ordered = tuple(sorted(results, key=lambda one: one.image.id))
        with self._origin.types():
            sheets = run.sheets()
        faults = tuple(line for fault in run.faults for line in fault.split("\n"))
        return Results(ordered, images, self.saves, self._trained.categories, sheets, faults)


def load(
    run: StrPath, *, recipe: StrPath | None = None, device: "str | torch.device" = "auto",
    settings: Mapping[str, Any] | None = None, trusted_types_only: bool = False,
) -> Predictor:  # fmt: skip
    """Load a trained model.

    Args:
        run: the folder of a run, such as `runs/pose`, or a model folder, such as one of its checkpoints.
        recipe: the params file with `predict` and `evaluate`. Default: the recipe in the model folder if it has these
            sections, else the one listed in a `dvc.yaml` above the run.
        device: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1`, ..., or a `torch.device`.
        settings: overrides for the sections `predict` and `evaluate`, by dotted keys, like `--set` of `predict`:
            `{"predict.data.side": 0}`.
        trusted_types_only: for untrusted models: like the option of `predict`.

    Classes of the project are found from any working folder: while a model loads or a prediction starts, the folder
    whose `dvc.yaml` lists the recipe is first on `sys.path` (not with `trusted_types_only`). A process has one module
    per name, such as `models`: a second project with the same name is rejected.

    Raises:
        UserError: there is no model, its recipe is missing or invalid, there is no such device, or modules of another
            project conflict.
    """
    model = model_folder(_path("run", run, "the folder of a run or a model"))
    params = None if recipe is None else _path("recipe", recipe, "the path of a params file")
    origin = find_origin(model, params, trusted_types_only)
    words = _assignments({} if settings is None else settings)
    with origin.types():
        content = checked_content(origin.recipe, origin.content, model, words, trusted_types_only)

        from figura.prediction.inference import load_networks

        trained = load_networks(origin.recipe, content, model, str(device))
    if trained.is_try:
        warnings.warn(f"{model}: the weights of a try of {trained.recipe.train.steps} steps", stacklevel=2)
    return Predictor(model, origin, trained)


def _assignments(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as `key=value`, like on the command line; values are JSON, which is YAML.

    Raises:
        UserError: not a dictionary, a key is not a string, or a value cannot be serialised.
    """
    if not isinstance(settings, Mapping):
        raise UserError(f"settings: found {type(settings).__name__}; a dictionary by dotted keys is needed")
    words = []
    for key, value in settings.items():
        if not isinstance(key, str) or "=" in key:
            raise UserError(f"settings: found the key {key!r}; a dotted key is needed, such as 'predict.data.side'")
        try:
            words.append(f"{key}={json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)}")
        except (TypeError, ValueError, RecursionError) as error:
            allowed = "numbers, texts, lists and dictionaries by texts"
            raise UserError(f"settings: {key}: {error or type(error).__name__}; allowed are {allowed}") from None
    return words


def _plain(value: Any) -> Any:
    """Convert a NumPy value or a path for JSON."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"found {type(value).__name__}")


def _warning(run: "Inference", results: Iterator[Result]) -> Iterator[Result]:
    """Yield results, each after warnings about inputs skipped before it."""
    while True:
        try:
            one = next(results, None)
        finally:  # also before an error
            faults, run.faults[:] = run.faults[:], []
            for fault in faults:
                warnings.warn(printable(fault), stacklevel=2)
        if one is None:
            return
        yield one


def _place(one: Result) -> int:
    """Return the frame index of a frame's only result."""
    if one.image.frame is None or one.name != one.image.name:
        raise UserError(f"{one.name}: the recipe makes no picture of a whole frame; use predict for its results")
    return one.image.frame


def _path(name: str, value: Any, needed: str) -> Path:
    """Return a path, existing or not. Raises UserError if it is not a path, for example a list, empty or too long."""
    if not isinstance(value, (str, os.PathLike)) or value == "":
        found = repr(value) if isinstance(value, str) else type(value).__name__
        raise UserError(f"{name}: found {found}; {needed} is needed")
    try:
        os.stat(value)
    except (FileNotFoundError, NotADirectoryError):
        pass  # reported where it is needed
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{name}: found {shown(os.fspath(value))}: {reason}; {needed} is needed") from None
    return Path(value)


def _check_source(source: Path, target: Path) -> None:
    """Raise UserError if the source is not one video that can be opened, or is the target."""
    from figura.prediction.inputs import VIDEOS

    if source.suffix.lower() not in VIDEOS:
        raise UserError(f"{source}: no video; videos end in {', '.join(VIDEOS)}")
    open_regular(source, "name one video, no folder or pattern").close()
    if source.resolve() == target.resolve():
        raise UserError(f"{target}: is the video to read; name another output")


def _count(name: str, value: Any, least: int = 1) -> int:
    """Convert an integer, including NumPy's, to int.

    Raises:
        UserError: not an integer, or less than `least`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise UserError(f"{name}: found {value!r}; a whole number from {least} is needed")
    return int(value)
