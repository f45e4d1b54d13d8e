"""Inputs of a prediction, each with a unique name: images and videos from paths and patterns, arrays, PIL pictures."""

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import BufferedReader, IOBase
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import cv2
import numpy as np
from PIL import Image

from figura.base.errors import UserError
from figura.base.files import open_regular, short_name
from figura.base.pictures import SUFFIXES, VIDEOS, Pixels, left_out_line, picture_files
from figura.base.raw_pictures import Reading, read_upright
from figura.prediction.inputs import Photo
from figura.prediction.video import no_stderr

USUAL_RATE, FASTEST = 25.0, 480  # frames per second
VARIABLE = "videos have a variable frame rate: at a constant one, frames are repeated or left out to keep their times"


class File(NamedTuple):
    """An input file. `name` is unique among the inputs: a relative path, without suffix if that is unique already."""

    path: Path
    name: str

    @property
    def is_video(self) -> bool:
        """Whether the suffix is one of `VIDEOS`."""
        return self.path.suffix.lower() in VIDEOS


def refuse(fault: str) -> NoReturn:
    """Raise UserError: report a fault by ending the prediction."""
    raise UserError(fault)


def find_files(
    arguments: Sequence[str],
    results: Path | None = None,
    report: Callable[[str], None] = refuse,
    left_out: Counter[str] | None = None,
) -> list[File]:
    """Return the images and videos matched by paths, folders and glob patterns (`**` for any depth), in order.

    A folder matches all images below it, except hidden ones. Files of a folder or pattern are named by their path below
    the folder. Names too long for results are shortened. Files below `results` come from an earlier run: they are used
    only if their exact path is given. `report` gets a line for each argument that matches nothing; `left_out` counts
    the other files of folders.

    Raises:
        UserError: by default, if arguments match nothing.
    """
    sources: dict[Path, tuple[Path, Path]] = {}  # resolved path -> (path as written, its base folder)
    faults = []
    for text in arguments:
        path, excluded = Path(text), False
        if os.path.isdir(text):  # `path.is_dir` raises OSError for long names
            others = Counter[str]()
            excluded = _within(path, results)
            found = [] if excluded else picture_files(path, others, results)
            files = [(path / file, path) for file in found]
            if left_out is not None and files:
                left_out += others
            there = f"; {left_out_line(others)}" if others else ""
            fault = f"no images ({', '.join(SUFFIXES)}) in it{there}{_videos_in(path)}"
        elif os.path.exists(text):
            files, fault = [(path, path.parent)], ""
        else:
            names = [] if "\0" in text else glob.glob(text, recursive=True)  # it raises ValueError for this
            matches = [Path(name) for name in sorted(names) if os.path.isfile(name)]
            files = [(one, _fixed(text)) for one in matches if not _within(one, results)]
            excluded = bool(matches)
            fault = "no such file or folder, and no file matches it as a pattern"
            if os.path.isfile(archive := f"{text.rstrip('/')}.zip"):
                fault = f"no such folder; its pictures are in {archive}: unzip it"
        if not files:
            fault = f"its files are in {results}, where the results go; name another output" if excluded else fault
            faults.append(f"{text}: {fault}")
        for one, folder in files:
            sources.setdefault(_resolved(one), (one, folder))
    if faults:
        report("\n".join(faults))
    short = ["/".join(map(short_name, name.split("/"))) for name in _names(sources)]
    return [File(path, name) for (path, _), name in zip(sources.values(), short, strict=True)]


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))  # `path.resolve` raises RuntimeError for a link to itself


def _videos_in(folder: Path) -> str:
    videos = [one for one in folder.rglob("*") if one.suffix.lower() in VIDEOS]
    return f"; {len(videos)} videos: name them one by one, such as {videos[0]}" if videos else ""


def _within(path: Path, folder: Path | None) -> bool:
    return folder is not None and _resolved(path).is_relative_to(_resolved(folder))


def _fixed(pattern: str) -> Path:
    """Return the part of a pattern before its first wildcard."""
    parts = Path(pattern).parts
    wild = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    return Path(*parts[:wild])


