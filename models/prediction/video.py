"""Videos of predicted pictures: frames go in one by one, and the file is there when it is whole."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from models.base.errors import UserError, printable
from models.base.files import replacing
from models.base.pictures import Pixels

SUFFIX = ".webm"
MPEG_4 = "mp4v"
STDERR = threading.RLock()
"""Held while the standard error of this process is replaced."""
CODECS = {".mp4": ("vp09", MPEG_4), ".webm": ("VP80",), ".mov": (MPEG_4,)}
"""By the suffix of a video, what it is encoded in, the first that OpenCV was built with. Browsers play VP9 and VP8, not
MPEG-4, in which a frame is written about 100 times as fast as in VP9, and 15 times as fast as in VP8."""


class VideoFrames:
    """The frames of a video that is being written, all of one size.

    An odd height or width gets one more row or column, a copy of the last: encoders take even ones alone.
    """

    def __init__(self, path: Path, temporary: Path, rate: float) -> None:
        self.path, self.rate, self.count = path, rate, 0
        self._temporary = temporary
        self._writer: cv2.VideoWriter | None = None
        self._last: Pixels | None = None

    def add(self, frame: Pixels, place: int) -> None:
        """Append a frame, uint8 (H, W, 3) RGB, at its place from 0; frames missing before it look like the last one.

        Raises:
            UserError: the frame has another size than the first, or OpenCV cannot write a video of this size.
        """
        even = np.pad(frame, [(0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)], mode="edge")
        if self._writer is None:
            self._writer = self._opened(even.shape[1], even.shape[0])
        if self._last is not None and even.shape != self._last.shape:
            sizes = [f"{one.shape[1]} x {one.shape[0]}" for one in (even, self._last)]
            raise UserError(f"{self.path}: frame {place} has {sizes[0]} pixels, those before it {sizes[1]}")
        before = even if self._last is None else self._last
        for one in [before] * (place - self.count) + [even]:
            self._writer.write(cv2.cvtColor(one, cv2.COLOR_RGB2BGR))
            self.count += 1
        self._last = even

    def _opened(self, width: int, height: int) -> cv2.VideoWriter:
        codecs = CODECS[self.path.suffix.lower()]
        for codec in codecs:
            with no_stderr():  # OpenCV writes of each codec that it does not know, and of VP8 in each .webm
                fourcc = cv2.VideoWriter.fourcc(*codec)
                writer = cv2.VideoWriter(str(self._temporary), cv2.CAP_FFMPEG, fourcc, self.rate, (width, height))
            if writer.isOpened():
                if codec != codecs[0]:
                    lost = "is MPEG-4, which browsers do not play: OpenCV writes no VP9 here"
                    tqdm.write(printable(f"warning: {self.path}: {lost}"), file=sys.stderr)
                return writer
        tried = ", ".join(codecs)
        raise UserError(f"{self.path}: OpenCV writes no video of {width} x {height} pixels here ({tried})")

    def close(self) -> None:
        """Write what is left of the file."""
        if self._writer is not None:
            self._writer.release()

    def check(self) -> None:
        """Raise UserError if the closed file has fewer frames than were added: OpenCV reports no full disk."""
        with no_stderr():
            video = cv2.VideoCapture(str(self._temporary), cv2.CAP_FFMPEG)
            frames = int(video.get(cv2.CAP_PROP_FRAME_COUNT)) if video.isOpened() else 0
            video.release()
        if frames < self.count:
            raise UserError(f"{self.path}: {frames} of {self.count} frames could be written; is the disk full?")


@contextmanager
def video_file(path: Path, rate: float) -> Iterator[VideoFrames]:
    """Yield the frames of a video to fill, `rate` a second; after the block, it is at `path`, replacing what was there.

    If the block raises, an earlier file stays.

    Raises:
        UserError: `path` does not end in one of `CODECS` or is no UTF-8, or what the frames raise.
    """
    check_video_name(path)
    with replacing(path) as temporary:
        frames = VideoFrames(path, temporary, rate)
        try:
            yield frames
        finally:
            frames.close()
        frames.check()


def check_video_name(path: Path) -> None:
    """Raise UserError if a video cannot be written to this path."""
    if path.suffix.lower() not in CODECS:
        raise UserError(f"{path}: a video to write ends in {', '.join(CODECS)}")
    if path.is_dir():
        raise UserError(f"{path}: is a folder; a video to write is a file")
    try:
        str(path).encode()
    except UnicodeEncodeError:  # OpenCV crashes on it
        raise UserError(f"{str(path)!r}: the name of a video to write must be UTF-8") from None


@contextmanager
def no_stderr() -> Iterator[None]:
    """Drop what C code writes to the standard error of this process; OpenCV has no setting for all of it.

    What other threads write meanwhile is lost, too.
    """
    with STDERR:
        try:
            before = os.dup(2)
        except OSError:  # it is closed
            yield
            return
        try:
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), 2)
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
