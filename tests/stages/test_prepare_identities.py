"""Datasets of persons with identities: Market-1501 and DeepFashion In-shop as published, poses, lists of pairs."""

import csv
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from prepared_files import content as bytes_of
from prepared_files import rows, write_entry, write_picture
from splits_by_hand import fraction

from figura.base.exit_status import run
from figura.formats.coco import KEYPOINTS
from models.people.pairs import PersonPairs
from stages.prepare import main

pytestmark = pytest.mark.usefixtures("project")

PREPARED = Path("data/prepared/mine")
write_portrait = partial(write_picture, size=(48, 24))
MARKET = {
    "bounding_box_train": ["0002_c1s1_000451_03", "0002_c2s3_000776_01", "0007_c1s1_001051_00", "0010_c3s1_008801_01"],
    "bounding_box_test": [
        "-1_c1s1_000401_03", "0000_c1s1_000151_01", "0000_c6s4_000152_02", "0001_c1s1_001051_01", "0003_c4s2_000152_02",
    ],
    "query": ["0001_c2s1_001976_00"],
}  # fmt: skip
FASHION = {
    "img/WOMEN/Dresses/id_00000002/02_1_front.jpg": ("id_00000002", "train"),
    "img/WOMEN/Dresses/id_00000002/02_2_side.jpg": ("id_00000002", "train"),
    "img/WOMEN/Dresses/id_00000002/04_1_front.jpg": ("id_00000002", "train"),
    "img/MEN/Denim/id_00000080/01_7_additional.jpg": ("id_00000080", "train"),
    "img/WOMEN/Blouses_Shirts/id_00000001/02_1_front.jpg": ("id_00000001", "query"),
    "img/WOMEN/Blouses_Shirts/id_00000001/02_3_back.jpg": ("id_00000001", "gallery"),
}


def write_params(kind="market1501", max_rejected=0.0, source="raw", **section):
    entry = {"kind": kind, "source": source, "seed": 7, "max_rejected": max_rejected, kind: section}
    write_entry("mine", entry)


def prepare_with(*arguments, **section):
    write_params(*arguments, **section)
    assert run(main, ["mine"]) == 0


def write_market():
    for folder, names in MARKET.items():
        for number, name in enumerate(names):
            write_portrait(f"raw/{folder}/{name}.jpg", number)
        Path(f"raw/{folder}/Thumbs.db").touch()


def write_fashion(images="Img/img", listing="Eval/list_eval_partition.txt"):
    for number, name in enumerate(FASHION):
        write_portrait(Path("raw", images, name.removeprefix("img/")), number)
    lines = [f"{name}   {item} {status}" for name, (item, status) in FASHION.items()]
    path = Path("raw", listing)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([str(len(lines)), "image_name item_id evaluation_status", *lines]) + "\n")


def load(split):
    return json.loads((PREPARED / f"{split}.json").read_text())


def persons(split):
    """Return file name without the split -> annotation."""
    content = load(split)
    names = {one["id"]: one["file_name"].removeprefix(f"{split}/") for one in content["images"]}
    return {names[one["image_id"]]: one for one in content["annotations"]}


# --- readers ---


def test_market1501(capsys):
    write_market()
    prepare_with("market1501", folders={"train": ["bounding_box_train"], "validation": ["bounding_box_test", "query"]})
    train = persons("train")
    assert {name: one["person_id"] for name, one in train.items()} == {
        "bounding_box_train/0002_c1s1_000451_03.jpg": 2,
        "bounding_box_train/0002_c2s3_000776_01.jpg": 2,
        "bounding_box_train/0007_c1s1_001051_00.jpg": 7,
        "bounding_box_train/0010_c3s1_008801_01.jpg": 10,
    }
    one = train["bounding_box_train/0002_c2s3_000776_01.jpg"]
    assert (one["camera"], one["sequence"], one["frame"]) == (2, 3, 776)
    assert (one["bbox"], one["area"], one["iscrowd"]) == ([0, 0, 24, 48], 24 * 48, 0)
    assert {name: one["person_id"] for name, one in persons("validation").items()} == {
        "bounding_box_test/0001_c1s1_001051_01.jpg": 1,
        "bounding_box_test/0003_c4s2_000152_02.jpg": 3,
        "query/0001_c2s1_001976_00.jpg": 1,
    }
    path = "bounding_box_train/0010_c3s1_008801_01.jpg"
    assert bytes_of(PREPARED / "images/train")[path] == Path("raw", path).read_bytes()
    assert "left out: 2 distractors (0000), 3 files of .db, 1 junk (-1)" in capsys.readouterr().out
    annotated = json.loads((PREPARED / "facts.json").read_text())["annotated"]
    counts = {split: (one["identities"], one["identities_seen_twice"]) for split, one in annotated.items()}
    assert counts == {"train": (3, 1), "validation": (2, 1)}
    assert not list(PREPARED.glob(".*"))


