"""Poses read in pictures against poses asked for: figures by hand, the dataset of a run's dump, and the loss."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dumps_by_hand import sealed
from safetensors.torch import save_file
from skeletons_by_hand import STAR

from figura.base.checksums import write_sums
from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.base.yaml12 import to_yaml
from figura.data.formats.skeletons import COCO
from figura.dump import Dump
from figura.recipe.schema import NetworkEntry
from figura.report.interfaces import Bootstrap, NotApplicableError
from models.pose.asked_pose import AskedPose, enlarged, joint_costs
from models.pose.consistency import PoseConsistency, PoseSheet, as_asked
from models.pose.dumped_people import DumpedPeople
from models.pose.pose_network import PoseNetwork
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


SIDE = 65


def network(**heads) -> PoseNetwork:
    torch.manual_seed(3)
    made = PoseNetwork(backbone={"name": "small"}, heads=heads or {"cif": {}}, skeleton=STAR)
    for name, buffer in made.named_buffers():
        if name.endswith("running_mean"):  # as after a training; large ones would silence the network
            buffer.normal_(0, 0.1)
    return made.eval()


def model_folder(folder, heads=None, kind="pose.PoseNetwork", **facts):
    """Write what a training of a pose network leaves."""
    folder.mkdir()
    made = network(**(heads or {}))
    save_file(made.state_dict(), folder / "reader.safetensors")
    entry = NetworkEntry(type=kind, backbone={"name": "small"}, heads=heads or {"cif": {}})
    content = {"networks": {"reader": entry.model_dump()}, "facts": {"side": SIDE, "skeleton": STAR} | facts}
    (folder / "recipe.yaml").write_text(to_yaml(content))
    write_sums(folder)
    return made, folder


def by_hand(logits, vectors, joints, place):
    """The formula for one picture, float64: (K, h, w), (K, 2, h, w), (K, 2)."""
    costs = []
    for logit, vector, (x, y) in zip(logits, vectors, joints, strict=True):
        total, distances, count = 0.0, 0.0, 0
        for row, column in np.ndindex(*logit.shape):
            if abs(x - column) < 2 and abs(y - row) < 2:
                count += 1
                total += math.log1p(math.exp(-logit[row, column]))
                distances += math.hypot(column + vector[0, row, column] - x, row + vector[1, row, column] - y)
            else:
                total += math.log1p(math.exp(logit[row, column]))
        costs.append((total + place * distances) / max(count, 1))
    return costs


def test_costs_of_joints_by_hand() -> None:
    random = np.random.default_rng(0)
    logits, vectors = random.normal(size=(2, 3, 6, 9)), random.normal(size=(2, 3, 2, 6, 9))
    joints = np.array([[[4.3, 2.8], [0, 0], [8.9, 5.2]], [[3, 3], [7.5, 1.5], [-40, 90]]])  # the last is outside
    expected = [by_hand(*one, 0.5) for one in zip(logits, vectors, joints, strict=True)]
    costs = joint_costs(torch.tensor(logits), torch.tensor(vectors), torch.tensor(joints), 0.5)
    assert np.allclose(costs.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("size", [(33, 33), (20, 33)])
def test_pictures_keep_their_corners(size) -> None:
    """In a picture whose values are its columns and rows, the place of each pixel can be read after resizing."""
    rows, columns = (torch.arange(n, dtype=torch.float64) for n in size)
    picture = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))[None]
    larger = enlarged(picture, SIDE, 16)[0].float()
    assert larger.shape[1:] == ((65, 65) if size == (33, 33) else (49, 65))
    height = 2 * (size[0] - 1) + 1
    assert torch.allclose(larger[0, :height, 0], torch.arange(height) / 2)
    assert torch.allclose(larger[1, 0], torch.arange(SIDE) / 2)
    assert (larger[:, height:] == 0).all()


@pytest.mark.parametrize("log_scales", ["shared", "vector"])
def test_the_loss_of_a_trained_network(tmp_path, log_scales) -> None:
    made, folder = model_folder(tmp_path / "pose", {"cif": {"log_scales": log_scales}, "caf": {}})
    pictures = torch.rand(3, 3, 33, 33) * 2 - 1
    joints = torch.rand(3, 3, 3) * 32
    joints[..., 2] = torch.tensor([[2, 2, 1], [0, 2, 1], [0, 1, 0]])
    loss = AskedPose(network=str(folder), place=0.25)(image=pictures, joints=joints)

    rgb = torch.nn.functional.interpolate((pictures + 1) / 2, (SIDE, SIDE), mode="bilinear", align_corners=True)
    mean, std = (torch.tensor(one).view(3, 1, 1) for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        raw = made((rgb - mean) / std)["cif"].double().numpy()
    assert raw.shape[-1] == 9  # cells of 8 pixels
    first = 1 if log_scales == "shared" else 0
    for place, seen in enumerate(([0, 1], [1], [])):
        cells = joints[place, :, :2].double().numpy() * 2 / 8
        costs = by_hand(raw[place, :, first], raw[place, :, first + 1 : first + 3], cells, 0.25)
        expected = np.mean([costs[joint] for joint in seen]) if seen else 0.0
        assert loss[place].item() == pytest.approx(expected, rel=1e-4)


def test_gradients_reach_the_picture_alone(tmp_path) -> None:
    """A picture that follows its gradient is read as asked; the network stays as it is, and is no part of the loss."""
    made, folder = model_folder(tmp_path / "pose")
    loss = AskedPose(network=str(folder))
    picture = torch.zeros(1, 3, 33, 33, requires_grad=True)
    joints = torch.tensor([[[16.0, 5, 2], [6, 20, 2], [27, 20, 2]]])
    optimizer = torch.optim.Adam([picture], lr=0.1)
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        value = loss(image=picture, joints=joints).sum()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.8 * values[0], values
    assert list(loss.parameters()) == list(loss.buffers()) == []
    assert list(loss.state_dict()) == []
    kept = loss._reader.network.state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in made.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": {"caf": {}}}, "no head named cif"),
        ({"kind": "vunet.VUNet"}, "one pose.PoseNetwork is needed"),
        ({"side": None}, "the side of its training data is not known"),
    ],
)
def test_folders_that_do_not_fit(tmp_path, change, message) -> None:
    _, folder = model_folder(tmp_path / "pose", **change)
    with pytest.raises(UserError, match=message):
        AskedPose(network=str(folder))(image=torch.zeros(1, 3, 9, 9), joints=torch.zeros(1, 3, 3))


def test_errors_say_what_to_do(tmp_path) -> None:
    images, joints = torch.zeros(1, 3, 9, 9), torch.zeros(1, 17, 3)
    with pytest.raises(UserError, match=r"holds no trained network; copy runs/pose/model"):
        AskedPose(network=str(tmp_path / "nothing"))(image=images, joints=joints)
    _, folder = model_folder(tmp_path / "pose")
    with pytest.raises(UserError, match=r"finds 3 joints \(tip, left_end, right_end\).*same joints"):
        AskedPose(network=str(folder))(image=images, joints=joints)
    (folder / "reader.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match="damaged"):
        AskedPose(network=str(folder))(image=images, joints=joints[:, :3])
