"""Poses read in pictures against poses asked for: figures by hand, and the dataset of a run's dump."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps_by_hand import sealed
from people_by_hand import AREA, SIGMA, SKELETON, dump, oks, person, pose

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.base.raw_pictures import read_picture
from figura.dump import Dump
from figura.report.interfaces import Bootstrap, NotApplicableError
from models.pose.consistency import PoseConsistency, PoseSheet
from models.pose.dumped_people import DumpedPeople
from models.pose.scenes import IMAGENET_MEAN, IMAGENET_STD

BOOTSTRAP = Bootstrap(50, 0.95, 7)


def dumped(folder: Path, kinds: list[str], people: list[dict[str, Any]], truth: list[dict[str, Any]]) -> Dump:
    """A dump of two examples in each of these kinds; image ids count through all, from 1."""
    columns = {"kind": np.repeat(kinds, 2).tolist(), "example": [10, 11] * len(kinds), "owner": [5] * 2 * len(kinds)}
    images = [np.full((3, 64, 64), number / 4 - 1, np.float32) for number in range(2 * len(kinds))]
    return dump(folder, range(1, 2 * len(kinds) + 1), truth, people, images=images, **columns)


def score(kind: str, **more: Any) -> PoseConsistency:
    more = more if "reference" in more else {"truth": "truth", **more}
    return PoseConsistency("poses", kind, "people", skeleton=SKELETON, **more)


ASKED = [person(number, 30, number=number) for number in (1, 2, 3, 4)]


def test_figures_are_those_of_a_calculation_by_hand(tmp_path: Path) -> None:
    # in kind "real" both exact; in "drawn" one person 8 px to the right, and none in the other picture
    people = [pose(1, 30, 0.9), pose(2, 30, 0.9), pose(3, 30, 0.9, off=8), pose(3, 60, 0.2)]
    rows = dumped(tmp_path, ["real", "drawn"], people, ASKED)
    real = score("real")(rows, BOOTSTRAP)
    assert real["found"]["low"] == pytest.approx(0.342380, abs=1e-6)  # Wilson's for 2 of 2: 2 / (2 + 1.96^2)
    drawn = score("drawn", within=(0.05, 0.1))(rows, BOOTSTRAP)
    assert real["oks"]["value"] == real["AP"]["value"] == real["found"]["value"] == 1
    assert drawn["oks"]["value"] == pytest.approx(oks(8) / 2, abs=1e-9)
    assert (drawn["found"]["value"], drawn["pictures"]) == (0.5, 2)  # a score of 0.2 is as in noise
    # 8 px are .08 of 100: beyond .05, within .1, in one of two pictures
    assert (drawn["PCK_5"]["value"], drawn["PCK_10"]["value"]) == (0, 0.5)
    assert drawn["foot"] == {"PCK_5": 0, "PCK_10": 0.5}


def test_ap_counts_people_who_were_not_asked_for_and_joints_count_where_they_are_labelled(tmp_path: Path) -> None:
    alone, other = [pose(1, 30, 0.9), pose(2, 30, 0.9)], pose(1, 60, 0.95)
    assert score("real")(dumped(tmp_path / "a", ["real"], alone, ASKED), BOOTSTRAP)["AP"]["value"] == 1
    found = score("real")(dumped(tmp_path / "b", ["real"], [*alone, other], ASKED), BOOTSTRAP)
    assert found["AP"]["value"] < 0.9
    alone[0]["keypoints"][0] += 30
    truth = [person(1, 30, flags=(0, 2)), *ASKED[1:]]
    found = score("real")(dumped(tmp_path / "c", ["real"], alone, truth), BOOTSTRAP)
    assert found["oks"]["value"] == found["PCK_5"]["value"] == 1


def test_the_reading_of_another_picture_is_the_reference(tmp_path: Path) -> None:
    people = [pose(1, 30, 0.9), pose(2, 30, 0.05), pose(3, 30, 0.9, off=3), pose(4, 30, 0.9)]
    rows = dumped(tmp_path, ["real", "drawn"], people, [])
    figures = score("drawn", reference="real")(rows, BOOTSTRAP)
    assert figures["pictures"] == 1  # the second real picture shows nobody for sure
    assert AREA == 50 * 100  # of the box; somebody fills half of it
    assert figures["oks"]["value"] == pytest.approx(np.exp(-9 / (2 * AREA / 2 * (2 * SIGMA) ** 2)), abs=1e-9)
    with pytest.raises(ValueError, match="one of them says which poses were asked for"):
        PoseConsistency("poses", "drawn", "people")
    with pytest.raises(NotApplicableError, match="no picture has a pose"):
        score("drawn", reference="real", least_score=0.99)(rows, BOOTSTRAP)


def test_the_sheet_shows_a_column_for_each_kind(tmp_path: Path) -> None:
    rows = dumped(tmp_path / "dump", ["real", "drawn"], [pose(1, 30, 0.9), pose(3, 30, 0.9, off=4)], ASKED)
    sheet = PoseSheet("poses", ["real", "drawn"], "overlay", "people", truth="truth", count=2, skeleton=SKELETON)
    sheet(rows, tmp_path / "sheet.png")
    picture = read_picture(tmp_path / "sheet.png")
    assert picture.shape[1] == 2 * (192 + 2)
    assert picture.shape[0] > 2 * 192


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bbox": None}, r"record 0 \(counted from 0\): bbox is None; a list of finite numbers is needed"),
        ({"image_id": 2}, r"record 1 \(counted from 0\): image 2 has another pose already"),
    ],
)
def test_poses_asked_for_are_checked(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    rows = dumped(tmp_path, ["real"], [pose(1, 30, 0.9)], [ASKED[0] | change, ASKED[1]])
    with pytest.raises(UserError, match=said):
        score("real")(rows, BOOTSTRAP)


def test_intervals_take_the_pictures_of_a_person_together(tmp_path: Path) -> None:
    rows = dumped(tmp_path, ["real"], [pose(1, 30, 0.9), pose(2, 30, 0.9, off=8)], ASKED[:2])
    alone, together = (score("real", groups=groups)(rows, BOOTSTRAP)["oks"] for groups in (None, "owner"))
    assert alone["low"] < alone["value"] < alone["high"]
    assert together["low"] == together["value"] == together["high"]  # one group alone cannot vary


def run_of(folder: Path, draws: int = 1) -> Path:
    """A run's dump: three examples with a target, and what a mode drew; the second has no other view."""
    rows = ["mode,draw,index,dataset,has_other_view,file.image,file.target"]
    for number in range(3):
        write_png(folder / f"inputs/{number}.target.image.png", np.full((64, 48, 3), 10 * number, np.uint8))
        for draw in range(draws):
            name = f"prior/{number}-{draw}.image.image.png"
            write_png(folder / name, np.full((64, 48, 3), 100 + 10 * number + draw, np.uint8))
            rows.append(f"prior,{draw},{number},people,{int(number != 1)},{name},inputs/{number}.target.image.png")
    (folder / "examples.csv").write_text("\n".join(rows) + "\n")
    (folder / "inputs/truth.json").write_text(json.dumps([person(number, 30) for number in range(3)]))
    return sealed(folder)


