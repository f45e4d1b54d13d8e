import cv2
import numpy as np
import pytest
import torch

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.report.sheets import as_pixels, finish, side_by_side, wrapped


def test_pixels_are_rounded_and_clipped_and_colours_keep_their_order(tmp_path):
    values = torch.tensor([-2.0, -1.0, -0.998, 0.0, 0.5, 1.0, 3.0]).reshape(1, 1, 1, 7)
    pixels = as_pixels(values.numpy())
    assert pixels.shape == (1, 1, 7, 3)
    assert pixels.dtype == np.uint8
    exact = (values.double().numpy().clip(-1, 1) + 1) * 127.5
    assert (np.abs(pixels[..., 0] - exact[:, 0]) <= 0.5 + 1e-3).all()
    assert (pixels == pixels[..., :1]).all()  # gray
    image = torch.tensor([1.0, -1.0, 0.0]).reshape(1, 3, 1, 1).expand(2, 3, 4, 5)
    write_png(tmp_path / "a.png", as_pixels(image.numpy())[1])
    assert cv2.imread(str(tmp_path / "a.png"))[0, 0].tolist() == [128, 0, 255]
    write_png(tmp_path / "gray.png", pixels[0, ..., 0])
    assert cv2.imread(str(tmp_path / "gray.png"), cv2.IMREAD_UNCHANGED).shape == (1, 7)


@pytest.mark.parametrize("labels", [(), ("first", "", "third")])
def test_cells_and_labels_stand_where_they_belong(labels):
    rows = [[np.full((32, 40, 3), 50 * row + 10 * column, np.uint8) for column in range(2)] for row in range(3)]
    sheet = side_by_side(rows, ["a", "b"], gap=2, cell=96, labels=labels)  # enlarged three times
    above = 18 if labels else 0
    assert sheet.shape == (18 + 3 * (above + 96 + 2), 2 * (120 + 2), 3)
    assert all((sheet[:18, x : x + 122] < 128).any() for x in (0, 122))
    for row in range(3):
        y = 18 + row * (above + 98)
        assert (sheet[y : y + above] < 128).any() == bool(labels and labels[row])
        for column in range(2):
            assert (sheet[y + above :, 122 * column :][:96, :120] == 50 * row + 10 * column).all()
            assert (sheet[y + above + 96 :, 122 * column :][:2, :120] == 255).all()


def test_a_row_is_as_high_as_its_images():
    wide, tall = np.zeros((40, 100, 3), np.uint8), np.zeros((100, 60, 3), np.uint8)
    sheet = side_by_side([[wide, wide], [tall, tall]], ["a", "b"], gap=2)
    assert sheet.shape == (18 + 40 + 2 + 100 + 2, 2 * 102, 3)
    assert (sheet[60:160, 102:162] == 0).all()


def test_nothing_is_written_beyond_a_line(tmp_path):
    label = "index 310  annotation_id 19302  appearance_id 15101"
    sheet = side_by_side([[np.full((96, 96, 3), 255, np.uint8)]], ["a long title of a column"], labels=[label])
    lines = len(wrapped(label, 98)) + len(wrapped("a long title of a column", 96))
    assert lines > 4
    assert sheet.shape == (18 * lines + 98, 98, 3)
    assert (sheet[:, -2:] == 255).all()
    assert all((sheet[18 * line : 18 * line + 18] < 128).any() for line in range(lines))


def test_a_header_stands_above_a_picture(tmp_path):
    picture = np.random.default_rng(0).integers(0, 255, (20, 120, 3), np.uint8)
    write_png(tmp_path / "a.png", picture)
    finish(tmp_path / "a.png", "vunet (params.yaml)  step 2500", ".png")
    written = cv2.imread(str(tmp_path / "a.png"))[..., ::-1]
    assert (written[36:] == picture).all()
    assert (written[:18] < 128).any()
    assert (written[18:36] < 128).any()


def test_a_sheet_of_photos_is_a_jpeg_of_a_tenth(tmp_path):
    """A photo is a smooth scene with the noise of a camera. Colours keep their order, and nothing else is left."""
    random, steps = np.random.default_rng(0), np.linspace(40, 200, 300)
    scene = np.stack(np.broadcast_arrays(steps, steps[:, None], 90.0), axis=-1)
    photo = np.rint(scene + random.normal(0, 3, scene.shape)).clip(0, 255).astype(np.uint8)
    contents = []
    for _ in range(2):
        write_png(tmp_path / "a.png", photo)
        size = (tmp_path / "a.png").stat().st_size
        finish(tmp_path / "a.png", "vunet", ".jpg")
        assert [path.name for path in tmp_path.iterdir()] == ["a.jpg"]
        contents.append((tmp_path / "a.jpg").read_bytes())
    assert contents[0] == contents[1]
    assert len(contents[0]) < 0.1 * size
    written = cv2.imdecode(np.frombuffer(contents[0], np.uint8), cv2.IMREAD_COLOR)[18:, :, ::-1]
    assert np.abs(written[8:] - scene[8:]).mean() < 3


def test_a_sheet_too_high_for_a_jpeg_says_so(tmp_path):
    """As of fifty photos of 2K, one below the other."""
    for height, fits in ((65_500, True), (65_501, False)):
        write_png(tmp_path / "a.png", np.zeros((height, 1, 3), np.uint8))
        if fits:
            finish(tmp_path / "a.png", "", ".jpg")
            assert cv2.imread(str(tmp_path / "a.jpg")).shape == (height, 1, 3)
        else:
            with pytest.raises(UserError, match=r"a\.png: 1 x 65501 pixels; a JPEG has at most 65500 a side"):
                finish(tmp_path / "a.png", "", ".jpg")