def test_market1501_by_shares_of_persons():
    for number in range(1, 41):
        for frame in range(3):
            write_portrait(f"raw/bounding_box_train/{number:04}_c1s1_{frame:06}_00.jpg", number)
    for folder in ("bounding_box_test", "query"):
        write_portrait(f"raw/{folder}/1400_c1s1_000001_00.jpg", 0)
    prepare_with("market1501", shares={"validation": 0.3})
    drawn = {one["person_id"] for one in persons("validation").values()}
    assert drawn == {number for number in range(1, 41) if fraction(f"person {number}") < 0.3}
    assert len(persons("validation")) == 3 * len(drawn)
    assert {one["person_id"] for one in persons("train").values()} == set(range(1, 41)) - drawn
    assert [one["person_id"] for one in persons("test").values()] == [1400, 1400]


def test_persons_of_train_in_another_split_are_told(capsys):
    write_market()
    write_portrait("raw/query/0002_c4s1_000001_00.jpg", 0)
    prepare_with("market1501", folders={"train": ["bounding_box_train"], "validation": ["bounding_box_test", "query"]})
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "in train, too" in line)
    assert line.startswith("warning: 1 persons of validation are in train, too, such as query/0002_c4s1_000001_00.jpg")


def test_other_names_are_rejected_and_listed(capsys):
    write_market()
    write_portrait("raw/bounding_box_train/photo.jpg", 0)
    write_params("market1501", shares={"validation": 0.5})
    assert run(main, ["mine"]) == 1
    assert "1 name of another form; the first: " in capsys.readouterr().err
    (listed,) = rows(Path("data/prepared/mine.rejected.csv"))
    assert (listed["file"], listed["id"], listed["reason"]) == (
        "bounding_box_train",
        "photo.jpg",
        "name of another form",
    )
    write_params("market1501", shares={"validation": 0.5}, max_rejected=0.2)
    capsys.readouterr()
    assert run(main, ["mine"]) == 0
    train = json.loads((PREPARED / "statistics.json").read_text())["train"]
    assert train["rejected"] == {"name of another form": 1}
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("train: "))
    assert "1 records rejected (1 " in line


@pytest.mark.parametrize("identity", ["variant", "item"])
def test_deepfashion(identity):
    write_fashion()
    prepare_with(
        "deepfashion", identity=identity, statuses={"train": ["train"], "validation": ["query"], "test": ["gallery"]}
    )
    expected = {
        "WOMEN/Dresses/id_00000002/02_1_front.jpg": {"variant": 202, "item": 2},
        "WOMEN/Dresses/id_00000002/02_2_side.jpg": {"variant": 202, "item": 2},
        "WOMEN/Dresses/id_00000002/04_1_front.jpg": {"variant": 204, "item": 2},
        "MEN/Denim/id_00000080/01_7_additional.jpg": {"variant": 8001, "item": 80},
    }
    train = persons("train")
    assert {name: one["person_id"] for name, one in train.items()} == {
        name: one[identity] for name, one in expected.items()
    }
    one = train["WOMEN/Dresses/id_00000002/04_1_front.jpg"]
    assert (one["item"], one["variant"], one["view"]) == (2, 4, "front")
    assert list(persons("validation")) == ["WOMEN/Blouses_Shirts/id_00000001/02_1_front.jpg"]
    assert list(persons("test")) == ["WOMEN/Blouses_Shirts/id_00000001/02_3_back.jpg"]


