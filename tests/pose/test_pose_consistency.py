"""Poses read in pictures against poses asked for: figures by hand, and the dataset of a run's dump."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps_by_hand import sealed

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.data.formats.skeletons import COCO
from figura.dump import Dump
from figura.report.interfaces import Bootstrap, NotApplicableError
from models.pose.consistency import PoseConsistency, PoseSheet, as_asked
from models.pose.dumped_people import DumpedPeople
from models.pose.scenes import IMAGENET_MEAN, IMAGENET_STD

K = len(COCO.keypoints)
BOOTSTRAP = Bootstrap(50, 0.95, 7)
JOINTS = np.stack([np.linspace(10, 50, K), np.linspace(5, 60, K), np.full(K, 2.0)], axis=1)
BOX, AREA = [10.0, 5.0, 40.0, 55.0], 1000.0


def asked(image: int, joints: np.ndarray = JOINTS) -> dict[str, Any]:
    flat = joints.ravel().tolist()
    labelled = int((joints[:, 2] > 0).sum())
    return {
        "id": image, "image_id": image, "category_id": 1, "keypoints": flat, "num_keypoints": labelled, "bbox": BOX,
        "area": AREA, "iscrowd": 0,
    }  # fmt: skip


def read(image: int, moved: tuple[float, float] = (0, 0), score: float = 0.9) -> dict[str, Any]:
    joints = JOINTS.copy()
    joints[:, :2] += moved
    joints[:, 2] = 0.8
    x, y, w, h = BOX
    box = [x + moved[0], y + moved[1], w, h]
    return {"image_id": image, "category_id": 1, "keypoints": joints.ravel().tolist(), "bbox": box, "score": score}


def oks_by_hand(moved: tuple[float, float]) -> float:
    """OKS of a person with all joints moved: mean of exp(-d^2 / (2 s^2 k^2)), k = 2 sigma, s^2 = area."""
    k = 2 * np.asarray(COCO.sigmas, dtype=np.float64)
    return float(np.exp(-(moved[0] ** 2 + moved[1] ** 2) / (2 * AREA * k**2)).mean())


def dump_of(folder: Path, kinds: list[str], people: list[dict], truth: list[dict] | None) -> Dump:
    """A dump of two examples in each of these kinds; image ids count through all, from 1."""
    rows = ["mode,draw,index,dataset,kind,image_id,example,file.picture"]
    for number in range(2 * len(kinds)):
        kind, example = kinds[number // 2], number % 2
        write_png(folder / f"inputs/{number}.picture.image.png", np.full((64, 64, 3), 40 * number, np.uint8))
        rows.append(f"poses,0,{number},people,{kind},{number + 1},{10 + example},inputs/{number}.picture.image.png")
    (folder / "examples.csv").write_text("\n".join(rows) + "\n")
    (folder / "poses").mkdir()
    (folder / "poses/people.json").write_text(json.dumps(people))
    if truth is not None:
        (folder / "inputs/truth.json").write_text(json.dumps(truth))
    return Dump(sealed(folder))


def test_figures_are_those_of_a_calculation_by_hand(tmp_path: Path) -> None:
    # in kind "real" both exact; in "drawn" one person 4 px to the right, and none in the other picture
    people = [read(1), read(2), read(3, (4, 0)), read(3, (30, 0), 0.2)]
    dump = dump_of(tmp_path, ["real", "drawn"], people, [asked(number) for number in (1, 2, 3, 4)])
    real = PoseConsistency("poses", "real", "people", truth="truth")(dump, BOOTSTRAP)
    assert real["found"]["low"] == pytest.approx(0.342380, abs=1e-6)  # Wilson's for 2 of 2: 2 / (2 + 1.96^2)
    drawn = PoseConsistency("poses", "drawn", "people", truth="truth", within=(0.05, 0.1))(dump, BOOTSTRAP)
    assert real["oks"]["value"] == real["AP"]["value"] == real["found"]["value"] == 1
    assert drawn["oks"]["value"] == pytest.approx(oks_by_hand((4, 0)) / 2, abs=1e-9)
    assert (drawn["found"]["value"], drawn["pictures"]) == (0.5, 2)  # a score of 0.2 is as in noise
    # 4 px are .073 of 55: beyond .05, within .1, in one of two pictures
    assert (drawn["PCK_5"]["value"], drawn["PCK_10"]["value"]) == (0, 0.5)
    assert drawn["left_wrist"] == {"PCK_5": 0, "PCK_10": 0.5}


def test_ap_counts_people_who_were_not_asked_for(tmp_path: Path) -> None:
    alone = dump_of(tmp_path / "a", ["real"], [read(1), read(2)], [asked(1), asked(2)])
    crowd = dump_of(tmp_path / "b", ["real"], [read(1), read(2), read(1, (25, 20), 0.95)], [asked(1), asked(2)])
    score = PoseConsistency("poses", "real", "people", truth="truth")
    assert score(alone, BOOTSTRAP)["AP"]["value"] == 1
    assert score(crowd, BOOTSTRAP)["AP"]["value"] < 0.9


def test_joints_that_are_not_labelled_do_not_count(tmp_path: Path) -> None:
    half = JOINTS.copy()
    half[::2, 2] = 0
    wrong = read(1)
    joints = np.reshape(wrong["keypoints"], (-1, 3))
    joints[::2, :2] += 30
    wrong["keypoints"] = joints.ravel().tolist()
    dump = dump_of(tmp_path, ["real"], [wrong, read(2)], [asked(1, half), asked(2)])
    figures = PoseConsistency("poses", "real", "people", truth="truth")(dump, BOOTSTRAP)
    assert figures["oks"]["value"] == figures["PCK_5"]["value"] == 1


def test_the_reading_of_another_picture_is_the_reference(tmp_path: Path) -> None:
    people = [read(1), read(2, score=0.05), read(3, (3, 0)), read(4)]
    dump = dump_of(tmp_path, ["real", "drawn"], people, None)
    figures = PoseConsistency("poses", "drawn", "people", reference="real")(dump, BOOTSTRAP)
    k = 2 * np.asarray(COCO.sigmas, dtype=np.float64)
    area = as_asked(read(1), 0.3)["area"]
    assert area == BOX[2] * BOX[3] / 2
    assert figures["pictures"] == 1  # the second real picture shows nobody for sure
    assert figures["oks"]["value"] == pytest.approx(np.exp(-9 / (2 * area * k**2)).mean(), abs=1e-9)
    with pytest.raises(NotApplicableError, match="no picture has a pose"):
        PoseConsistency("poses", "drawn", "people", reference="real", least_score=0.99)(dump, BOOTSTRAP)


def test_the_sheet_shows_a_column_for_each_kind(tmp_path: Path) -> None:
    from figura.base.pictures import read_picture

    dump = dump_of(tmp_path / "dump", ["real", "drawn"], [read(1), read(3, (4, 0))], [asked(n) for n in (1, 2, 3, 4)])
    PoseSheet("poses", ["real", "drawn"], "picture", "people", truth="truth", count=2)(dump, tmp_path / "sheet.png")
    sheet = read_picture(tmp_path / "sheet.png")
    assert sheet.shape[1] == 2 * (192 + 2)
    assert sheet.shape[0] > 2 * 192


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
    (folder / "inputs/truth.json").write_text(json.dumps([asked(number) for number in range(3)]))
    return sealed(folder)


def test_examples_are_the_pictures_of_a_dump(tmp_path: Path) -> None:
    folder = run_of(tmp_path, draws=2)
    pictures = {"real": "target", "prior": "prior.image"}
    where = {"prior": "has_other_view"}
    data = DumpedPeople(dump=str(folder), pictures=pictures, truth="truth", where=where, side=129)
    assert [data[place]["kind"] for place in range(len(data))] == ["real"] * 3 + ["prior"] * 2
    assert [data[place]["example"] for place in range(len(data))] == [0, 1, 2, 0, 2]  # 1 has no other view
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
    assert {data[place]["kind"] for place in range(len(data))} == {"real"}
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bbox": None}, r"record 0 \(counted from 0\): bbox is None; a list of finite numbers is needed"),
        ({"image_id": 2}, r"record 1 \(counted from 0\): image 2 has another pose already"),
    ],
)
def test_poses_asked_for_are_checked(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    dump = dump_of(tmp_path, ["real"], [read(1)], [asked(1) | change, asked(2)])
    with pytest.raises(UserError, match=said):
        PoseConsistency("poses", "real", "people", truth="truth")(dump, BOOTSTRAP)


def test_intervals_take_the_pictures_of_a_person_together(tmp_path: Path) -> None:
    people = [read(1), read(2, (8, 0)), read(3), read(4, (8, 0))]
    kinds = ["real", "drawn"]
    dump = dump_of(tmp_path, kinds, people, [asked(number) for number in (1, 2, 3, 4)])
    alone = PoseConsistency("poses", "real", "people", truth="truth")(dump, BOOTSTRAP)["oks"]
    together = PoseConsistency("poses", "real", "people", truth="truth", groups="draw")(dump, BOOTSTRAP)["oks"]
    assert alone["low"] < alone["value"] < alone["high"]
    assert together["low"] == together["value"] == together["high"]  # one group alone cannot vary
