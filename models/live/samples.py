"""Sample sheets of a training: the names of `runtime.samples`, of the same validation examples at each evaluation."""

from collections.abc import Sequence
from typing import Any

from models.interfaces import Listener
from models.report.sheets import as_pixels, save_picture, side_by_side


class SampleSheets(Listener):
    """Writes `<run>/live/samples/<iteration>.png`, one row for each example, and logs it to the trackers."""

    def on_iteration(self, training: Any, evaluated: bool) -> None:
        """After an evaluation, run the steps on the examples and draw the names that the recipe asks for."""
        if not evaluated:
            return
        columns = training.validation.samples(lambda batch: training.log_op(batch)[0])
        if not columns or not training.accelerator.is_main_process:
            return
        rows: Sequence[Sequence[Any]] = list(zip(*(as_pixels(batch) for batch in columns.values()), strict=True))
        sheet, step = side_by_side(rows, list(columns)), training.iteration
        save_picture(training.run / "live" / "samples" / f"{step:08d}.png", sheet)
        for tracker in training.accelerator.trackers:
            if tracker.name == "dvclive":
                tracker.tracker.log_image("samples.png", sheet)  # Accelerate's DVCLive tracker has no `log_images`
            elif tracker.name == "tensorboard":
                tracker.log_images({"samples": sheet[None]}, step=step, dataformats="NHWC")
            elif tracker.name == "wandb":
                tracker.log_images({"samples": sheet[None]}, step=step)
