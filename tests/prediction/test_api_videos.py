"""Videos become videos: as many frames, as fast, of what the painter saw."""

import os
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
import toy_photos
from toy_photos import write_mkv, write_video

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.pictures import VIDEOS
from figura.commands.predict import main
from figura.prediction import files
from figura.prediction.input_files import find_files, read_photos
from figura.prediction.predictor import load
from figura.prediction.video import CODECS, video_file

RATE = 12.5


def read_video(path: Path) -> tuple[list[np.ndarray], float]:
    video, frames = cv2.VideoCapture(str(path)), []
    while True:
        there, frame = video.read()
        if not there:
            return frames, video.get(cv2.CAP_PROP_FPS)
        frames.append(frame)


def levels(frames: list[np.ndarray]) -> list[int]:
    """Return the number that each frame was painted with."""
    return [round(frame.mean() / 20) for frame in frames]


@pytest.fixture
def toys(tmp_path):
    return toy_photos.write_run(tmp_path, {"predict.save": {"image": "image", "facts": "records"}})


def test_predict_video_keeps_frames_and_rate(toys, tmp_path):
    clip, predictor = write_video(tmp_path / "clip.avi", 7), load(toys[1], recipe=toys[0])
    results = predictor.predict_video(clip, tmp_path / "out/new.mp4", batch_size=3, progress=False)
    frames, rate = read_video(tmp_path / "out/new.mp4")
    assert levels(frames) == list(range(7))
    assert (rate, frames[0].shape) == (RATE, (32, 48, 3))
    assert [one.image.frame for one in results] == list(range(7))
    assert results[3].records == {"facts": [{"number": 4, "size": [32, 48]}]}
    assert results[3].pictures == {}  # they are in the video
    with pytest.raises(UserError, match=r"clip-000003: its picture is in .*out/new\.mp4 alone; `predict` returns"):
        results[3].draw()
    assert results.to_coco("facts")["images"][6]["frame"] == 6
    predictor.predict_video(clip, tmp_path / "new.mp4", every=2, progress=False)
    frames, rate = read_video(tmp_path / "new.mp4")
    assert levels(frames) == [0, 2, 4, 6]
    assert rate == RATE / 2


@pytest.mark.parametrize("suffix", VIDEOS)
def test_videos_of_every_suffix_are_read(suffix, tmp_path):
    codec = "VP80" if suffix == ".webm" else "mp4v"
    clip = write_video(tmp_path / f"clip{suffix.upper()}", 10, rate=25, codec=codec)  # less than 2 KB is no .mts
    faults = []
    photos = list(read_photos(find_files([str(clip)]), every=1, report=faults.append))
    assert levels([one.pixels() for one in photos]) == list(range(10))
    assert ([one.rate for one in photos], faults) == ([25] * 10, [])


@pytest.mark.parametrize(
    ("suffix", "mark"), [(".mp4", b"vp09"), (".webm", b"V_VP8"), (".mov", b"mp4v"), (".MP4", b"vp09")]
)
def test_browsers_play_vp9_and_vp8(suffix, mark, tmp_path, capfd):
    with video_file(tmp_path / f"new{suffix}", 30000 / 1001) as frames:
        for index in range(13):
            frames.add(np.full((33, 47, 3), 20 * index, np.uint8), index)
    assert mark in (tmp_path / f"new{suffix}").read_bytes()
    read, rate = read_video(tmp_path / f"new{suffix}")
    assert levels(read) == list(range(13))
    assert rate == pytest.approx(30000 / 1001, rel=1e-3)  # a .webm counts milliseconds
    assert capfd.readouterr() == ("", "")