def _names(sources: Mapping[Path, tuple[Path, Path]]) -> list[str]:
    """Return short names; longer where needed: the path below the common folder of all inputs, then with the suffix."""
    common = Path(os.path.commonpath([path.parent for path in sources])) if sources else Path()
    choices = [
        (_without_suffix(_below(path, folder)), _without_suffix(below), below.as_posix())
        for below, path, folder in ((real.relative_to(common), *found) for real, found in sources.items())
    ]
    level = [0] * len(choices)
    while True:
        names = [choice[chosen] for choice, chosen in zip(choices, level, strict=True)]
        counts = Counter(names)
        duplicates = [place for place, name in enumerate(names) if counts[name] > 1 and level[place] < 2]
        if not duplicates:
            return names
        for place in duplicates:
            level[place] += 1


def _below(path: Path, folder: Path) -> Path:
    """Return a path relative to a folder that it starts with, or only the file name if it leaves the folder by `..`."""
    relative = path.relative_to(folder)
    return Path(path.name) if ".." in relative.parts else relative


def _without_suffix(path: Path) -> str:
    """Return a path as text without its suffix, except for names of dots and a suffix, such as `..png`."""
    short = path.as_posix().removesuffix(path.suffix)
    return short if short.rpartition("/")[2].strip(".") else path.as_posix()


def count_photos(files: Iterable[File], every: int) -> int:
    """Return the number of photos in the files; videos are counted by their metadata."""
    total = 0
    for file in files:
        frames = _frame_count(file.path) if file.is_video else 1
        total += -(-max(frames, 0) // every)
    return total


def _frame_count(path: Path) -> int:
    try:
        with open_regular(path) as file:
            return int(_video(file).get(cv2.CAP_PROP_FRAME_COUNT))
    except UserError:
        return 0


def _video(file: BufferedReader) -> cv2.VideoCapture:
    """Open a video. OpenCV is not given the path: it would block on a FIFO, and crash on names that are not UTF-8."""
    with no_stderr():  # OpenCV prints errors of damaged videos, which are reported anyway
        return cv2.VideoCapture(file, cv2.CAP_FFMPEG, [])  # type: ignore[call-overload]


def frame_rate(video: cv2.VideoCapture) -> tuple[float, str]:
    """Return the frames per second of an open video, `USUAL_RATE` if unknown, and then what to tell of it."""
    rate = float(video.get(cv2.CAP_PROP_FPS))
    if 0 < rate <= FASTEST:
        return rate, ""
    return USUAL_RATE, f"videos without a usable frame rate: {USUAL_RATE:g} frames a second are taken"


def read_photos(files: Iterable[File], every: int, report: Callable[[str], None]) -> Iterator[Photo]:
    """Yield the photos of the files in order; for a video, each `every`-th frame, named `<name>-<frame number>`.

    Images are not opened yet. A video without frames, or with less than nine tenths of the frames in its metadata, is
    passed to `report`; one without frames counts as one photo, like a damaged image.
    """
    number = 0
    for file in files:
        if not file.is_video:
            number += 1
            yield Photo(file.path, file.name, number)
            continue
        before = number
        try:
            with open_regular(file.path) as content:
                for photo in _frames(content, file, every, report):
                    number += 1
                    yield replace(photo, number=number)
        except UserError as error:
            report(str(error))
        number = max(number, before + 1)


def _frames(content: BufferedReader, file: File, every: int, report: Callable[[str], None]) -> Iterator[Photo]:
    """Yield each `every`-th frame. It is shown at its time, if the times are not those of a constant rate."""
    video, place, start, due = _video(content), 0, 0.0, 0.0
    promised, (rate, suspicion) = int(video.get(cv2.CAP_PROP_FRAME_COUNT)), frame_rate(video)
    suspicions, variable = {suspicion: ""} if suspicion else {}, False
    try:
        while video.grab():
            seconds = float(video.get(cv2.CAP_PROP_POS_MSEC)) / 1000
            start = seconds if place == 0 else start
            due = (seconds - start) * rate if seconds > start else place
            if not variable and abs(due - place) > 1 + place / 50:
                variable = True
                suspicions |= {VARIABLE: ""}
            if place % every == 0:
                decoded, frame = video.retrieve()
                if not decoded:
                    break
                pixels = np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), dtype=np.uint8)
                at, name = round(due / every) if variable else place // every, f"{file.name}-{place:06d}"
                yield Photo(file.path, name, 0, pixels, place, rate / every, suspicions=suspicions, at=at)
                suspicions = {}
            place += 1
    finally:
        video.release()
    if not place:
        report(f"{file.path}: no readable video: it is damaged, or its codec is unknown")
    elif max(place, due + 1) < 0.9 * promised:
        report(f"{file.path}: ends after {place} of {promised} frames: it is damaged or cut off")


