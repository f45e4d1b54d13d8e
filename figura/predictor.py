"""Predict from Python: `figura.load("runs/pose").predict("photos")`. docs/api.md has examples.

Nothing slow is imported before `load` has found the model and its recipe.
"""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.results import Result, Results
from models.base.errors import UserError
from models.base.yaml12 import read_yaml
from models.evaluation.model_folder import model_folder
from tools.predict import checked_content

if TYPE_CHECKING:
    from figura.inference import Inference, Trained

StrPath = str | os.PathLike[str]
RECIPE = "recipe.yaml"
PIPELINE = "dvc.yaml"


class Predictor:
    """A trained model, ready to predict; `figura.load` makes one.

    The results are those of `python -m tools.predict` for the same images, batch size and device.

    Attributes:
        model: its folder.
        recipe: the params file that says how it predicts.
    """

    def __init__(self, model: Path, recipe: Path, trained: "Trained") -> None:
        self.model, self.recipe, self._trained = model, recipe, trained

    def __repr__(self) -> str:
        return f"<figura.Predictor of {self.model} on {self.device}>"

    @property
    def device(self) -> str:
        """The device that computes, such as `cpu` or `cuda`."""
        return str(self._trained.device.device)

    @property
    def saves(self) -> dict[str, str]:
        """What the recipe saves, by name: `image`, `mask`, `array` or `records`."""
        return dict(self._trained.predict.save)

    def predict(
        self, images: Any, *, batch_size: int | None = None, every: int = 1, skip: bool = False,
        progress: bool = False, workers: int = 1,
    ) -> Results:  # fmt: skip
        """Return the results of all images, in their order.

        Args:
            images: a path of an image, a folder (all images below it), a pattern such as `photos/*.jpg`, or a video; an
                array, uint8 RGB (height, width, 3), or a batch of them (N, height, width, 3); a PIL picture; or a list
                or iterator of these. A file that a list names twice counts once. OpenCV's arrays are BGR: `[..., ::-1]`
                makes them RGB.
            batch_size: default: `evaluate.batch_size` of the recipe.
            every: takes each `every`-th frame of videos.
            skip: leave out what cannot be used, and say so in `Results.faults`.
            progress: show a bar.
            workers: threads that read images ahead.

        Raises:
            UserError: an image cannot be used (or with `skip`, none of them fits the recipe); nothing is returned.
        """
        run = self._inference(batch_size, workers, not skip)
        results = run.results(images, _count("every", every), progress)
        return self._gathered(run, tuple(results))

    def stream(
        self, images: Any, *, batch_size: int | None = None, every: int = 1, workers: int = 1
    ) -> Iterator[Result]:
        """Yield results as they are ready, for more images than memory holds; otherwise as `predict`.

        Images of the same size come in their order; others may come later, when there is a batch of their size.
        """
        yield from self._inference(batch_size, workers, True).results(images, _count("every", every), False)

    def predict_video(
        self, video: StrPath, output: StrPath, *, batch_size: int | None = None, every: int = 1, progress: bool = True
    ) -> Results:
        """Write what `Result.draw` draws of each frame as a video; return the results, without pictures.

        It lasts as long as the original, without its sound. `output` ends in .mp4; it is replaced when it is whole.

        Raises:
            UserError: the video cannot be read or written, or the recipe makes no picture of a whole frame.
        """
        from models.prediction.inputs import VIDEOS, File, count_photos
        from models.prediction.video import check_video_name, video_file

        source, target, run = Path(video), Path(output), self._inference(batch_size, 1, True)
        check_video_name(target)
        if source.suffix.lower() not in VIDEOS:
            raise UserError(f"{source}: no video; videos end in {', '.join(VIDEOS)}")
        if source.resolve() == target.resolve():
            raise UserError(f"{target}: is the video to read; name another output")
        total, kept = count_photos([File(source, source.stem)], _count("every", every)), list[Result]()
        with ExitStack() as stack:
            frames = None
            for one in run.results(source, every, progress, total):
                place = _place(one)
                frames = frames or stack.enter_context(video_file(target, run.rates[one.image.id]))
                frames.add(one.draw(), place // every)
                kept.append(replace(one, pictures={}, compared={}))
        return self._gathered(run, tuple(kept))

    def _inference(self, batch_size: int | None, workers: int, strict: bool) -> "Inference":
        from figura.inference import Inference

        if batch_size is not None:
            _count("batch_size", batch_size)
        return Inference(self._trained, batch_size=batch_size, workers=workers, strict=strict)

    def _gathered(self, run: "Inference", results: tuple[Result, ...]) -> Results:
        images = tuple(run.images[number] for number in sorted(run.images))
        ordered, sheets = tuple(sorted(results, key=lambda one: one.image.id)), run.sheets_of_grid()
        return Results(ordered, images, self.saves, self._trained.categories, sheets, tuple(run.faults))


def load(
    run: StrPath, *, recipe: StrPath | None = None, device: str = "auto", settings: Mapping[str, Any] | None = None,
    trusted_types_only: bool = False,
) -> Predictor:  # fmt: skip
    """Load a trained model.

    Args:
        run: the folder of a run, such as `runs/pose`, or a model folder, such as one of its checkpoints.
        recipe: the params file whose `predict` and `evaluate` say how to predict. Default: that of the model folder if
            it has these sections, else the one that `dvc.yaml` in a folder above the run names for it.
        device: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1`, ...
        settings: values of the recipe's sections `predict` and `evaluate` to change, by dotted keys, as `--set` of
            `predict` does: `{"predict.data.side": 0}`.
        trusted_types_only: for strangers' models: as the option of `predict`.

    Raises:
        UserError: there is no model, its recipe is not known or has faults, or there is no such device.
    """
    model = model_folder(Path(run))
    path, content = _recipe(model, None if recipe is None else Path(recipe))
    words = [f"{key}={json.dumps(value, default=str)}" for key, value in (settings or {}).items()]
    content = checked_content(path, content, model, words, trusted_types_only)

    from figura.inference import load_networks

    trained = load_networks(path, content, model, device)
    if trained.is_try:
        warnings.warn(f"{model}: the weights of a try of {trained.recipe.train.steps} steps", stacklevel=2)
    return Predictor(model, path, trained)


def _recipe(model: Path, path: Path | None) -> tuple[Path, dict[str, Any]]:
    """Return the path and the content of the recipe that says how a model predicts."""
    if path is not None:
        return path, read_yaml(path)
    own = read_yaml(model / RECIPE)
    if {"evaluate", "predict"} <= own.keys():
        return model / RECIPE, {key: value for key, value in own.items() if key != "facts"}
    absolute = Path(os.path.abspath(model))
    for folder in absolute.parents:
        name = next(iter(absolute.relative_to(folder).parts[1:]), "")
        named = _params(folder / PIPELINE).get(name) if absolute.is_relative_to(folder / "runs") else None
        if named is not None:
            return folder / named, read_yaml(folder / named)
    raise UserError(
        f"{model}: no {PIPELINE} above it names its recipe; name the params file, such as "
        'figura.load(..., recipe="recipes/pose.yaml")'
    )


def _params(pipeline: Path) -> dict[str, str]:
    """Return the params files in a `dvc.yaml`, by recipe; {} without that file."""
    if not pipeline.is_file():
        return {}
    variables = [one for one in read_yaml(pipeline).get("vars") or [] if isinstance(one, Mapping)]
    return {name: str(entry["params"]) for one in variables for name, entry in (one.get("recipes") or {}).items()}


def _place(one: Result) -> int:
    """Return the place of the frame that a result is the only one of."""
    if one.image.frame is None or one.name != one.image.name:
        raise UserError(f"{one.name}: the recipe makes no picture of a whole frame; use predict for its results")
    return one.image.frame


def _count(name: str, value: int) -> int:
    if value < 1:
        raise UserError(f"{name}: found {value}; a whole number from 1 is needed")
    return value