def test_without_vp9_it_is_mpeg_4_and_a_line_says_so(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(CODECS, ".mp4", ("HEVC", *CODECS[".mp4"][1:]))  # which OpenCV's wheels do not write
    with video_file(tmp_path / "new.mp4", RATE) as frames:
        frames.add(np.zeros((32, 48, 3), np.uint8), 0)
    assert b"mp4v" in (tmp_path / "new.mp4").read_bytes()
    lost = "is MPEG-4, which browsers do not play: OpenCV writes no VP9 here"
    assert capfd.readouterr().err == f"warning: {tmp_path}/new.mp4: {lost}\n"
    monkeypatch.setitem(CODECS, ".mp4", ("HEVC",))
    with (
        pytest.raises(UserError, match=r"OpenCV writes no video of 2 x 2 pixels here \(HEVC\)"),
        video_file(tmp_path / "other.mp4", RATE) as frames,
    ):
        frames.add(np.zeros((1, 1, 3), np.uint8), 0)


def test_where_standard_error_is_closed(tmp_path):
    kept = os.dup(2)
    os.close(2)
    try:
        with video_file(tmp_path / "new.mp4", RATE) as frames:
            frames.add(np.zeros((1, 1, 3), np.uint8), 0)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert len(read_video(tmp_path / "new.mp4")[0]) == 1


def test_a_frame_that_is_missing_looks_like_the_one_before(tmp_path):
    with video_file(tmp_path / "a.mp4", 5.0) as frames:
        for place in (1, 2, 5):
            frames.add(np.full((33, 47, 3), 20 * place, np.uint8), place)
        with pytest.raises(UserError, match="frame 6 has 20 x 20 pixels, those before it 48 x 34"):
            frames.add(np.zeros((20, 20, 3), np.uint8), 6)
    read, _ = read_video(tmp_path / "a.mp4")
    assert levels(read) == [1, 1, 2, 2, 2, 5]
    assert read[0].shape == (34, 48, 3)  # even, nothing is cut off


def test_videos_that_cannot_be_read_or_written(toys, tmp_path):
    clip, predictor = write_video(tmp_path / "clip.avi", 2), load(toys[1], recipe=toys[0])
    (tmp_path / "torn.mp4").write_bytes(b"no video")
    (tmp_path / "new.mp4").write_text("earlier")
    (tmp_path / "dd.mp4").mkdir()
    for video, output, message in [
        ("torn.mp4", "new.mp4", r"torn\.mp4: no readable video: it is damaged, or its codec is unknown"),
        ("clip.txt", "new.mp4", r"clip\.txt: no video; videos end in \.avi"),
        ("clip.avi", "new.gif", r"new\.gif: a video to write ends in \.mp4, \.webm, \.mov$"),
        ("torn.mp4", "torn.mp4", "is the video to read"),
        ("*.avi", "new.mp4", r"\*\.avi: no such file; name one video, no folder or pattern$"),
        ("clip.avi", "dd.mp4", r"dd\.mp4: is a folder; a video to write is a file$"),
        ("clip.avi", "clip.avi/new.mp4", r"clip\.avi.*: .*; remove what is in its place"),
    ]:
        with pytest.raises(UserError, match=message):
            predictor.predict_video(tmp_path / video, tmp_path / output, progress=False)
    assert (tmp_path / "new.mp4").read_text() == "earlier"
    several = load(toys[1], recipe=toys[0], settings={"predict.data.pieces": 2})
    with pytest.raises(UserError, match="makes no picture of a whole frame"):
        several.predict_video(clip, tmp_path / "new.mp4", progress=False)


def test_of_a_damaged_video_what_can_be_read(toys, tmp_path):
    content = write_video(tmp_path / "clip.avi", 12).read_bytes()
    clip, predictor = tmp_path / "torn.avi", load(toys[1], recipe=toys[0])
    clip.write_bytes(content[: (content.index(b"movi") + content.index(b"idx1")) // 2])
    there = len(read_video(clip)[0])
    assert 0 < there < 12
    with pytest.warns(UserWarning, match=rf"new\.mp4: not all .*\n.*torn\.avi: ends after {there} of 12 frames"):
        results = predictor.predict_video(clip, tmp_path / "new.mp4", progress=False)
    assert levels(read_video(tmp_path / "new.mp4")[0]) == list(range(there))
    assert [one.image.frame for one in results] == list(range(there))
    (fault,) = results.faults
    assert fault.startswith(f"{clip}: ends after {there} of 12 frames")


def test_a_variable_frame_rate_is_told_and_keeps_the_times(toys, tmp_path, capsys):
    """20 frames at 30 a second, 4 that are half a second apart, 20 at 30 a second: 3.3 s."""
    times = [round(number * 1000 / 30) for number in range(20)]
    times += [times[-1] + 500 * number for number in range(1, 5)]
    times += [times[-1] + round(number * 1000 / 30) for number in range(1, 21)]
    clip, predictor = write_mkv(tmp_path / "clip.mkv", times), load(toys[1], recipe=toys[0])
    told = "1 videos have a variable frame rate: at a constant one, frames are repeated or left out to keep their times"
    with pytest.warns(UserWarning, match=rf"^{told}") as warned:
        results = predictor.predict_video(clip, tmp_path / "new.mp4", progress=False)
    assert len(warned) == 1
    assert (len(results), results.faults) == (44, ())
    frames, rate = read_video(tmp_path / "new.mp4")
    shown = [round(frame.mean() / 5) for frame in frames]
    assert abs(len(frames) / rate - 3.3) < 0.1
    for place, time in list(enumerate(times))[24:]:
        assert abs(shown[min(round(time / 1000 * rate), len(shown) - 1)] - place) <= 1
    assert run(main, [*toys, str(clip), "--output", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    assert f"warning: {told} (e.g. clip-0000" in said
    assert "damaged" not in said
    assert len(read_video(tmp_path / "out/clip.image.webm")[0]) == len(frames)


def test_a_video_is_there_before_the_next_is_done(toys, tmp_path, monkeypatch):
    sizes = {"a": (32, 48), "b": (16, 24), "c": (32, 48), "d": (16, 24), "e": (32, 48), "f": (16, 24)}
    clips = [str(write_video(tmp_path / f"{name}.avi", 5, size)) for name, size in sizes.items()]
    opened, most = set(), []

    @contextmanager
    def watched(path, rate):
        with video_file(path, rate) as frames:
            opened.add(path)
            most.append(len(opened))
            yield frames
        opened.discard(path)

    monkeypatch.setattr(files, "video_file", watched)
    assert run(main, [*toys, *clips, "--batch-size", "2", "--output", str(tmp_path / "out")]) == 0
    assert max(most) == 2  # the fifth frame of each waits for the next video's frames
    assert not opened
    for name in sizes:
        assert levels(read_video(tmp_path / f"out/{name}.image.webm")[0]) == list(range(5))


def test_a_video_that_cannot_be_written_costs_itself_alone(toys, tmp_path, capsys):
    """OpenCV gives 2 bits to a pixel: 16 of them, 12.5 times a second, are 0 kbit/s, of which VP8 makes no frames."""
    for name in ("a", "z"):  # one is closed as soon as the next file is read, the other at the end
        write_video(tmp_path / f"{name}.avi", 3, (4, 4), codec="mp4v")
    cv2.imwrite(str(tmp_path / "b.png"), np.full((6, 9, 3), 50, np.uint8))
    files = [str(tmp_path / name) for name in ("a.avi", "b.png", "z.avi")]
    assert run(main, [*toys, *files, "--batch-size", "3", "--output", str(tmp_path / "out")]) == 1
    out = tmp_path / "out"
    assert sorted(path.name for path in out.glob("*.image.*")) == ["b.image.png"]
    said = capsys.readouterr().err
    for name in ("a", "z"):
        assert f"skipped: {out}/{name}.image.webm: 0 of 3 frames of 4 x 4 pixels could be written; is the disk" in said
    assert "error: 2 of the inputs could not be used (see above); the others are done" in said
