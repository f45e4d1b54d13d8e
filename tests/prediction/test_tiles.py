"""Prediction in tiles: where tiles lie, how they fade, and that the picture is that of the whole."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import toy_photos
from numpy.typing import NDArray
from PIL import Image

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.commands.predict import main
from figura.prediction.inputs import SettingError
from figura.prediction.predictor import load
from figura.prediction.tiles import Mosaic, Tiling

PIXELS = np.random.default_rng(5).integers(14, 255, (41, 67, 3), dtype=np.uint8)


def put_together(tiling: Tiling, pixels: NDArray[np.uint8], network, scale: int = 1) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    mosaic = Mosaic(tiling, height, width, scale)
    corners = [(top, left) for top in tiling.starts(height) for left in tiling.starts(width)]
    for index, (top, left) in enumerate(corners):
        mosaic.add(network(pixels[top : top + tiling.side, left : left + tiling.side], index), index)
    return mosaic.picture


def test_tiles_cover_a_side_and_their_weights_sum_to_one() -> None:
    tiling = Tiling(8)
    assert tiling.overlap == 2
    assert tiling.starts(20) == [0, 6, 12]
    assert tiling.starts(21) == [0, 6, 12, 13]  # the last one ends with the picture
    assert tiling.starts(8) == tiling.starts(5) == [0]
    # an overlap of 4 fades over its middle two pixels, of which the first is a quarter of the way
    down = [1, 1, 1, 1, 1, 0.75, 0.25, 0]
    np.testing.assert_allclose(Tiling(8, 4).weights(12, 1), [down, down[::-1]], atol=1e-7)
    for length in range(1, 40):
        total = np.zeros(length * 2)
        for start, one in zip(tiling.starts(length), tiling.weights(length, 2), strict=True):
            total[2 * start : 2 * start + len(one)] += one
        np.testing.assert_allclose(total, 1, atol=1e-6)


def test_context_of_a_quarter_of_the_overlap_makes_the_whole_picture() -> None:
    """A blur that sees two pixels in each direction, then twice as large."""

    def network(pixels: NDArray[np.uint8], place: int) -> NDArray[np.uint8]:
        blurred = cv2.blur(pixels, (5, 5), borderType=cv2.BORDER_CONSTANT)
        return np.repeat(np.repeat(blurred, 2, axis=0), 2, axis=1)

    whole = network(PIXELS, 0)
    assert np.array_equal(put_together(Tiling(24, 8), PIXELS, network, 2), whole)
    assert not np.array_equal(put_together(Tiling(24, 4), PIXELS, network, 2), whole)


def test_tiles_that_differ_fade_into_each_other() -> None:
    """Every second tile is brighter by 60: with 16 pixels to fade over, a step is at most 60 / 16, rounded."""
    dark = np.full((40, 200, 3), 100, np.uint8)

    def brighter(pixels: NDArray[np.uint8], place: int) -> NDArray[np.uint8]:
        return pixels + np.uint8(60 * (place % 2))

    steps = {
        overlap: np.diff(put_together(Tiling(64, overlap), dark, brighter).astype(int), axis=1).max()
        for overlap in (0, 32)
    }
    assert steps == {0: 60, 32: 4}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return toy_photos.write_run(tmp_path, {"predict.save": {"image": "image"}})


def test_pictures_of_any_size_are_those_of_the_whole(files, tmp_path: Path) -> None:
    predictor = load(files[1], recipe=files[0], device="cpu")
    pictures = [PIXELS, PIXELS[:9, :10], PIXELS[:64], PIXELS[:7]]
    tiled = predictor.predict(pictures, tile=16, batch_size=3)
    for one, pixels, number in zip(tiled, pictures, range(1, 5), strict=True):
        assert (one.image.id, one.image.size, one.name) == (number, pixels.shape[:2], f"{number:06d}")
        assert np.array_equal(one.draw(), np.repeat(pixels[..., :1], 3, axis=2))
    assert [one.id for one in tiled.images] == [1, 2, 3, 4]

    folder = tmp_path / "photos"
    folder.mkdir()
    Image.fromarray(PIXELS).save(folder / "large.png")
    unlucky = PIXELS.copy()
    unlucky[20:] = 13  # some of its tiles fail
    Image.fromarray(unlucky).save(folder / "unlucky.png")
    (folder / "no.png").write_bytes(b"no picture")
    toy_photos.write_video(folder / "clip.avi", 3)
    output = tmp_path / "output"
    arguments = [*files, str(folder), str(folder / "clip.avi"), "--output", str(output), "--tile", "16", "--frames"]
    assert run(main, arguments) == 1
    assert sorted(path.name for path in output.glob("*.png")) == [
        "clip-000000.image.png", "clip-000001.image.png", "clip-000002.image.png", "large.image.png",
    ]  # fmt: skip
    assert np.array_equal(np.asarray(Image.open(output / "large.image.png")), np.repeat(PIXELS[..., :1], 3, axis=2))
    assert run(main, [*arguments[:-1], "--every", "2"]) == 1
    assert (output / "clip.image.webm").exists()


def test_what_no_mosaic_can_be_made_of_is_refused(files) -> None:
    def refused(settings: dict[str, object], **more: object) -> str:
        predictor = load(files[1], recipe=files[0], device="cpu", settings=settings)
        with pytest.raises(UserError) as error:
            predictor.predict([PIXELS], **{"tile": 16, **more})
        return str(error.value)

    with pytest.raises(SettingError, match=r"predict\.save\.facts is records: tiles make pictures"):
        load(files[1], recipe=files[0], settings={"predict.save.facts": "records"}).predict([PIXELS], tile=16)
    assert "half the tile" in refused({}, overlap=9)
    for wrong in ({"tile": 16.0}, {"overlap": 16 / 4}, {"overlap": -1}):
        assert "a whole number from" in refused({}, **wrong)
    assert "there are no tiles" in refused({}, tile=None, overlap=2)
    with pytest.raises(SystemExit):
        main([*files, "photo.png", "--output", "out", "--overlap", "2"])
    assert "one of several results of a tile" in refused({"predict.data.pieces": 2})
