"""Sample sheets of a training: the names in `runtime.samples`, for validation examples or the training batch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from accelerate.tracking import GeneralTracker
from torch import Tensor

from figura.base.pictures import write_png
from figura.base.seeding import seed_here
from figura.engine.weights import to_device
from figura.interfaces import ExampleDataset, Listener, State, batch_size
from figura.recipe.schema import Recipe
from figura.recipe.trial import mark
from figura.report.sheets import Pixels, side_by_side, with_header
from figura.show.drawing import drawing_of, forms_of

LABELS = ("name", "image_id", "annotation_id", "index")
"""Row labels: the first of these names that the example has."""


class SampleSheets(Listener):
    """Writes `<run>/live/samples/<iteration>.png`, one row per example, and logs it to the trackers.

    Sheets of training examples are `<iteration>-train.png`. The steps run on the examples as in an evaluation (averaged
    weights, if any; no dropout), without an update.

    Args:
        recipe: has `runtime.samples`.
    """

    def __init__(self, recipe: Recipe) -> None:
        settings = recipe.runtime.samples
        assert settings is not None
        self.names, self.count, self.every = settings.names, settings.count, settings.every
        self.splits = ("validation", "train") if settings.split == "both" else (settings.split,)
        self.seed, self.mark = recipe.seed, mark(recipe)
        self._warned: set[str] = set()
        self.forms = dict.fromkeys(settings.names, "image") | forms_of(recipe)

    def on_start(self, training: Any) -> None:
        """Remove the sheets of iterations that this training will repeat, or not reach."""
        if training.accelerator.is_main_process:
            for path in (training.scratch / "live/samples").glob(f"{'[0-9]' * 8}*.png"):
                if int(path.name[:8]) > training.iteration:
                    with training.reporter.writing(str(path)):
                        path.unlink()

    def on_iteration(self, training: Any, evaluated: bool) -> None:
        """Draw every `every` iterations and at the end, or by default after each evaluation."""
        due = training.iteration % self.every == 0 or training.iteration == training.last if self.every else evaluated
        for split in self.splits if due else ():
            batch, datasets = self._batch(training, split)
            seed_here(self.seed, "samples")
            state = training.log_op(batch)[0]
            if training.accelerator.is_main_process:
                sheet, undrawn = self._sheet(state, batch, datasets)
                self._write(training, split, sheet)
                for name in sorted(undrawn - self._warned):
                    training.reporter.say(f"warning: runtime.samples.names: {name!r} has no picture, and is left out")
                self._warned |= undrawn

    def _batch(self, training: Any, split: str) -> tuple[dict[str, Any], Mapping[str, ExampleDataset]]:
        """Return at most `count` examples, and their possible datasets."""
        loaders = training.loaders
        if split == "train":
            return {name: value[: self.count] for name, value in training.batch.items()}, loaders.train_data
        first = next(iter(loaders.validation(0, size=self.count)))
        return dict(to_device(first, training.accelerator.device)), loaders.validation_data

    def _sheet(
        self, state: State, batch: Mapping[str, Any], datasets: Mapping[str, ExampleDataset]
    ) -> tuple[Pixels | None, set[str]]:
        """Return the sheet, or None without pictures, and the names that are not pictures."""
        fitting = [one for one in datasets.values() if set(one.names) <= batch.keys()]
        dataset = (fitting or list(datasets.values()))[0]
        drawing = drawing_of(dataset, self.forms)
        read = [name for name in dict.fromkeys((*self.names, *drawing.reads)) if name in state]
        rows = [
            drawing.pictures({name: one_value(state[name], index) for name in read})
            for index in range(batch_size(batch))
        ]
        titles = [title for title in rows[0] if title.partition(" ")[0] in self.names]
        titles.sort(key=lambda title: self.names.index(title.partition(" ")[0]))
        label = next((name for name in LABELS if name in batch), None)
        labels = [] if label is None else [f"{label} {one_value(batch[label], index)}" for index in range(len(rows))]
        undrawn = set(read) & set(self.names) - {title.partition(" ")[0] for title in titles}
        if not titles:
            return None, undrawn
        sheet = side_by_side([[row[title] for title in titles] for row in rows], titles, labels=labels)
        return with_header(sheet, self.mark) if self.mark else sheet, undrawn

    def _write(self, training: Any, split: str, sheet: Pixels | None) -> None:
        if sheet is None:
            return
        step, suffix = training.iteration, "-train" if split == "train" else ""
        folder, title = training.scratch / "live" / "samples", f"samples{suffix}"
        with training.reporter.writing(str(folder)):
            write_png(folder / f"{step:08d}{suffix}.png", sheet)

        def log(tracker: GeneralTracker) -> None:
            if tracker.name == "dvclive":
                tracker.tracker.log_image(f"{title}.png", sheet)  # Accelerate's DVCLive tracker has no `log_images`
            elif tracker.name == "tensorboard":
                tracker.log_images({title: sheet[None]}, step=step, dataformats="NHWC")
            elif tracker.name == "wandb":
                tracker.log_images({title: sheet[None]}, step=step)

        training.reporter.tell(log)


def one_value(values: Any, place: int) -> Any:
    """Return the value of one example of a batch, as an array, number or text."""
    if isinstance(values, Tensor):
        value = values[place].detach().cpu()
        return value.item() if value.ndim == 0 else np.asarray(value.float() if value.is_floating_point() else value)
    return values[place]