def test_variants_of_an_item_stay_together():
    write_fashion(images="img", listing="list_eval_partition.txt")
    write_params("deepfashion", images="img", partition="list_eval_partition.txt", shares={"validation": 0.5})
    assert (fraction("person 80") < 0.5) != (fraction("person 2") < 0.5)
    assert run(main, ["mine"]) == 0
    items = {split: {one["item"] for one in persons(split).values()} for split in ("train", "validation", "test")}
    assert items == (
        {"train": {2}, "validation": {80}} if fraction("person 80") < 0.5 else {"train": {80}, "validation": {2}}
    ) | {"test": {1}}


def test_a_status_that_no_split_takes_is_counted(capsys):
    write_fashion()
    path = Path("raw/Eval/list_eval_partition.txt")  # the one of the gallery has another form, too
    path.write_text(path.read_text().replace("02_3_back.jpg   id_00000001", "02_3_back.jpg   id_00000002"))
    prepare_with("deepfashion", statuses={"train": ["train"], "validation": ["query"]})
    assert "left out: 1 status gallery" in capsys.readouterr().out


# --- poses ---


def predicted(score, x, confidence=0.9):
    """Return a record of `figura predict`: shoulders, hips and knees from `x` on."""
    joints = np.zeros((17, 3))
    for joint, (dx, y) in {5: (0, 10), 6: (4, 10), 11: (0, 25), 12: (4, 25), 13: (0, 35), 14: (4, 35)}.items():
        joints[joint] = x + dx, y, confidence
    return {
        "image_id": 1, "category_id": 1, "score": score, "bbox": [x, 10, 4, 25], "keypoints": joints.ravel().tolist(),
    }  # fmt: skip


def test_predicted_poses(capsys):
    write_market()
    poses = Path("raw/poses")
    (poses / "bounding_box_train").mkdir(parents=True)
    unsure = predicted(0.9, 8)
    unsure["keypoints"][5 * 3 + 2] = 0.05
    unsure["keypoints"][6 * 3] = 24.5  # beside the picture
    first = poses / "bounding_box_train/0002_c1s1_000451_03.people.json"
    first.write_text(json.dumps([predicted(0.4, 2), unsure]))
    (poses / "0002_c2s3_000776_01.people.json").write_text(json.dumps([predicted(0.4, 2)]))
    (poses / "0001_c1s1_001051_01.people.json").write_text("[]")
    prepare_with(
        "market1501", poses="poses", min_confidence=0.1,
        folders={"train": ["bounding_box_train"], "validation": ["bounding_box_test"]},
    )  # fmt: skip
    assert "poses: poses has 3 of 6 pictures" in capsys.readouterr().out
    train = persons("train")
    joints = np.array(train["bounding_box_train/0002_c1s1_000451_03.jpg"]["keypoints"]).reshape(17, 3)
    expected = np.zeros((17, 3))
    for joint, place in {11: (8, 25, 2), 12: (12, 25, 2), 13: (8, 35, 2), 14: (12, 35, 2)}.items():
        expected[joint] = place
    np.testing.assert_array_equal(joints, expected)
    assert train["bounding_box_train/0002_c1s1_000451_03.jpg"]["num_keypoints"] == 4
    assert not any(train["bounding_box_train/0007_c1s1_001051_00.jpg"].get("keypoints", []))
    dataset = PersonPairs(
        root=str(PREPARED), split="train", min_keypoints=4, min_height=1, appearance="other_view", background=None,
        image_size=16,
    )  # fmt: skip
    example = dataset.example(0, np.random.default_rng(0))
    assert (len(dataset), example["person_id"]) == (2, 2)
    assert example["annotation_id"] != example["appearance_id"]


