"""Predict from arbitrary photos and write the results to a folder.

Results are `<name>.<saved name>.png`, `.npy`, or `.json` (a list of records, one per line) for each example, and
`<grid>.<saved name>.png` for a grid, which pairs the first examples with each other: every row with every column.
`predictions.csv` has one row per result. If photos have a ground truth, `<name>.<saved name>.compared.png` shows both,
and the table has the numbers of `predict.compare`. Full-frame pictures of a video are written as a video,
`<name of the video>.<saved name>.webm`.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from torch import nn
from tqdm import tqdm

from figura.base.errors import UserError, printable
from figura.prediction.comparison import PredictionTable
from figura.prediction.device import Device
from figura.prediction.inputs import File, Photo, count_photos, read_photos
from figura.prediction.outputs import Output, write_output, write_picture
from figura.prediction.runner import Runner
from figura.prediction.video import SUFFIX, VideoFrames, video_file
from figura.recipe.schema import Predict, Recipe


class OpenVideo(NamedTuple):
    """A video being written: the source file of its frames, the frames, and what closes it."""

    source: Path
    frames: VideoFrames
    file: ExitStack


class Prediction(Runner):
    """Writes the results of one call into a folder; memory does not grow with the number of photos.

    Args:
        recipe: the model's recipe, with `evaluate` of the params file.
        predict: the section of the params file.
        networks: by name.
        folder: output folder.
        accelerator: an Accelerator, or a `Device`.
        batch_size: number of examples.
        workers: threads that read photos ahead; 0 for none.
        frames: write pictures of a video as files, one per frame.
    """

    def __init__(
        self, recipe: Recipe, predict: Predict, networks: Mapping[str, nn.Module], folder: Path, accelerator: Device,
        *, batch_size: int, workers: int, frames: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(recipe, predict, networks, accelerator, batch_size=batch_size, workers=workers)
        self.folder, self.frames, self.every = folder, frames, 1
        self.table = PredictionTable(folder, self.columns)
        self._pictures = [name for name, form in predict.save.items() if form in ("image", "mask")]
        self._videos: dict[Path, OpenVideo] = {}
        self._newest: Path | None = None  # file of the last photo read
        self._open = ExitStack()

    def write(self, files: Sequence[File], every: int) -> None:
        """Predict from the files, and from each `every`-th frame of videos; report unusable inputs and continue.

        Raises:
            SettingError: at once, for a setting that fits no photo.
            UserError: at the end, if any input could not be used.
        """
        start, self.every = time.perf_counter(), every
        progress = tqdm(
            total=count_photos(files, every), unit="image", desc="predict", disable=not self.recipe.runtime.progress
        )
        with closing(self.table), progress, self._open:
            for _ in self.batches(read_photos(files, every, self._report), progress):
                self._close_finished()
            self._attempt(str(self.predict.grid), self._write_grid)
        self._summary(self.done, time.perf_counter() - start)
        if self._faults:
            raise UserError(f"{self._faults} of the inputs could not be used (see above); the others are done")

    def note(self, photo: Photo) -> None:
        """Store the photo's file: no more frames of others will be read."""
        self._newest = photo.path

    def take(self, output: Output) -> None:
        """Write the results of one example, and its row of the table."""
        leave_out = self._pictures if self._is_frame(output) else ()
        for name in leave_out:
            self._add_frame(output, name)
        write_output(self.folder, output, self.predict.save, leave_out)
        self.table.add(output.name, output.photo, output.numbers)

    def _is_frame(self, output: Output) -> bool:
        """Whether a result is the only one of a video frame, so that its pictures are frames, too."""
        return output.photo.place is not None and output.name == output.photo.name and not self.frames

    def _add_frame(self, output: Output, name: str) -> None:
        place, rate = output.photo.place, output.photo.rate
        assert place is not None, "it is a frame"
        assert rate is not None, "it is of a video"
        path = self.folder / f"{output.name.removesuffix(f'-{place:06d}')}.{name}{SUFFIX}"
        if path not in self._videos:
            file = self._open.enter_context(ExitStack())
            self._videos[path] = OpenVideo(output.photo.path, file.enter_context(video_file(path, rate)), file)
        self._videos[path].frames.add(output.values[name], place // self.every)

    def _close_finished(self) -> None:
        """Close videos without further frames: their file has been read and no frame is pending."""
        unfinished = {self._newest, *(photo.path for photo in self._photos.values())}
        for path, video in list(self._videos.items()):
            if video.source not in unfinished:
                del self._videos[path]
                video.file.close()

    def _write_grid(self) -> None:
        for name, sheet in self.sheets().items():
            write_picture(self.folder / f"{name}.png", sheet)
        if self._examples > len(self._grid_examples) > 0:
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
