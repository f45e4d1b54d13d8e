"""The files of a prediction.

Results are `<name>.<saved name>.png`, `.npy`, or `.json` (a list of records, one per line) for each example, and
`<grid>.<saved name>.png` for a grid. Records with a box have the `width` and `height` of their photo.
`predictions.csv` has one row per result. If photos have a ground truth, `<name>.<saved name>.compared.png` shows both,
and the table has the numbers of `predict.compare`. Full-frame pictures of a video can be written as a video,
`<name of the video>.<saved name>.webm`.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from figura.base.errors import one_line
from figura.base.files import write_bytes
from figura.base.pictures import Pixels, encode_png
from figura.dump import RecordsFile, Table, encode_array, writing
from figura.prediction.result import Result
from figura.prediction.video import VideoFrames, video_file

TABLE = "predictions.csv"


class ResultFiles:
    """Writes results into a folder, which is created if necessary; files are replaced atomically.

    On exit from its context, the videos and the table are finished.

    Args:
        folder: where to write.
        videos: write the pictures of frames as videos instead of a file per frame.

    Raises:
        UserError: from each method, if a file cannot be written.
    """

    def __init__(self, folder: Path, videos: bool = False) -> None:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.videos = folder, videos
        self.table, self.rows = folder / TABLE, 0
        self._sums: dict[str, float] = defaultdict(float)
        self._writer: Table | None = None
        self._open: dict[Path, tuple[Path | None, VideoFrames, ExitStack]] = {}  # videos, and what closes them
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stack.__exit__(kind, error, trace)  # after an error, videos of before are kept
        finally:
            if self._writer is not None:
                self._writer.close()

    def add(self, one: Result) -> None:
        """Write a result, and its row of the table."""
        self.write(one)
        self.add_row(one)

    def write(self, one: Result) -> None:
        """Write the pictures, records and arrays of a result."""
        base = self.folder / one.name
        for name, picture in one.pictures.items():
            if self.videos and one.image.frame is not None and one.name == one.image.name:
                self._add_frame(one, name, picture, one.image.frame)
            else:
                _write_picture(_with(base, f".{name}.png"), picture)
        for name, picture in one.compared.items():
            _write_picture(_with(base, f".{name}.compared.png"), picture)
        for name, records in one.records.items():
            height, width = one.image.size or (None, None)
            size = {} if width is None else {"width": width, "height": height}
            file = RecordsFile(_with(base, f".{name}.json"))
            try:
                file.add({**record, **size} if "bbox" in record else record for record in records)
                file.close()
            finally:
                file.discard()
        for name, array in one.arrays.items():
            _write(_with(base, f".{name}.npy"), encode_array(array))

    def add_row(self, one: Result) -> None:
        """Add a row to the table, which appears when this object's context ends.

        The columns are `name` (of the result), `file` (of the photo), `image_id` (the photo's number from 1), `frame`
        (its index in a video), then the numbers of the comparisons.
        """
        self._writer = self._writer or Table(self.table)
        frame = "" if one.image.frame is None else one.image.frame
        row = {"name": one_line(one.name), "file": one_line(one.image.source), "image_id": one.image.id, "frame": frame}
        self._writer.add(row | {name: f"{value:.6g}" for name, value in one.numbers.items()})
        self.rows += 1
        for name, value in one.numbers.items():
            self._sums[name] += value

    def write_sheets(self, sheets: Mapping[str, Pixels]) -> None:
        """Write the pictures of a grid."""
        for name, sheet in sheets.items():
            _write_picture(self.folder / f"{name}.png", sheet)

    def means(self) -> dict[str, float]:
        """Return the mean of each number over all rows."""
        return {name: total / self.rows for name, total in self._sums.items()}

    def close_videos(self, unfinished: Collection[Path | None]) -> None:
        """Finish the videos of all files but `unfinished`, of which frames may follow."""
        for path, (source, _, stack) in list(self._open.items()):
            if source not in unfinished:
                del self._open[path]
                stack.close()

    def _add_frame(self, one: Result, name: str, picture: Pixels, frame: int) -> None:
        assert one.image.rate is not None, "it is a frame of a video"
        assert one.image.at is not None, "it is a frame of a video"
        path = _with(self.folder / one.name.removesuffix(f"-{frame:06d}"), f".{name}.webm")
        if path not in self._open:
            stack = self._stack.enter_context(ExitStack())
            self._open[path] = one.image.file, stack.enter_context(video_file(path, one.image.rate)), stack
        self._open[path][1].add(picture, one.image.at)


def _write_picture(path: Path, pixels: Pixels) -> None:
    _write(path, encode_png(pixels))


def _with(base: Path, end: str) -> Path:
    return base.with_name(f"{base.name}{end}")


def _write(path: Path, content: bytes) -> None:
    with writing(path):
        write_bytes(path, content)
