import cv2
import pandas as pd
import pytest

from models.report.curves import draw_curves, losses_of, write_curves

TRAIN = pd.DataFrame(
    {
        "step": [2, 4, 6],
        "a.raw": [1.0, 0.5, 1 / 3],
        "a.weight": [0.0, 1.0, 2.0],
        "a.weighted": [0.0, 0.5, 2 / 3],
        "b.raw": [None, 3.0, 2.0],
        "b.weight": [None, 1.0, 1.0],
        "b.weighted": [None, 3.0, 2.0],
        "g.lr": [0.1, 0.2, 0.3],
    }
)
VALIDATION = pd.DataFrame({"step": [3, 6], "a.raw": [2.0, 1.0]})


def test_losses_are_named_by_their_raw_columns():
    assert losses_of(TRAIN) == ["a", "b"]


def test_a_table_for_each_curve(tmp_path):
    write_curves(TRAIN, VALIDATION, tmp_path)
    names = [f"{c}.csv" for c in TRAIN.columns.drop("step")] + ["validation.a.raw.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert (tmp_path / "a.weight.csv").read_text() == "step,value\n2,0.0\n4,1.0\n6,2.0\n"
    assert (tmp_path / "b.raw.csv").read_text() == "step,value\n4,3.0\n6,2.0\n"  # no row where there is no value
    assert pd.read_csv(tmp_path / "a.raw.csv")["value"].tolist() == pytest.approx([1.0, 0.5, 1 / 3])
    assert (tmp_path / "validation.a.raw.csv").read_text() == "step,value\n3,2.0\n6,1.0\n"


@pytest.mark.parametrize("losses", [["a"], ["a", "b"]])
def test_the_picture_is_drawn_and_repeatable(tmp_path, losses):
    columns = ["step", *(column for column in TRAIN if column[0] in losses)]
    for name in ("one.png", "two.png"):
        draw_curves(TRAIN[columns], VALIDATION, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    picture = cv2.imread(str(tmp_path / "one.png"))
    assert picture.shape[1] == pytest.approx(11 * 110, abs=2)
    colours = picture.reshape(-1, 3).tolist()
    assert colours.count([180, 119, 31]) > 100  # tab:blue, the training curve, in BGR
    assert colours.count([14, 127, 255]) > 50  # tab:orange, validation
