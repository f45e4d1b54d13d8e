"""Pictures from anywhere: files, folders, glob patterns and the frames of videos, each with a name of its own."""

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError
from models.interfaces import Example

IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
VIDEOS = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm")

Pixels = NDArray[np.uint8]


class File(NamedTuple):
    """`name` is unlike that of every other input: a relative path without suffix where that suffices."""

    path: Path
    name: str

    @property
    def is_video(self) -> bool:
        """Whether the suffix is one of `VIDEOS`."""
        return self.path.suffix.lower() in VIDEOS


@dataclass(frozen=True, eq=False)
class Photo:
    """One picture to predict from: an image file, or a frame of the video at `path`; `number` counts them from 1."""

    path: Path
    name: str
    number: int
    frame: Pixels | None = None

    def pixels(self) -> Pixels:
        """Return it as uint8 (height, width, 3), red, green, blue, upright where an EXIF tag says how; 8 bits a channel.

        Raises:
            UserError: no such file, or no image that OpenCV can read.
        """
        if self.frame is not None:
            return self.frame
        try:
            content = np.frombuffer(self.path.read_bytes(), np.uint8)
            found = cv2.imdecode(content, cv2.IMREAD_COLOR) if len(content) else None
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror}") from error
        except cv2.error:  # more pixels than OpenCV takes
            found = None
        if found is None:
            raise UserError(f"{self.path}: no readable image: it is empty, damaged, too large or of another kind")
        return np.asarray(cv2.cvtColor(found, cv2.COLOR_BGR2RGB), dtype=np.uint8)


class PhotoExamples:
    """What `predict.data` names: makes examples, such as a dataset has, of a picture that nobody annotated."""

    names: ClassVar[tuple[str, ...]]

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in an example when constructed with `arguments`."""
        return cls.names

    def examples(self, photo: Photo) -> list[Example]:
        """Return the examples of one photo, any number of them; may run in several threads at once.

        `name` is the text that their results are named after: the photo's, with something behind it where there are
        several. Raises UserError for a photo that cannot be used.
        """
        raise TypeError(f"{type(self).__name__} gives no examples")


def find_files(given: Sequence[str], results: Path) -> list[File]:
    """Return the images and videos that paths, folders and glob patterns (`**` for any depth) mean, in their order.

    A folder stands for all images below it, hidden ones left out; its files, and those of a pattern, are named by their
    place below it. What lies below `results` is only taken where it is named itself: it was written by an earlier run.

    Raises:
        UserError: what names nothing, all of it at once.
    """
    found: dict[Path, tuple[Path, Path]] = {}  # by where it really is: as it was found, and below which folder
    faults = []
    for text in given:
        path = Path(text)
        if path.is_dir():
            files = [(one, path) for one in _images_below(path) if not _within(one, results)]
            fault = f"no images ({', '.join(IMAGES)}) in it"
        elif path.exists():
            files, fault = [(path, path.parent)], ""
        else:
            matches = (Path(match) for match in sorted(glob.glob(text, recursive=True)))
            files = [(one, _fixed(text)) for one in matches if one.is_file() and not _within(one, results)]
            fault = "no such file or folder, and no file matches it as a pattern"
        if not files:
            faults.append(
                f"{text}: {fault}, but for results below {results}" if results.exists() else f"{text}: {fault}"
            )
        for one, folder in files:
            found.setdefault(one.resolve(), (one, folder))
    if faults:
        raise UserError("\n".join(faults))
    return [File(path, name) for (path, _), name in zip(found.values(), _names(found), strict=True)]


def _images_below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and Path(name).suffix.lower() in IMAGES:
                yield Path(parent, name)


def _within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _fixed(pattern: str) -> Path:
    """The folder of a pattern down to its first wildcard."""
    parts = Path(pattern).parts
    wild = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    return Path(*parts[:wild])


def _names(found: Mapping[Path, tuple[Path, Path]]) -> list[str]:
    """Short names; where two would be the same, longer ones: below the folder common to all inputs, then with suffix."""
    common = Path(os.path.commonpath([path.parent for path in found])) if found else Path()
    choices = [
        (
            path.relative_to(folder).with_suffix("").as_posix(),
            real.relative_to(common).with_suffix("").as_posix(),
            real.relative_to(common).as_posix(),
        )
        for real, (path, folder) in found.items()
    ]
    level = [0] * len(choices)
    while True:
        names = [choice[chosen] for choice, chosen in zip(choices, level, strict=True)]
        taken = Counter(names)
        again = [place for place, name in enumerate(names) if taken[name] > 1 and level[place] < 2]
        if not again:
            return names
        for place in again:
            level[place] += 1


def count_photos(files: Iterable[File], every: int) -> int:
    """Return how many photos the files hold, as far as the videos say."""
    total = 0
    for file in files:
        frames = int(cv2.VideoCapture(str(file.path)).get(cv2.CAP_PROP_FRAME_COUNT)) if file.is_video else 1
        total += -(-max(frames, 0) // every)
    return total


def read_photos(files: Iterable[File], every: int, report: Callable[[str], None]) -> Iterator[Photo]:
    """Yield the photos of the files in order, of a video each `every`-th frame, named `<name>-000012` by its number there.

    Images are not opened yet. A video without frames is told to `report` and passed over.
    """
    number = 0
    for file in files:
        if not file.is_video:
            number += 1
            yield Photo(file.path, file.name, number)
            continue
        last = number
        for place, frame in _frames(file.path, every):
            number += 1
            yield Photo(file.path, f"{file.name}-{place:06d}", number, frame)
        if number == last:
            report(f"{file.path}: no readable video: it is damaged, or its codec is unknown")


def _frames(path: Path, every: int) -> Iterator[tuple[int, Pixels]]:
    video = cv2.VideoCapture(str(path))
    try:
        place = 0
        while video.grab():
            if place % every == 0:
                there, frame = video.retrieve()
                if not there:
                    return
                yield place, np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), dtype=np.uint8)
            place += 1
    finally:
        video.release()
