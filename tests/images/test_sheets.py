"""Sheets of a dump: which examples they show, and what their rows say."""

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
from dumps_by_hand import sealed

from figura.base.errors import UserError
from figura.dump import Dump, write_value
from figura.report.interfaces import NotApplicableError
from models.images.sheets import Draws, Extremes, Sheet, error_map, row_label

SIDE = 400  # labels need one line
LEVELS = [0.5, -1.0, 1.0, 0.0]
LOSSES = [0.25, 4.0, 0.125, 1.0]


@pytest.fixture
def dump(tmp_path):
    """Four examples of a mode: pictures of one level each."""
    rows = []
    for index, (level, loss) in enumerate(zip(LEVELS, LOSSES, strict=True)):
        write_value(tmp_path / f"{index}.image.png", torch.full((3, SIDE, SIDE), level))
        rows.append({
            "mode": "m", "index": 10 * index, "dataset": "people", "name": f"street/{index}", "person_id": 7 + index,
            "seen": index % 2, "loss.l1": loss, "file.image": f"{index}.image.png",
        })  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "examples.csv", index=False)
    return Dump(sealed(tmp_path))


def levels(path):
    """The levels of the pictures in the first column of a sheet, from above."""
    sheet = cv2.imread(str(path))
    assert (len(sheet) - 18) % (18 + SIDE + 2) == 0
    tops = range(18 + 18, len(sheet), 18 + SIDE + 2)
    return [float(sheet[y + SIDE // 2, SIDE // 2, 0]) / 127.5 - 1 for y in tops]


def test_a_row_says_which_example_it_shows(dump):
    rows = dump.mode("m")
    assert row_label(rows, 2) == "l1 0.125  index 20  name street/2  person_id 9"
    assert row_label(rows, 1, "loss.l1") == "l1 4  index 10  name street/1  person_id 8"
    rows.table["dataset"] = ["people", "people", "others", "people"]
    assert row_label(rows, 2) == "l1 0.125  index 20  dataset others  name street/2  person_id 9"


@pytest.mark.parametrize(("largest", "places"), [(True, [1, 3, 0]), (False, [2, 0, 3])])
def test_extremes(dump, tmp_path, largest, places):
    Extremes("m", "loss.l1", ["image"], 3, largest)(dump, tmp_path / "sheet.png")
    assert levels(tmp_path / "sheet.png") == pytest.approx([LEVELS[place] for place in places], abs=0.01)


def test_no_extremes_of_a_loss_that_was_not_computed(dump, tmp_path):
    with pytest.raises(NotApplicableError, match=r"no 'loss\.l2' but loss\.l1: losses of weight 0 are not"):
        Extremes("m", "loss.l2", ["image"], 3, largest=True)(dump, tmp_path / "sheet.png")


def test_an_error_map_is_beside_the_extremes(dump, tmp_path):
    for index in range(4):
        write_value(tmp_path / f"{index}.target.image.png", torch.full((3, SIDE, SIDE), 0.75))
    table = dump.table.assign(**{"file.target": [f"{index}.target.image.png" for index in range(4)]})
    extremes = Extremes("m", "loss.l1", ["image"], 2, False, ("image", "target"))
    extremes(Dump(sealed(tmp_path), table), tmp_path / "sheet.png")
    assert levels(tmp_path / "sheet.png") == pytest.approx([1.0, 0.5], abs=0.01)
    sheet = cv2.imread(str(tmp_path / "sheet.png"))
    middles = [18 + 18 + SIDE // 2 + row * (18 + SIDE + 2) for row in range(2)]
    # both are 0.25 away from the target: the middle of inferno, (188, 55, 84) in matplotlib
    for y in middles:
        assert sheet[y, SIDE + 2 + SIDE // 2, ::-1].tolist() == pytest.approx([188, 55, 84], abs=4)


def test_the_colours_of_errors():
    zeros = np.zeros((3, 1, 3), np.float32)
    errors = np.stack([np.array([[0.0, 0.25, -2.0]], np.float32)] * 3)
    black, red, yellow = error_map(errors, zeros)[0].tolist()
    assert max(black) < 5
    assert red == pytest.approx([188, 55, 84], abs=4)
    assert yellow == pytest.approx([252, 255, 164], abs=4)
    assert error_map(np.array([[[0.75]], [[0.0]], [[0.0]]], np.float32), zeros[:, :, :1])[0, 0].tolist() == red
    with pytest.raises(UserError, match=r"shapes \(3, 1, 3\) and \(3, 1, 2\) cannot be drawn"):
        error_map(errors, zeros[:, :, :2])


def test_a_sheet_of_some_examples(dump, tmp_path):
    Sheet("m", ["image"], 8, where="seen")(dump, tmp_path / "sheet.png")
    assert levels(tmp_path / "sheet.png") == pytest.approx([LEVELS[1], LEVELS[3]], abs=0.01)
    dump.table["seen"] = 0
    with pytest.raises(NotApplicableError, match="seen holds for none of the 4 examples of mode 'm'"):
        Sheet("m", ["image"], 8, where="seen")(dump, tmp_path / "other.png")
    assert not (tmp_path / "other.png").exists()


def test_draws_name_their_example(dump, tmp_path):
    table = pd.concat([dump.table.assign(draw=draw) for draw in range(2)])
    Draws("m", "image", "image", 2)(Dump(dump.folder, table), tmp_path / "sheet.png")
    assert levels(tmp_path / "sheet.png") == pytest.approx([LEVELS[0], LEVELS[2]], abs=0.01)
    assert np.shape(cv2.imread(str(tmp_path / "sheet.png")))[1] == 3 * (SIDE + 2)
