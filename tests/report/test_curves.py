import cv2
import pandas as pd
import pytest

from figura.base.checksums import write_sums
from figura.base.errors import UserError
from figura.report.curves import draw_curves, read_histories, write_curves

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


def test_a_digit_that_changed_on_disk_is_refused(tmp_path):
    (tmp_path / "history").mkdir()
    for name, table in (("train", TRAIN), ("validation", VALIDATION)):
        table.to_csv(tmp_path / f"history/{name}.csv", index=False)
    write_sums(tmp_path / "history")
    assert read_histories(tmp_path)[1].equals(VALIDATION)
    path = tmp_path / "history/validation.csv"
    path.write_text(path.read_text().replace("2.0", "3.0"))
    with pytest.raises(UserError, match=r"history/validation\.csv: its SHA-256 is another"):
        read_histories(tmp_path)


def test_a_validation_that_was_not_finite_is_a_gap_and_told(tmp_path, capsys):
    (tmp_path / "history").mkdir()
    TRAIN.to_csv(tmp_path / "history/train.csv", index=False)
    (tmp_path / "history/validation.csv").write_text("step,a.raw,b.raw,c.raw\n3,nan,1.5,-inf\n6,0.5,,2\n")
    train, validation = read_histories(tmp_path)
    assert train.equals(TRAIN)
    expected = {"step": [3, 6], "a.raw": [None, 0.5], "b.raw": [1.5, None], "c.raw": [None, 2.0]}
    pd.testing.assert_frame_equal(validation, pd.DataFrame(expected))
    said = f"{tmp_path}/history/validation.csv: not finite, and a gap in the curves: a.raw at step 3; c.raw at step 3\n"
    assert capsys.readouterr().out == said


def test_tables_for_dvc(tmp_path):
    write_curves(TRAIN, VALIDATION, tmp_path)
    tables = {path.stem: pd.read_csv(path) for path in tmp_path.iterdir()}
    assert tables.keys() == {"losses", "contributions", "updates"}
    assert all(list(table) == ["step", "name", "series", "value"] for table in tables.values())
    curves = tables["losses"].groupby(["name", "series"])[["step", "value"]].agg(list)
    assert {key: (row["step"], row["value"]) for key, row in curves.iterrows()} == {
        ("a", "training"): ([2, 4, 6], [1.0, 0.5, pytest.approx(1 / 3)]),
        ("a", "validation"): ([3, 6], [2.0, 1.0]),
        ("a", "weight"): ([2, 4, 6], [0.0, 1.0, 2.0]),
        ("b", "training"): ([4, 6], [3.0, 2.0]),  # no row where there is no value
        ("b", "weight"): ([4, 6], [1.0, 1.0]),
    }
    assert tables["contributions"].query("name == 'a'")["value"].tolist() == pytest.approx([0.0, 0.5, 2 / 3])
    assert tables["updates"].to_numpy().tolist() == [
        [step, "g", "learning rate", rate] for step, rate in ((2, 0.1), (4, 0.2), (6, 0.3))
    ]


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


def test_a_single_point_of_a_training_is_seen(tmp_path):
    draw_curves(TRAIN[["step", "b.raw"]][1:2], VALIDATION, tmp_path / "one.png")
    assert [180, 119, 31] in cv2.imread(str(tmp_path / "one.png"))[80:].reshape(-1, 3).tolist()  # below the legend