ALLOWED = "allowed are paths, uint8 RGB arrays (height, width, 3), PIL pictures, and lists or iterators of them"


def photos_from(
    images: Any, every: int, report: Callable[[str], None], left_out: Counter[str] | None = None
) -> Iterator[Photo]:
    """Yield the photos of images, numbered from 1, with unique names; for a video, each `every`-th frame.

    For the types of images, see `Predictor.predict`. Non-images, unreadable images and missing files go to `report`.
    """
    number, names = 0, set[str]()
    for source in _sources(images, "images", report, left_out):
        photos: Iterable[Photo] = ()
        name = f"{number + 1:06d}"
        if isinstance(source, File):
            photos = read_photos([source], every, report)
        elif isinstance(source, Reading):
            photos = [Photo(Path(name), name, number + 1, frame=source.pixels, suspicions=source.told)]
        elif source is not None:
            photos = [Photo(Path(name), name, number + 1, frame=source)]
        before = number
        for photo in photos:
            number += 1
            name = photo.name
            while name in names:  # the longer name may be taken by a file, too
                name = f"{name}-{number:06d}"
            names.add(name)
            yield replace(photo, name=name, number=number)
        number = max(number, before + 1)  # a video without frames counts, too


def _sources(
    images: Any, what: str, report: Callable[[str], None], left_out: Counter[str] | None
) -> Iterator[File | Reading | Pixels | None]:
    """Yield files and pixels; None for reported images, whose number is not reused."""
    if isinstance(images, (str, os.PathLike)):
        yield from find_files([os.fspath(images)], report=report, left_out=left_out) or (None,)
    elif isinstance(images, Image.Image) or hasattr(images, "__array__"):
        yield from _in_memory(images, what, report)
    elif isinstance(images, (bytes, bytearray, memoryview, IOBase)):
        report(f"{what}: found {type(images).__name__}; open it by PIL.Image.open; {ALLOWED}")
        yield None
    elif isinstance(images, Sequence) and all(isinstance(one, (str, os.PathLike)) for one in images):
        yield from find_files([os.fspath(one) for one in images], report=report, left_out=left_out)
    elif isinstance(images, Iterable) and not isinstance(images, Mapping):
        for index, one in enumerate(images):
            yield from _sources(one, f"{what}[{index}]", report, left_out)
    else:
        report(f"{what}: found {type(images).__name__}; {ALLOWED}")
        yield None


def _in_memory(image: Any, what: str, report: Callable[[str], None]) -> Iterator[Reading | Pixels | None]:
    """Yield the pixels of a picture of Pillow, or of what NumPy takes for an array."""
    try:
        fixed = isinstance(image, Image.Image) and image.mode not in ("F", "I")  # the range of others is not known
        found = read_upright(image) if fixed else np.asarray(image)
    except Exception as error:  # noqa: BLE001  # of a damaged picture, or a tensor with a gradient, anything is raised
        report(f"{what}: no readable picture: {' '.join(str(error).split()) or type(error).__name__}")
        yield None
    else:
        yield from [found] if isinstance(found, Reading) else _pixels(found, what, report)


def _pixels(array: np.ndarray[Any, Any], what: str, report: Callable[[str], None]) -> Iterator[Pixels | None]:
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or array.shape[-1] != 3 or 0 in array.shape[-3:]:
        report(f"{what}: found an array of {array.dtype} {array.shape}; {ALLOWED}, or (N, height, width, 3)")
        yield None
    else:
        yield from map(np.array, array if array.ndim == 4 else array[None])  # copies: callers refill buffers