def test_examples_are_the_pictures_of_a_dump(tmp_path: Path) -> None:
    folder = run_of(tmp_path, draws=2)
    pictures = {"real": "target", "prior": "prior.image"}
    where = {"prior": "has_other_view"}
    data = DumpedPeople(dump=str(folder), pictures=pictures, truth="truth", where=where, side=129)
    assert [data[index]["kind"] for index in range(len(data))] == ["real"] * 3 + ["prior"] * 2
    assert [data[index]["example"] for index in range(len(data))] == [0, 1, 2, 0, 2]  # 1 has no other view
    last = data[4]
    assert (last["image_id"], last["index"], last["person_id"]) == (5, 4, 2)
    assert [one["image_id"] for one in last["truth"]] == [5]
    assert (last["width"], last["height"]) == (48, 64)
    assert last["image"].shape == (3, 129, 97)  # 96 columns, on sides of 16 n + 1
    assert np.allclose(last["picture"], 120 / 127.5 - 1)  # the first draw
    middle = last["image"][:, 64, 48]
    assert np.allclose(middle, (120 / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD), atol=1e-5)
    corner = last["to_original"] @ np.array([last["valid_area"][0], 0, 1])
    assert np.allclose(corner, [0, 0], atol=1e-4)


def test_what_a_dump_lacks_is_said(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    with pytest.raises(UserError, match="no rows of mode 'transfer'"):
        DumpedPeople(dump=str(folder), pictures={"real": "target", "transfer": "transfer.image"}, side=129)
    with pytest.raises(UserError, match="nothing named 'tarket' was saved"):
        DumpedPeople(dump=str(folder), pictures={"real": "tarket"}, side=129)[0]
    with pytest.raises(UserError, match=r"truth2.json: no such file"):
        DumpedPeople(dump=str(folder), pictures={"real": "target"}, truth="truth2", side=129)
    with pytest.raises(ValueError, match=r"where\.prio"):
        DumpedPeople(dump=str(folder), pictures={"prior": "prior.image"}, where={"prio": "x"}, side=129)


def test_a_kind_that_no_example_has_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_of(tmp_path)
    table = folder / "examples.csv"
    table.write_text(table.read_text().replace("people,1", "people,0"))
    pictures, where = {"real": "target", "other": "prior.image"}, {"other": "has_other_view"}
    data = DumpedPeople(dump=str(sealed(folder)), pictures=pictures, where=where, side=129)
    assert {data[index]["kind"] for index in range(len(data))} == {"real"}
    assert "other: left out: has_other_view holds for none of the 3 examples" in capsys.readouterr().out


def test_pictures_of_several_datasets_or_sizes_are_refused(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    write_png(folder / "inputs/2.target.image.png", np.zeros((64, 50, 3), np.uint8))
    data = DumpedPeople(dump=str(sealed(folder)), pictures={"real": "target"}, side=129)
    assert data[0]["width"] == 48
    with pytest.raises(UserError, match="pictures of 50 x 64 and 48 x 64 pixels; all must be of one size"):
        data[2]
    table = folder / "examples.csv"
    table.write_text(table.read_text().replace("2,people", "2,others"))
    with pytest.raises(UserError, match="examples of people, others; poses are compared for one dataset"):
        DumpedPeople(dump=str(sealed(folder)), pictures={"real": "target"}, side=129)
