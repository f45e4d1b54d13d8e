"""Videos of predicted pictures: frames are added one by one, and the file appears when complete."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from figura.base.errors import UserError, printable
from figura.base.files import replacing
from figura.base.pictures import Pixels

MPEG_4 = "mp4v"
STDERR = threading.RLock()  # held while this process's stderr is replaced
CODECS = {".mp4": ("vp09", MPEG_4), ".webm": ("VP80",), ".mov": (MPEG_4,)}
"""Codecs by video suffix; the first that OpenCV supports is used.

Browsers play VP9 and VP8, but not MPEG-4, which is written about 100 times as fast as VP9 and 15 times as fast as VP8.
"""


class VideoFrames:
    """The frames of a video being written, all of one size.

    Odd heights and widths are padded by repeating the last row or column: encoders need even sizes.
    """

    def __init__(self, path: Path, temporary: Path, rate: float) -> None:
        self.path, self.rate, self.count = path, rate, 0
        self._temporary = temporary
        self._writer: cv2.VideoWriter | None = None
        self._last: Pixels | None = None

    def add(self, frame: Pixels, place: int) -> None:
        """Append a frame, uint8 (H, W, 3) RGB, at index `place`; missing frames before it repeat the last one.

        A frame whose place is taken is left out.

        Raises:
            UserError: the frame's size differs from the first, or OpenCV cannot write a video of this size.
        """
        even = np.pad(frame, [(0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)], mode="edge")
        if self._writer is None:
            self._writer = self._opened(even.shape[1], even.shape[0])
        if self._last is not None and even.shape != self._last.shape:
            sizes = [f"{one.shape[1]} x {one.shape[0]}" for one in (even, self._last)]
            raise UserError(f"{self.path}: frame {place} has {sizes[0]} pixels, those before it {sizes[1]}")
        if place < self.count:
            return
        before = even if self._last is None else self._last
        for one in [before] * (place - self.count) + [even]:
            self._writer.write(cv2.cvtColor(one, cv2.COLOR_RGB2BGR))
            self.count += 1
        self._last = even

    def _opened(self, width: int, height: int) -> cv2.VideoWriter:
        codecs = CODECS[self.path.suffix.lower()]
        for codec in codecs:
            with no_stderr():  # OpenCV prints messages for each unknown codec, and for VP8 in each .webm
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
        """Finish the file."""
        if self._writer is not None:
            self._writer.release()

    def check(self) -> None:
        """Raise UserError if the closed file has fewer frames than were added.

        OpenCV does not report a full disk, nor an encoder that gets 0 kbit/s: OpenCV gives it 2 bits a pixel.
        """
        with no_stderr():
            video = cv2.VideoCapture(str(self._temporary), cv2.CAP_FFMPEG)
            frames = int(video.get(cv2.CAP_PROP_FRAME_COUNT)) if video.isOpened() else 0
            video.release()
        if frames < self.count:
            size = "" if self._last is None else f" of {self._last.shape[1]} x {self._last.shape[0]} pixels"
            written = f"{max(frames, 0)} of {self.count} frames{size} could be written"
            encoder = f"are they too small, or at {self.rate:.3g} a second too few, for the encoder?"
            raise UserError(f"{self.path}: {written}; is the disk full, or {encoder}")


@contextmanager
def video_file(path: Path, rate: float) -> Iterator[VideoFrames]:
    """Yield a video to add frames to, `rate` per second; after the block, it replaces `path`.

    If the block raises, an earlier file is kept.

    Raises:
        UserError: `path` does not end in one of `CODECS` or is not UTF-8, or raised by the frames.
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
    """Discard what C code writes to this process's stderr; OpenCV has no setting for all of it.

    Output of other threads is lost, too.
    """
    with STDERR:
        try:
            before = os.dup(2)
        except OSError:  # stderr is closed
            yield
            return
        try:
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), 2)
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