def test_predicted_poses_of_own_joints(capsys):
    write_market()
    Path("raw/poses").mkdir()
    for folder in ("bounding_box_train", "query"):
        for name in MARKET[folder]:
            one = {"score": 0.5, "bbox": [2, 2, 9, 9], "keypoints": [2, 2, 0.9, 11, 11, 0.9, 2, 11, 0.2]}
            Path(f"raw/poses/{name}.people.json").write_text(json.dumps([one]))
    section = {"folders": {"train": ["bounding_box_train"], "validation": ["query"]}, "poses": "poses"}
    write_params("market1501", **section)
    assert run(main, ["mine"]) == 1
    error = capsys.readouterr().err
    assert "figura's people have 3 joints without names; write 3 names to data/params.yaml: datasets.mine.mark" in error
    prepare_with("market1501", **section, min_confidence=0.5, keypoints={"keypoints": ["head", "left", "right"]})
    assert persons("validation")["query/0001_c2s1_001976_00.jpg"]["keypoints"] == [2, 2, 2, 11, 11, 2, 0, 0, 0]
    assert load("train")["categories"][0]["keypoints"] == ["head", "left", "right"]
    assert "datasets.mine.market1501.keypoints.sigmas: person has none" in capsys.readouterr().out


FRONT = "id_00000002/02_1_front.jpg"


def write_annotated_poses(names, size=(24, 48)):
    """Write a COCO file with poses of pictures: of two persons the larger counts."""
    keypoints = [5, 6, 2] * 16 + [0, 0, 0]
    images = [
        {"id": 70 + number, "file_name": name, "width": size[0], "height": size[1]} for number, name in enumerate(names)
    ]
    small = {"bbox": [1, 1, 3, 3], "keypoints": [2, 2, 1] * 17, "num_keypoints": 17}
    large = {"bbox": [1, 1, 9, 9], "keypoints": keypoints, "num_keypoints": 16, "segmentation": [[1, 1, 9, 1, 9, 9]]}
    records = [
        {"image_id": one["id"], "category_id": 3, "id": 2 * one["id"] + extra, "area": 9, "iscrowd": 0, **person}
        for one in images
        for extra, person in enumerate((small, large))
    ]
    document = {
        "images": images,
        "annotations": records,
        "categories": [{"id": 3, "name": "person", "keypoints": list(KEYPOINTS), "skeleton": [[1, 2]]}],
    }
    Path("raw/poses.json").write_text(json.dumps(document))


def test_annotated_poses():
    write_fashion()
    write_annotated_poses([FRONT, "my/img/MEN/Denim/id_00000080/01_7_additional.jpg"])
    prepare_with("deepfashion", poses="poses.json", statuses={"train": ["train"], "validation": ["query", "gallery"]})
    train = persons("train")
    one = train["WOMEN/Dresses/id_00000002/02_1_front.jpg"]
    assert one["keypoints"] == [5, 6, 2] * 16 + [0, 0, 0]
    assert (one["num_keypoints"], one["segmentation"]) == (16, [[1, 1, 9, 1, 9, 9]])
    assert (one["bbox"], one["person_id"], one["category_id"]) == ([0, 0, 24, 48], 202, 1)
    assert train["MEN/Denim/id_00000080/01_7_additional.jpg"]["num_keypoints"] == 16
    assert not any(train["WOMEN/Dresses/id_00000002/02_2_side.jpg"].get("keypoints", []))


@pytest.mark.parametrize("category", ["3", 3.0, None])
def test_annotated_poses_whose_category_is_a_text_or_missing(category):
    write_fashion()
    write_annotated_poses([FRONT])
    document = json.loads(Path("raw/poses.json").read_text())
    for one in document["annotations"]:
        one["category_id"] = category
    Path("raw/poses.json").write_text(json.dumps(document))
    prepare_with("deepfashion", poses="poses.json", statuses={"train": ["train"], "validation": ["query", "gallery"]})
    assert persons("train")["WOMEN/Dresses/id_00000002/02_1_front.jpg"]["num_keypoints"] == 16


@pytest.mark.parametrize("named", [False, True])
def test_annotated_poses_of_own_joints(named, capsys):
    """The settings' names serve a file without names, and correct one with a faulty skeleton."""
    write_fashion()
    write_annotated_poses([FRONT])
    path = Path("raw/poses.json")
    document = json.loads(path.read_text())
    names = [f"joint {number}" for number in range(17)]
    document["categories"] = [
        {"id": 3, "name": "doll"} | ({"keypoints": names, "skeleton": [[0, 17]]} if named else {})
    ]
    path.write_text(json.dumps(document))
    section = {"poses": "poses.json", "statuses": {"train": ["train"], "validation": ["query", "gallery"]}}
    write_params("deepfashion", **section)
    assert run(main, ["mine"]) == 1
    error = capsys.readouterr().err
    assert f"{path}: categories: " in error
    assert "data/params.yaml: datasets.mine.deepfashion.keypoints" in error
    tail = [names[index : index + 2] for index in range(16)]
    settings = {"connections": tail} if named else {"keypoints": names}
    prepare_with("deepfashion", **section, keypoints=settings)
    assert load("train")["categories"][0]["keypoints"] == names
    assert persons("train")["WOMEN/Dresses/id_00000002/02_1_front.jpg"]["num_keypoints"] == 16


@pytest.mark.parametrize(
    ("text", "number", "reason"),
    [
        ("{", "", "file cannot be read"),
        ("3", "", "file without a list of people"),
        ("[" * 100000, "", "file cannot be read"),
        ("[3]", ": 0", "not an object"),
    ],
)
def test_faulty_predictions_are_listed_and_the_rest_is_prepared(text, number, reason):
    """Boxes do not matter, as people fill their pictures; keypoints that are none cost themselves."""
    write_market()
    odd = [{"bbox": [1, 2, 3, 1e9], "keypoints": [1], "score": True}]
    others = dict(zip(MARKET["bounding_box_train"][1:], ([predicted(0.5, 4)], odd, [predicted(0.5, 6)]), strict=True))
    Path("raw/poses").mkdir()
    for name, content in {MARKET["bounding_box_train"][0]: text, **others}.items():
        Path(f"raw/poses/{name}.people.json").write_text(content if content is text else json.dumps(content))
    prepare_with("market1501", max_rejected=0.1, poses="poses", shares={"validation": 0.5})
    (row,) = rows(PREPARED / "rejected.csv")
    assert (row["file"], row["kind"], row["id"]) == ("poses", "pose", f"0002_c1s1_000451_03{number}")
    assert row["reason"].startswith(reason)
    assert len(row["detail"]) < 400


# --- lists of pairs ---


def write_pairs(*pairs, header="from,to"):
    Path("raw/pairs.csv").write_text("\n".join([header, *pairs]) + "\n")


def test_a_published_list_of_pairs(capsys):
    """The names of PATN's lists are paths in one word; a plain path and its end will do too."""
    write_fashion()
    write_pairs(
        "fashionWOMENDressesid0000000202_1front.jpg,fashionWOMENDressesid0000000202_2side.jpg",
        "img/WOMEN/Dresses/id_00000002/02_2_side.jpg,id_00000002/04_1_front.jpg",
        "fashionWOMENDressesid0000009902_1front.jpg,fashionWOMENDressesid0000000202_2side.jpg",
    )
    prepare_with(
        "deepfashion", max_rejected=0.1, pairs={"train": "pairs.csv"},
        statuses={"train": ["train"], "validation": ["query", "gallery"]},
    )  # fmt: skip
    ids = {name.partition("/id_")[2]: one["id"] for name, one in persons("train").items()}
    front, side, other = (ids[f"00000002/{name}.jpg"] for name in ("02_1_front", "02_2_side", "04_1_front"))
    with (PREPARED / "train.pairs.csv").open(newline="") as file:
        listed = list(csv.reader(file))
    assert listed == [["appearance_id", "annotation_id"], [str(front), str(side)], [str(side), str(other)]]
    assert [(row["file"], row["kind"], row["id"]) for row in rows(PREPARED / "rejected.csv")] == [
        ("pairs.csv", "pair", "row 4")
    ]
    printed = capsys.readouterr().out
    assert "train: 2 pairs of pairs.csv, 1 rejected" in printed
    assert "train: 4 images, 4 persons (0 with joints), 0 crowd regions, 0 other objects, 1 records rejected" in printed
    train = json.loads((PREPARED / "statistics.json").read_text())["train"]
    assert train["rejected"] == {"image of the pair is not there": 1}


def test_pairs_of_people_follow_the_list():
    """From the folders of Market-1501, predicted poses and a published list to examples for VUNet."""
    write_market()
    Path("raw/poses").mkdir()
    names = ["0001_c1s1_001051_01", "0001_c2s1_001976_00", "0003_c4s2_000152_02"]
    for name in names:
        Path(f"raw/poses/{name}.people.json").write_text(json.dumps([predicted(0.5, 4)]))
    write_pairs(f"{names[0]}.jpg,{names[1]}.jpg", f"{names[1]}.jpg,{names[0]}.jpg")
    prepare_with("market1501", shares={"validation": 0.5}, poses="poses", pairs={"test": "pairs.csv"})
    dataset = PersonPairs(
        root=str(PREPARED), split="test", min_keypoints=4, min_height=1, appearance="pairs", background=None,
        image_size=16,
    )  # fmt: skip
    ids = {Path(name).stem: one["id"] for name, one in persons("test").items()}
    examples = [dataset.example(index, np.random.default_rng(0)) for index in range(len(dataset))]
    listed = [(one["appearance_id"], one["annotation_id"], one["person_id"]) for one in examples]
    assert sorted(listed) == sorted([(ids[names[0]], ids[names[1]], 1), (ids[names[1]], ids[names[0]], 1)])


def test_a_name_of_several_pictures_is_rejected():
    write_fashion()
    write_pairs("02_1_front.jpg,02_2_side.jpg", "04_1_front.jpg,02_2_side.jpg")
    prepare_with(
        "deepfashion", max_rejected=0.5, pairs={"train": "pairs.csv"},
        statuses={"train": ["train", "query"], "validation": ["gallery"]},
    )  # fmt: skip
    assert [row["reason"] for row in rows(PREPARED / "rejected.csv")] == ["several images have this name"]


# --- what is refused ---

SHARES = {"shares": {"validation": 0.5}}
POSES = SHARES | {"poses": "poses.json"}
PAIRS = SHARES | {"pairs": {"test": "pairs.csv"}}
PARTITION = Path("raw/Eval/list_eval_partition.txt")
NO_POSES = '{"images": [], "annotations": [], "categories": []}'


def write_listing(count, name, status):
    PARTITION.write_text(f"{count}\nimage_name item_id evaluation_status\n{name} id_00000001 {status}\n")


def write_one_prediction():
    Path("raw/poses").mkdir()
    Path("raw/poses/02_1_front.people.json").write_text(json.dumps([predicted(0.5, 2)]))


@pytest.mark.parametrize(
    ("section", "write", "message"),
    [
        (SHARES, lambda: PARTITION.write_text(""), "the first row is '', and 0 rows follow the second"),
        (SHARES, lambda: write_listing("2", "img/a/id_00000001/01.jpg", "train"), "the first row is '2', and 1 rows"),
        (SHARES, lambda: write_listing("1", "img/a.jpg", "val"), "row 3: found 'img/a.jpg id_00000001 val'"),
        (POSES | {"min_confidence": 0.3}, lambda: write_annotated_poses([FRONT]), "found 0.3; joints of poses.json, a"),
        (POSES, lambda: write_annotated_poses(["elsewhere.jpg"]), "nothing in poses.json belongs to any picture"),
        (POSES, lambda: write_annotated_poses([FRONT], (8, 9)), "02_1_front.jpg is 8 x 9 pixels there"),
        (POSES, None, "deepfashion.poses: no "),
        (POSES, lambda: Path("raw/poses.json").write_text(NO_POSES), "none has key"),
        (SHARES | {"poses": "poses"}, write_one_prediction, "two names for one picture: "),
        (PAIRS, lambda: write_pairs("x,y", header="a,b"), "the columns are 'a, b'; needed are 'from' and 'to'"),
        (PAIRS, lambda: write_pairs("0001_c1s1_001051_01.jpg"), "has no pair of images of this split; image of the"),
    ],
)
def test_what_does_not_fit_is_one_error(section, write, message, capsys):
    write_market()
    write_fashion()
    if write:
        write()
    write_params("market1501" if section is PAIRS else "deepfashion", **section)
    assert run(main, ["mine"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
