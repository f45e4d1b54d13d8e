"""Annotations and predictions of other tools as annotations and poses of a dataset."""

import contextlib
import io
import json
from pathlib import Path

import pytest
from PIL import Image
from prepared_files import rows, write_entry, write_picture

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.formats.coco import FLIP, KEYPOINTS
from figura.formats.exports import open_export
from figura.formats.keypoint_sets import SETS
from figura.formats.yolo import open_yolo, yolo_file
from figura.preparation.datasets import read_dataset
from figura.preparation.picture_names import PictureNames
from figura.preparation.prepare import prepare
from stages.prepare import main

pytestmark = pytest.mark.usefixtures("project")

PREPARED = Path("data/prepared/mine")
SIZE = (48, 32)  # height, width of the pictures


def write_params(max_rejected=0.0, **section):
    write_entry("mine", {"kind": "coco", "source": "raw", "seed": 7, "max_rejected": max_rejected, "coco": section})


def prepare_with(max_rejected=0.0, **section):
    write_params(max_rejected, **section)
    assert run(main, ["mine"]) == 0


def write(path, content):
    Path("raw", path).parent.mkdir(parents=True, exist_ok=True)
    Path("raw", path).write_text(content if isinstance(content, str) else json.dumps(content))


def write_pictures(*names, folder="images"):
    for number, name in enumerate(names):
        write_picture(f"raw/{folder}/{name}", number, SIZE)


def load(split, folder=PREPARED):
    return json.loads((folder / f"{split}.json").read_text())


def converted(path, stated=(), least=0.0):
    """Return the annotations by image, the categories, and the printed lines."""
    joints = {"keypoints": {"keypoints": list(stated)}} if stated else {}
    write_params(annotations={"test": path}, min_confidence=least, **joints)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        prepare(read_dataset("mine"), "mine", Path())
    prepared = load("test")
    names = {one["id"]: one["file_name"].removeprefix("test/") for one in prepared["images"]}
    people: dict[str, list] = {name: [] for name in names.values()}
    for one in prepared["annotations"]:
        people[names[one["image_id"]]].append(one)
    return people, prepared["categories"], said.getvalue()


def flat(count, first=(4, 5), confidence=0.5):
    """Return joints one pixel apart: x, y, confidence."""
    return [number for joint in range(count) for number in (first[0] + joint % 20, first[1] + joint // 20, confidence)]


# --- YOLO ---

POSE = """\
path: ../somewhere/else
train: images/train
val: images/val
kpt_shape: [3, 3]
flip_idx: [0, 2, 1]
names:
  0: dog
"""


def write_yolo(data=POSE, **labels):
    write_pictures("a.png", "b.png", folder="images/train")
    write_pictures("c.png", folder="images/val")
    write("data.yaml", data)
    for name, text in ({"train/a": "0 0.5 0.5 0.5 0.25 0.25 0.5 2 0.5 0.5 1 0 0 0\n", "val/c": ""} | labels).items():
        write(f"labels/{name}.txt", text)


def prepare_yolo(data=POSE, max_rejected=0.0, **labels):
    write_yolo(data, **labels)
    prepare_with(max_rejected, annotations="data.yaml")


@pytest.mark.parametrize("annotations", ["data.yaml", "."])
def test_a_yolo_pose_folder(annotations, capsys):
    write_yolo()
    prepare_with(annotations=annotations)
    train = load("train")
    assert [one["file_name"] for one in train["images"]] == ["train/images/train/a.png", "train/images/train/b.png"]
    (dog,) = train["annotations"]
    # 32 x 48: the centre is (16, 24), the size 16 x 12; the joints lie at (8, 24) and (16, 24)
    assert dog["bbox"] == [8, 18, 16, 12]
    assert dog["keypoints"] == [8, 24, 2, 16, 24, 1, 0, 0, 0]
    assert train["categories"][0]["keypoints"] == ["joint_1", "joint_2", "joint_3"]
    assert json.loads((PREPARED / "facts.json").read_text())["skeleton"]["flip"] == {"joint_2": "joint_3"}
    validation = load("validation")
    assert [one["file_name"] for one in validation["images"]] == ["validation/images/val/c.png"]
    assert validation["annotations"] == []  # its label is empty: nobody is there
    assert not {one["id"] for one in train["images"]} & {one["id"] for one in validation["images"]}
    assert "keypoints: the 3 joints of data.yaml have no names" in capsys.readouterr().out


def test_names_and_mirrored_joints_of_yolo(capsys):
    numbers = " ".join(f"{0.2 + joint / 50} 0.5 2" for joint in range(17))
    data = POSE.replace("[3, 3]", "[17, 3]").replace("[0, 2, 1]", str(list(FLIP))).replace("dog", "person")
    prepare_yolo(data, **{"train/a": f"0 0.5 0.5 0.8 0.25 {numbers}\n"})
    assert load("train")["categories"][0]["keypoints"] == list(KEYPOINTS)
    write("data.yaml", data.replace(str(list(FLIP)), str(list(range(17)))))
    assert run(main, ["mine"]) == 0
    assert load("train")["categories"][0]["keypoints"][0] == "joint_1"  # mirrored otherwise: not COCO's joints
    write("data.yaml", "".join(line for line in data.splitlines(True) if not line.startswith("flip_idx")))
    assert run(main, ["mine"]) == 0
    assert load("train")["categories"][0]["keypoints"] == list(KEYPOINTS)
    assert "the 17 joints of data.yaml are taken for those of coco" in capsys.readouterr().out
    prepare_with(annotations="data.yaml", keypoints="posetrack18")
    assert load("train")["categories"][0]["keypoints"] == list(SETS["posetrack18"].keypoints)


def test_boxes_and_polygons_of_yolo():
    data = "train: ../train/images\nval: ../valid/images\nnc: 2\nnames: ['cat', 'dog']\n"  # as Roboflow writes it
    for folder, name in {"train": "a.png", "valid": "b.png"}.items():
        write_pictures(name, folder=f"{folder}/images")
    write("data.yaml", data)
    write("train/labels/a.txt", "1 0.5 0.5 0.5 0.5\n0 0.25 0.25 0.75 0.25 0.75 0.75\n")
    write("valid/labels/b.txt", "1 0.5 0.5 0.5 0.5 0.9\n")
    prepare_with(annotations="data.yaml")
    dog, cat = load("train")["annotations"]
    assert (dog["category_id"], dog["bbox"]) == (2, [8, 12, 16, 24])
    assert (cat["category_id"], cat["bbox"], cat["segmentation"]) == (1, [8, 12, 16, 24], [[8, 12, 24, 12, 24, 36]])
    assert len(load("validation")["annotations"]) == 1


@pytest.mark.parametrize("row", ["0 0.5 0.5 0.5 0.25 0.9 3", "0 0.5 0.5 0.5 0.25 3"])
def test_boxes_of_tracks_of_yolo(row):
    """Ultralytics' `track` writes the number of the track behind the box and its confidence."""
    prepare_yolo("train: images/train\nval: images/val\nnames: [dog]\n", **{"train/a": f"{row}\n"})
    (dog,) = load("train")["annotations"]
    assert dog["bbox"] == [8, 18, 16, 12]
    assert not dog.get("segmentation")


def test_poses_of_yolo_without_kpt_shape_are_no_polygons():
    """Nor is a polygon a pose that has a corner of the picture."""
    row = f"0 0.5 0.5 0.5 0.25{' 0.25 0.5 2 0 0 0' * 2}\n0 0.5 0.5 0.5 0.25 0 0 1 0.5 0.5 1\n"
    prepare_yolo("train: images/train\nval: images/val\nnames: [dog]\n", **{"train/a": row}, max_rejected=0.5)
    (refused,) = rows(PREPARED / "rejected.csv")
    assert (refused["reason"], refused["detail"]) == ("joints, and data.yaml has no kpt_shape", "kpt_shape: [4, 3]")
    (polygon,) = load("train")["annotations"]
    assert len(polygon["segmentation"][0]) == 10


def test_a_pose_with_confidence_and_track_of_yolo():
    prepare_yolo(**{"train/a": "0 0.5 0.5 0.5 0.25 0.25 0.5 2 0.5 0.5 1 nan nan 0 0.9 7\n", "train/._a": "\0\n"})
    assert load("train")["annotations"][0]["keypoints"] == [8, 24, 2, 16, 24, 1, 0, 0, 0]


def test_pictures_that_share_a_label_of_yolo_are_told(capsys):
    write_yolo()
    write_pictures("a.jpg", folder="images/train")
    prepare_with(annotations="data.yaml")
    line = "1 pictures of train share the label of another, such as images/train/a.jpg and images/train/a.png"
    assert f"warning: data.yaml: {line}" in capsys.readouterr().out


def test_a_picture_in_two_splits_of_yolo_is_told(capsys):
    prepare_yolo(POSE.replace("images/val", "images/train"))
    assert "warning: data.yaml: 2 pictures of validation are in another split, too" in capsys.readouterr().out


def test_labels_of_yolo_without_a_picture_are_rejected():
    write_yolo(**{"train/gone": "0 0.5 0.5 0.5 0.25 0.25 0.5 2 0.5 0.5 1 0 0 0\n", "train/classes": "dog\n"})
    prepare_with(annotations="data.yaml", max_rejected=0.5)
    (row,) = rows(PREPARED / "rejected.csv")
    assert (row["id"], row["reason"]) == ("labels/train/gone.txt", "label without a picture")


def test_yolo_as_windows_writes_it():
    write_yolo(POSE.replace("/", "\\").replace("\n", "\r\n"), **{
        "train/a": "\ufeff0 0.5 0.5 0.5 0.25 0.25 0.5 2 0.5 0.5 1 0 0 0\r\n"
    })  # fmt: skip
    prepare_with(annotations="data.yaml")
    assert load("train")["annotations"][0]["bbox"] == [8, 18, 16, 12]
    write("data.yaml", POSE.replace("images/train", "train.txt"))
    write("train.txt", "\ufeffimages\\train\\a.png\r\n")
    assert run(main, ["mine"]) == 0
    assert len(load("train")["annotations"]) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  0: dog", '  "0": dog'),
        ("train: images/train\nval:", "Train: images/train\nValidation:"),  # CVAT's subsets
        ("images/", "/content/my set/images/"),  # labelme2yolo, notebooks
        ("images/", "C:\\Users\\me\\set\\images\\"),
    ],
)
def test_data_yaml_of_other_tools_and_machines(old, new):
    prepare_yolo(POSE.replace(old, new))
    assert [len(load("train")[section]) for section in ("images", "annotations")] == [2, 1]
    assert [len(load("validation")[section]) for section in ("images", "annotations")] == [1, 0]


def test_classes_of_yolo_called_yes_and_no():
    prepare_yolo("train: images/train\nval: images/val\nnames: [yes, no]\n", **{"train/a": "1 0.5 0.5 0.5 0.25\n"})
    assert [one["name"] for one in load("train")["categories"]] == ["yes", "no"]


def test_labels_of_yolo_whose_accents_macos_writes_apart(capsys):
    write_yolo()
    for before, after in {"images/train/a.png": "a\u0308.png", "labels/train/a.txt": "\xe4.txt"}.items():
        Path("raw", before).rename(Path("raw", before).with_name(after))
    prepare_with(annotations="data.yaml")
    assert len(load("train")["annotations"]) == 1
    assert "1 of 2 pictures of train have no label file" in capsys.readouterr().out


def test_a_picture_listed_twice_by_yolo_has_its_people_once():
    write_yolo(POSE.replace("images/train", "train.txt"))
    write("train.txt", "images/train/a.png\n./images/train/a.png\n")
    prepare_with(annotations="data.yaml")
    assert len(load("train")["annotations"]) == 1


def test_pictures_listed_by_yolo_by_other_paths_or_gone():
    write_yolo(POSE.replace("images/train", "train.txt"))
    write("train.txt", "data/images/train/a.png\n/home/me/set/images/train/b.png\n../gone/c.png\n")  # CVAT, Darknet
    prepare_with(0.5, annotations="data.yaml")
    assert [len(load("train")[section]) for section in ("images", "annotations")] == [2, 1]
    assert [row["reason"] for row in rows(PREPARED / "rejected.csv")] == ["image file missing"]


def test_a_data_yaml_of_another_name():
    write_yolo()
    Path("raw/data.yaml").rename("raw/dogs-pose.yaml")
    write("train.yaml", "lr: 0.1\nnames: [a]\n")
    assert yolo_file(Path("raw")) == Path("raw/dogs-pose.yaml")
    write("cats.yaml", POSE)
    assert yolo_file(Path("raw")) is None


@pytest.mark.parametrize("name", ["coco", "crowdpose", "posetrack18", "mpii", "halpe26"])
def test_joints_of_yolo_are_those_of_the_set_with_the_same_flip(name):
    flip = [*SETS[name].flip]
    write_yolo(f"names: [person]\ntrain: images/train\nkpt_shape: [{len(flip)}, 3]\nflip_idx: {flip}\n")
    assert open_yolo(Path("raw/data.yaml"), Path("raw"))["train"].joints == SETS[name].keypoints


def test_14_joints_of_yolo_without_names_are_numbered():
    write_yolo("names: [person]\ntrain: images/train\nkpt_shape: [14, 3]\n")
    assert open_yolo(Path("raw/data.yaml"), Path("raw"))["train"].joints[::13] == ("joint_1", "joint_14")


def test_classes_of_yolo_counted_from_another_number_are_refused(capsys):
    write_yolo(POSE.replace("0: dog", "1: dog"))
    write_params(annotations="data.yaml")
    assert run(main, ["mine"]) == 1
    assert "data.yaml: labels name the classes 0, and there are 1: they count from" in capsys.readouterr().err


def test_joints_of_yolo_without_flags():
    prepare_yolo(POSE.replace("[3, 3]", "[3, 2]"), **{"train/a": "0 0.5 0.5 0.5 0.25 0.25 0.5 0 0.5 -1 -1\n"})
    assert load("train")["annotations"][0]["keypoints"] == [8, 24, 2, 0, 24, 2, 0, 0, 0]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("0 160 120 80 60 80 120 2 160 120 1 0 0 0", "label is not in fractions of the picture"),
        ("0 0.5 0.5 0.5 0.25", "label has not 14 numbers"),
        ("3 0.5 0.5 0.5 0.25 0.25 0.5 2 0.5 0.5 1 0 0 0", "class is not one of data.yaml"),
        ("0 0.5 0.5 0.5 nan 0.25 0.5 2 0.5 0.5 1 0 0 0", "label is not in fractions of the picture"),
        ("dog 0.5 0.5 0.5 0.25", "label is not numbers"),
        ("nan 0.5 0.5 0.5 0.25", "class is not one of data.yaml"),
        (
            "0 0.9 0.5 0.5 0.4 0.4 0.25 0.5 2 0.5 0.5 1 0 0 0",
            "box leaves the picture: a confidence may stand before it",
        ),
    ],
)
def test_faulty_labels_are_listed(row, reason):
    prepare_yolo(**{"train/b": f"\n{row}\n"}, max_rejected=0.5)
    (one,) = rows(PREPARED / "rejected.csv")
    assert (one["file"], one["kind"], one["id"]) == ("data.yaml", "annotation", "labels/train/b.txt: 2")
    assert one["reason"] == reason


@pytest.mark.parametrize(
    ("data", "section", "message"),
    [
        (POSE.replace("val: images/val\n", ""), {}, "coco: the split 'validation' is missing; data.yaml names train"),
        (POSE, {"shares": {"validation": 0.5}}, "shares.validation: data.yaml names train, validation"),
        (POSE.replace("images/val", "../../etc"), {}, "val: no folder ../../etc below"),
        (POSE.replace("[3, 3]", "[1e9, 3]"), {}, "kpt_shape: found ['1e9', 3]; expected [number of joints, 2 or 3]"),
        (POSE.replace("[3, 3]", "[100000000, 3]"), {}, "kpt_shape: found [100000000, 3]"),
        (POSE.replace("[0, 2, 1]", "[1, 2, 0]"), {}, "flip_idx: found [1, 2, 0]; expected each number"),
        (f"{POSE}kpt_names: {{0: [nose, nose, tail]}}", {}, "kpt_names: found 2 names; kpt_shape says 3 joints"),
        (f"{POSE}test: images/test", {}, "test: no folder images/test below"),
        (POSE.replace("  0: dog", " []"), {}, "names: the classes are needed"),
        ("names: !!python/object/apply:os.system [ls]", {}, "data.yaml: no readable YAML"),
        ("[" * 300, {}, "data.yaml: no readable YAML"),
        ("names: {0: &a [dog, dog], 1: [*a, *a]}", {}, "data.yaml: no readable YAML: aliases"),
        (POSE.replace("images/", "labels/"), {}, "no labels"),
        (POSE, {}, "data.yaml: the list of annotations is empty; the split train needs them"),
    ],
)
def test_faulty_yolo_folders(data, section, message, capsys):
    write_yolo(data)
    write_pictures("x.png", folder="labels/train")
    Path("raw/labels/train/a.txt").unlink()
    if "labels" not in data:
        write("labels/train/a.txt", "")
    write_params(annotations="data.yaml", **section)
    assert run(main, ["mine"]) == 1
    assert message in capsys.readouterr().err


# --- predictions ---


def test_alphapose_results():
    write_pictures("a.png", "b.png", "c.png")
    person = {"category_id": 1, "keypoints": flat(17), "score": 2.9, "box": [3, 4, 20, 30], "idx": 0.0}
    low = {**person, "keypoints": [*flat(16), 9, 9, 0.2]}
    write("results.json", [{**person, "image_id": "a.png"}, {**low, "image_id": "frames/B.PNG"}])
    people, (category,), said = converted("results.json", least=0.3)
    assert list(people) == ["a.png", "b.png"]
    (one,), (other,) = people.values()
    assert (one["bbox"], one["num_keypoints"], one["keypoints"][:6]) == ([3, 4, 20, 30], 17, [4, 5, 2, 5, 5, 2])
    assert (other["num_keypoints"], other["keypoints"][-3:]) == (16, [0, 0, 0])
    assert category["keypoints"] == list(KEYPOINTS)
    assert "repaired: 1 joints below min_confidence 0.3 (e.g. results.json annotation 2: right_ankle: 0.2" in said
    assert "results.json: says nothing about 1 pictures below images: left out" in said


def test_joints_are_matched_by_name():
    write_pictures("a.png")
    write("results.json", [{"image_id": "a.png", "category_id": 1, "keypoints": flat(136), "score": 1}])
    people, (category,), said = converted("results.json", stated=KEYPOINTS)  # Halpe's first 17 are COCO's
    assert category["keypoints"] == list(KEYPOINTS)
    assert people["a.png"][0]["keypoints"] == [2 if index % 3 == 2 else one for index, one in enumerate(flat(17))]
    assert "left out: not among the joints of the dataset" in said
    people, (category,), _ = converted("results.json")
    assert len(category["keypoints"]) == 136
    stated = SETS["mpii"].keypoints
    people, (category,), said = converted("results.json", stated=stated)  # has no upper_neck by this name
    assert people["a.png"][0]["keypoints"][:3] == [4 + 16, 5, 2]  # MPII's first is Halpe's 17th, the right ankle
    assert "results.json: has no pelvis, thorax, upper_neck, head_top" in said


def test_a_wrong_number_of_joints_costs_the_joints():
    write_pictures("a.png", "b.png")
    whole = {"image_id": "a.png", "category_id": 1, "bbox": [3, 4, 20, 30], "keypoints": flat(136), "score": 1}
    write("results.json", [whole, whole | {"image_id": "b.png", "keypoints": flat(17)}])
    people, _, said = converted("results.json", stated=KEYPOINTS)
    assert (people["b.png"][0]["bbox"], "keypoints" in people["b.png"][0]) == ([3, 4, 20, 30], False)
    assert "repaired: 1 keypoints that are not 17 joints (e.g. results.json annotation 2: 51 numbers instead" in said


def test_openpose_folders():
    write_pictures("a.png", "b.png", folder="images/sub")
    person = {"pose_keypoints_2d": flat(25), "face_keypoints_2d": [], "hand_left_keypoints_2d": []}
    write("poses/sub/a_keypoints.json", {"version": 1.3, "people": [person, person]})
    write("poses/sub/b_keypoints.json", {"version": 1.3, "people": []})
    people, (category,), _ = converted("poses")
    assert {name: len(those) for name, those in people.items()} == {"sub/a.png": 2, "sub/b.png": 0}
    assert category["keypoints"] == list(SETS["body_25"].keypoints)
    people, _, _ = converted("poses", stated=KEYPOINTS)
    # COCO's second joint is the left eye, OpenPose's 17th; its last is the right ankle, the 12th
    assert people["sub/a.png"][0]["keypoints"][3:6] == [4 + 16, 5, 2]
    assert people["sub/a.png"][0]["keypoints"][-3:] == [4 + 11, 5, 2]
    write("poses/sub/a_keypoints.json", {"version": 1.3, "people": [{"pose_keypoints_2d": flat(18)}]})
    people, (category,), _ = converted("poses")
    assert category["keypoints"] == list(KEYPOINTS)  # the neck is a mean of two
    assert people["sub/a.png"][0]["keypoints"][3:6] == [4 + 15, 5, 2]  # the left eye is the 16th of 18
    write("poses/sub/a_keypoints.json", {"version": 1.0, "people": [{"pose_keypoints": flat(18)}]})
    assert converted("poses")[0] == people
    parts = {"face": flat(70, (4, 20)), "hand_left": flat(21, (4, 30)), "hand_right": flat(21, (4, 35))}
    whole = person | {f"{part}_keypoints_2d": numbers for part, numbers in parts.items()}
    write("poses/sub/a_keypoints.json", {"version": 1.3, "people": [whole]})
    people, _, _ = converted("poses", stated=SETS["wholebody"].keypoints)
    joints = people["sub/a.png"][0]["keypoints"]
    assert (joints[3 * 23 : 3 * 23 + 3], joints[3 * 91 : 3 * 91 + 3]) == ([4, 20, 2], [4, 30, 2])
    assert (joints[3 * 17 : 3 * 17 + 2], joints[-3:]) == ([4 + 19, 5], [4, 36, 2])  # big toe, the 21st of the hand


def test_mmpose_predictions():
    write_pictures("a.png", "b.png")
    instance = {"keypoints": [[4 + joint, 5] for joint in range(17)], "keypoint_scores": [0.5] * 17,
                "bbox": [[3, 4, 23, 34]], "bbox_score": 0.9}  # fmt: skip
    write("predictions/a.json", [instance])
    write("predictions/b.json", [])
    people, _, _ = converted("predictions")
    assert (len(people["a.png"]), len(people["b.png"])) == (1, 0)
    assert people["a.png"][0]["bbox"] == [3, 4, 20, 30]
    assert people["a.png"][0]["keypoints"][:6] == [4, 5, 2, 5, 5, 2]
    names = {str(index): name for index, name in enumerate(KEYPOINTS[::-1])}
    Path("raw/predictions/b.json").unlink()
    Path("raw/predictions/a.json").unlink()
    write("predictions/results_a.json", {"meta_info": {"keypoint_id2name": names}, "instance_info": [instance]})
    people, _, _ = converted("predictions", stated=KEYPOINTS)
    assert people["a.png"][0]["keypoints"][:3] == [4 + 16, 5, 2]


def test_results_of_coco_and_of_figura():
    write_pictures("000000000007.png", "000000000012.png")
    person = {"category_id": 1, "score": 0.8, "bbox": [3, 4, 20, 30], "keypoints": flat(17, confidence=0.4242)}
    write("results.json", [{"image_id": 12, **person}])
    people, _, _ = converted("results.json")
    assert list(people) == ["000000000012.png"]
    images = [{"id": 1, "file_name": "raw/images/000000000007.png", "width": 32, "height": 48},
              {"id": 2, "file_name": "raw/images/000000000012.png", "width": 32, "height": 48}]  # fmt: skip
    truth = {
        "images": images,
        "annotations": [{"id": 1, "image_id": 1, **person}],
        "categories": [{"id": 1, "name": "person", "keypoints": list(KEYPOINTS), "skeleton": []}],
    }
    write("annotations.json", truth)
    people, (category,), _ = converted("annotations.json", least=0.4)
    assert {name: len(those) for name, those in people.items()} == {"000000000007.png": 1, "000000000012.png": 0}
    assert people["000000000007.png"][0]["keypoints"][:3] == [4, 5, 2]
    assert category["keypoints"] == list(KEYPOINTS)
    write("people/000000000012.people.json", [person])
    write("people/000000000007.people.json", [])
    people, _, _ = converted("people")
    assert {name: len(those) for name, those in people.items()} == {"000000000007.png": 0, "000000000012.png": 1}
    write("annotations.json", truth | {"images": [{**images[0], "width": 64}, images[1]]})
    with pytest.raises(UserError, match=r"000000000007.png is 64 x 48 pixels there, but 000000000007.png is 32 x 48"):
        converted("annotations.json")
    truth["annotations"][0]["keypoints"] = flat(17, confidence=2)
    write("annotations.json", truth)
    assert open_export(Path("raw/annotations.json"), "annotations") is None  # a truth that has scores


def test_predictions_as_annotations_of_a_dataset(capsys):
    write_pictures(*(f"{number}.png" for number in range(8)))
    person = {"category_id": 1, "score": 1.5, "box": [3, 4, 20, 30], "keypoints": flat(17)}
    write("results.json", [{"image_id": f"{number}.png", **person} for number in range(8)])
    prepare_with(annotations="results.json", shares={"validation": 0.5}, min_confidence=0.5)
    both = [load(split) for split in ("train", "validation")]
    assert sum(len(one["annotations"]) for one in both) == 8
    assert all(one["keypoints"][2::3] == [2] * 17 for split in both for one in split["annotations"])
    assert "results.json: AlphaPose's results, 8 records of 8 pictures" in capsys.readouterr().out
    before = {one["file_name"].split("/")[1] for one in both[1]["images"]}
    write_pictures("00.png")
    write("results.json", [{"image_id": f"{number}.png", **person} for number in ("00", *range(8))])
    assert run(main, ["mine"]) == 0
    assert before <= {one["file_name"].split("/")[1] for one in load("validation")["images"]}  # by name, not number
    assert not list(PREPARED.glob(".*"))


@pytest.mark.parametrize(
    ("keypoints", "message"),
    [
        ([number / 100 for number in flat(17, confidence=90)], "0 boxes and 1 poses are about 1 or less"),
        (flat(17, (32, 5)), "13 of 17 joints lie far outside of their pictures"),
        (flat(12), "have 12 joints without names; write 12 names to .*coco.keypoints.keypoints"),
        (flat(14), "have 14 joints without names; write 14 .*; or `keypoints: crowdpose` if they are its, or"),
    ],
)
def test_coordinates_of_other_pictures(keypoints, message):
    write_pictures("a.png")
    write("results.json", [{"image_id": "a.png", "category_id": 1, "keypoints": keypoints, "score": 1}])
    with pytest.raises(UserError, match=message):
        converted("results.json")


def test_the_14_joints_of_crowdpose_have_to_be_said():
    write_pictures("a.png")
    write("results.json", [{"image_id": "a.png", "category_id": 1, "keypoints": flat(14), "score": 1}])
    people, (category,), _ = converted("results.json", stated=SETS["crowdpose"].keypoints)
    assert people["a.png"][0]["keypoints"] == flat(14, confidence=2)
    assert category["keypoints"] == list(SETS["crowdpose"].keypoints)


def test_results_in_fractions_of_the_picture():
    write_pictures("a.png")
    joints = [number / side for number, side in zip(flat(17), 17 * (32, 48, 1), strict=True)]
    write("results.json", [{"image_id": "a.png", "category_id": 1, "keypoints": joints, "score": 1}])
    prepare_with(annotations={"test": "results.json"}, coordinates="relative")
    (one,) = load("test")["annotations"]
    assert one["keypoints"] == [2 if index % 3 == 2 else value for index, value in enumerate(flat(17))]


def test_results_without_pictures():
    write_pictures("a.png")
    write("results.json", [{"image_id": 1, "category_id": 1, "keypoints": flat(17), "score": 1}])
    with pytest.raises(UserError, match=r"image file missing: 1; there is 1 pictures, such as a.png"):
        converted("results.json")


# --- published files ---


def test_mpii_lists():
    write_pictures("a.png")
    joints = [[4 + joint, 5] for joint in range(16)]
    write(
        "train.json",
        [{"image": "a.png", "joints": joints, "joints_vis": [0, *[1] * 15], "center": [16, 24], "scale": 0.1}],
    )
    people, (category,), _ = converted("train.json")
    (one,) = people["a.png"]
    assert one["bbox"] == [5, 13, 20, 20]  # pixels count from 1 there
    assert one["keypoints"][:6] == [0, 0, 0, 4, 4, 2]
    assert category["keypoints"] == list(SETS["mpii"].keypoints)


def test_ochuman_as_published():
    write_pictures("a.png")
    person = {"bbox": [3, 4, 23, 34], "segms": {"outer": [[3, 4, 23, 4, 23, 34]], "inner": []},
              "keypoints": [number for index in range(17) for number in (4 + index, 5, index % 4)]}  # fmt: skip
    boxes = {"bbox": [3, 4, 23, 34], "segms": None, "keypoints": None}
    image = {"image_id": 3, "file_name": "a.png", "width": 32, "height": 48, "annotations": [person, boxes]}
    write("ochuman.json", {"images": [image], "keypoint_names": list(KEYPOINTS[::-1])})
    people, _, _ = converted("ochuman.json")
    one, other = people["a.png"]
    assert one["bbox"] == [3, 4, 20, 30]
    # the nose is the last of 17: place 16 is missing (0); then the left eye, place 15, hidden by others (3)
    assert one["keypoints"][:9] == [20, 5, 0, 19, 5, 1, 18, 5, 2]
    assert one["segmentation"] == [[3, 4, 23, 4, 23, 34]]
    assert "keypoints" not in other


def test_a_mask_with_holes_of_ochuman_is_left_out_and_counted(capsys):
    write_pictures("a.png")
    person = {"bbox": [3, 4, 23, 34], "segms": {"outer": [[3, 4, 23, 4, 23, 34]], "inner": [[9, 6, 20, 6, 20, 20]]}}
    image = {"image_id": 3, "file_name": "a.png", "width": 32, "height": 48, "annotations": [person]}
    write("ochuman.json", {"images": [image], "keypoint_names": list(KEYPOINTS)})
    prepare_with(annotations={"test": "ochuman.json"})
    assert load("test")["annotations"][0]["segmentation"] is None
    assert "repaired: 1 masks dropped: neither polygons nor run lengths (e.g. ochuman.json" in capsys.readouterr().out


def test_a_folder_of_coco_files_as_posetrack_has():
    joints = list(SETS["posetrack18"].keypoints)
    write_pictures("1/000000.png", "1/000001.png", "2/000000.png")
    category = {"id": 1, "name": "person", "keypoints": joints, "skeleton": []}
    for video in (1, 2):
        images = [{"id": 5, "file_name": f"images/{video}/000000.png", "is_labeled": True,
                   "ignore_regions_x": [[1, 9, 9]], "ignore_regions_y": [[2, 2, 8]]},
                  {"id": 6, "file_name": f"images/{video}/000001.png", "is_labeled": False}]  # fmt: skip
        person = {"id": 1, "image_id": 5, "category_id": 1, "bbox": [3, 4, 20, 30], "keypoints": flat(17, confidence=1)}
        write(f"val/{video}.json", {"images": images, "annotations": [person], "categories": [category]})
    assert list(converted("val/1.json")[0]) == ["1/000000.png"]
    people, categories, _ = converted("val")
    crowds = {name: [one.get("iscrowd", 0) for one in those] for name, those in people.items()}
    assert crowds == {"1/000000.png": [0, 1], "2/000000.png": [0, 1]}  # and the region to ignore
    person, region = people["1/000000.png"]
    assert region["bbox"] == [1, 2, 8, 6]
    (image, _) = load("test")["images"]
    assert (image["ignore_regions_x"], image["width"], image["height"]) == ([[1, 9, 9]], 32, 48)
    assert person["keypoints"] == flat(17, confidence=1)
    assert [(one["id"], one["name"], one["keypoints"]) for one in categories] == [(1, "person", joints)]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("stated", [(), ("nose", "tail", "ear")])
def test_categories_without_joints_in_a_folder_of_coco_files(order, stated):
    """CVAT writes an empty list of joints to the labels that have none."""
    write_pictures("a.png")
    dog = {"id": 1, "name": "dog", "keypoints": ["ear", "nose", "tail"], "skeleton": [[1, 2], [2, 3]]}
    categories = [dog, {"id": 2, "name": "car", "keypoints": [], "skeleton": []}][::order]
    annotations = [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [3, 4, 20, 30], "keypoints": flat(3, confidence=2)},
        {"id": 2, "image_id": 1, "category_id": 2, "bbox": [3, 4, 20, 30]},
    ]
    images = [{"id": 1, "file_name": "a.png"}]
    write("all/a.json", {"images": images, "annotations": annotations, "categories": categories})
    people, categories, _ = converted("all", stated)
    assert {one["name"]: one.get("keypoints") for one in categories} == {
        "dog": list(stated) or ["ear", "nose", "tail"],
        "car": None,
    }
    assert [one["category_id"] for one in people["a.png"]] == [1, 2]


def test_ids_of_a_folder_of_coco_files_may_be_texts_and_repeat():
    write_pictures("a.png", "b.png", "c.png", "d.png")
    images = [{"id": number, "file_name": f"{name}.png"} for number, name in (("1", "a"), ("x", "b"), (3, "c"))]
    images.append({"id": 3.0, "file_name": "d.png"})
    person = {"category_id": "1", "bbox": [3, 4, 20, 30]}
    annotations = [person | {"id": number, "image_id": of} for number, of in enumerate((1, "x", 3))]
    content = {"images": images, "annotations": annotations, "categories": [{"id": "1", "name": "person"}]}
    write("all/a.json", content)
    write_params(0.9, annotations={"test": "all"})
    assert run(main, ["mine"]) == 0
    prepared = load("test")
    assert [one["file_name"] for one in prepared["images"]] == ["test/a.png", "test/b.png"]
    assert [one["image_id"] for one in prepared["annotations"]] == [1, 2]
    reasons = [row["reason"] for row in rows(PREPARED / "rejected.csv")]
    assert reasons == ["images of the same id"] * 2 + ["annotation without image"]


def test_a_picture_in_two_of_a_folder_of_coco_files_is_told():
    write_pictures("0.png")
    person = {"id": 1, "image_id": 5, "category_id": 1, "bbox": [3, 4, 20, 30]}
    for video in (1, 2):
        images = [{"id": 5, "file_name": "0.png"}]
        write(f"all/{video}.json", {"images": images, "annotations": [person], "categories": [{"id": 1, "name": "x"}]})
    people, _, said = converted("all")
    assert len(people["0.png"]) == 2
    assert "warning: all: 1 pictures are listed twice, and all their people are joined" in said


def test_coco_files_of_several_splits_are_not_joined(capsys):
    for split in ("train", "valid"):  # as Roboflow exports them
        write(f"{split}/_annotations.coco.json", {"images": [], "annotations": [], "categories": []})
    write_params(annotations=".", shares={"validation": 0.5})
    assert run(main, ["mine"]) == 1
    assert "its files are those of several splits (train, val); write them apart" in capsys.readouterr().err


def write_dog(count, **category):
    """Write a picture of a dog and, as COCO's file, its annotation with some joints."""
    write_pictures("a.png")
    dog = {"id": 1, "image_id": 1, "category_id": 1, "score": 1, "bbox": [3, 4, 20, 30], "keypoints": flat(count)}
    images = [{"id": 1, "file_name": "a.png", "width": 32, "height": 48}]
    categories = [{"id": 1, "name": "dog", **category}]
    write("annotations.json", {"images": images, "annotations": [dog], "categories": categories})


def test_joints_get_other_names():
    write_dog(2, keypoints=["a", "b"])
    people, (category,), _ = converted("annotations.json", stated=["b", "head"])
    assert category["keypoints"] == ["b", "head"]  # in the order of the file
    assert people["a.png"][0]["keypoints"] == [4, 5, 2, 5, 5, 2]


def test_connections_are_those_of_the_category():
    write_dog(3, keypoints=["a", "b", "c"], skeleton=[[1, 3], [3, 2]])
    converted("annotations.json")
    assert json.loads((PREPARED / "facts.json").read_text())["skeleton"]["connections"] == [["a", "c"], ["c", "b"]]


def test_turned_pictures_have_the_size_that_tools_see():
    write_pictures("a.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (32, 48)).save("raw/images/a.jpg", exif=exif)
    Path("raw/images/a.png").unlink()
    write("results.json", [{"image_id": "a.jpg", "category_id": 1, "keypoints": flat(17, (25, 5)), "score": 1}])
    people, _, _ = converted("results.json")
    assert people["a.jpg"][0]["num_keypoints"] == 17
    (image,) = load("test")["images"]
    assert (image["width"], image["height"]) == (48, 32)


@pytest.mark.parametrize(("name", "count", "last"), [("humanart21", 21, [8, 9, 1]), ("humanart", 17, [20, 5, 2])])
def test_human_art_as_published(name, count, last):
    write_pictures("a.png", "b.png")
    images = [
        {"id": number, "file_name": file, "width": 32, "height": 48} for number, file in enumerate(("a.png", "b.png"))
    ]
    person = {"category_id": 1, "bbox": [2, 2, 28, 40], "keypoints": flat(17, confidence=2), "num_keypoints": 17,
              "keypoints_21": [*flat(20, confidence=2), 8, 9, 1], "num_keypoints_21": 21}  # fmt: skip
    category = {"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}
    for split, image in zip(("train", "validation"), images, strict=True):
        record = {"id": 1, "image_id": image["id"], **person}
        write(f"{split}.json", {"images": [image], "annotations": [record], "categories": [category]})
    prepare_with(annotations={split: f"{split}.json" for split in ("train", "validation")}, keypoints=name)
    (one,) = load("train")["annotations"]
    assert (len(one["keypoints"]), one["keypoints"][-3:], one["num_keypoints"]) == (3 * count, last, count)


# --- names of pictures ---


def test_pictures_are_found_by_what_tools_call_them():
    names = PictureNames(["a/x.jpg", "b/x.jpg", "café d.png", "12.png"])
    for said, found in {"home/a/x.jpg": "a/x.jpg", "B\\X.JPG": "b/x.jpg", "cafe\u0301%20d": "café d.png"}.items():
        assert names.find(said) == found
    assert names.find(12) == "12.png"
    for said in ("x.jpg", "c/x.jpg", "../../etc/passwd", "", 13, "012.png"):
        with pytest.raises(Exception, match=r"several pictures have the name|image file missing"):
            names.find(said)
    with pytest.raises(Exception, match=r"two names for one picture: home/a/x.jpg and a/x.jpg"):
        names.find("a/x.jpg")
    names = PictureNames(["x.jpg", "x.1.jpg", "x.2.jpg"])
    assert [names.find(said) for said in ("x.1", "x.2", "x")] == ["x.1.jpg", "x.2.jpg", "x.jpg"]


# --- formats that are close ---


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", {"version": "5", "flags": {}, "shapes": [], "imagePath": "a.png"}, "labelme's JSON of one picture"),
        ("a.json", {"_via_settings": {}, "_via_img_metadata": {}}, "Annotation > Export Annotations (COCO format)"),
        ("a.json", {"a.png12": {"filename": "a.png", "regions": []}}, "VIA's own format"),
        ("a.json", [{"id": 1, "data": {}, "annotations": []}], "Label Studio's own format; export it as COCO or YOLO"),
        ("a.json", {"size": {}, "objects": []}, "Supervisely's own format of one picture; export the project as COCO"),
        ("a.json", {"categories": {}, "items": []}, "Datumaro's own format"),
        ("a.json", {"version": "2.0", "item": {}, "annotations": []}, "V7 Darwin's own format"),
        ("a.json", {"name": "x", "assets": {}, "version": "2.2.0"}, "VoTT's own format"),
        ("a.json", {"version": "2.0.0", "skeletons": [], "labels": []}, "SLEAP's own format"),
        ("a.json", {"project": {}, "config": {}, "attribute": {}, "metadata": {}}, "VIA 3's own format"),
        ("a.json", {"samples": []}, "FiftyOne's own format"),
        ("a.ndjson", "{}\n{}\n", "an object a line, as Labelbox exports"),
        ("obj.data", "classes = 1\ntrain = data/train.txt\n", "as of CVAT's YOLO 1.1; export it as Ultralytics YOLO"),
        ("a.json", {"type": "FeatureCollection", "features": []}, "GeoJSON, coordinates of maps"),
        ("a.json", [{"keypoints": [], "keypoint_scores": []}], "MMPose's results of one picture; write the folder"),
        ("a.json", [{"frame_id": 0, "instances": []}], "MMPose's results of a video"),
        ("a.json", [{"score": 1, "bbox": [], "keypoints": []}], "as `figura predict` writes them; write the folder"),
        ("a.json", {"version": 1.3, "people": []}, "OpenPose's JSON of one picture; write the folder"),
        ("a.json", [], "an empty list; a COCO file is an object with images, annotations and categories"),
        ("a.json", [3], "a list that begins with 3; a COCO file"),
        ("a.json", [{"name": "x"}], "a list of objects with name; a COCO file"),
        ("a.xml", "<annotations><version>1.1</version>", "export the task again as `COCO Keypoints 1.0`"),
        ("a.xml", "<annotation><folder>x</folder>", "Pascal VOC's boxes of one picture"),
        ("mpii.mat", "MATLAB 5.0 MAT-file", "a MATLAB file: export annotations as JSON (COCO); of MPII, use the lists"),
        ("a.zip", "PK\3\4", "a ZIP archive or PyTorch's weights: unpack an archive"),
        ("a.pkl", "", "a pickle, which can run programs"),
        ("labels/a.slp", "", "a.slp: it is HDF5 (of DeepLabCut, SLEAP"),
        ("labels/a.txt", "0 1 1 1 1", "without a data.yaml, which names the classes, joints and splits"),
        ("labels/a.json", [{"id": 1, "data": {}, "annotations": []}], "Label Studio's own format"),
        ("labels/a.xml", "", "XML files, as of Pascal VOC"),
        ("labels/a.jpg", "", "no JSON file"),
        ("labels/a.json", {"shapes": [], "imagePath": "a.png"}, "labelme's JSON of one picture"),
        ("labels/a.json", {"x": 1}, "a JSON object with x, no format that figura reads"),
    ],
)
def test_a_close_format_is_named(name, content, message, capsys):
    write(name, content)
    write_params(annotations=name.partition("/")[0], shares={"validation": 0.5})
    assert run(main, ["mine"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "coco.annotations.train: " in error
    assert len(error.strip().splitlines()) == 1


# --- poses of persons with identities ---

MARKET = ["0002_c1s1_000451_03", "0002_c2s3_000776_01", "0007_c1s1_001051_00"]


def write_market(**section):
    for number, name in enumerate(MARKET):
        write_picture(f"raw/{'query' if number == 2 else 'train'}/{name}.jpg", number, SIZE)
    section = {"folders": {"train": ["train"], "validation": ["query"]}, "poses": "poses", **section}
    write_entry("mine", {"kind": "market1501", "source": "raw", "seed": 7, "max_rejected": 0.1, "market1501": section})


def joints_of_market():
    content = [load(split) for split in ("train", "validation")]
    names = {one["id"]: Path(one["file_name"]).stem for part in content for one in part["images"]}
    return {names[one["image_id"]]: one.get("keypoints") for part in content for one in part["annotations"]}


def test_poses_of_alphapose_openpose_and_mmpose(capsys):
    person = {"category_id": 1, "keypoints": flat(17), "score": 0.5}
    low = {**person, "keypoints": flat(17, (9, 9)), "score": 0.4}
    write("poses.json", [{**one, "image_id": f"{name}.jpg"} for name in MARKET[:2] for one in (low, person)])
    write_market(poses="poses.json")
    assert run(main, ["mine"]) == 0, capsys.readouterr().err
    expected = [2 if index % 3 == 2 else one for index, one in enumerate(flat(17))]
    assert joints_of_market() == {MARKET[0]: expected, MARKET[1]: expected, MARKET[2]: None}
    assert "poses: poses.json has 2 of 3 pictures" in capsys.readouterr().out
    for name in MARKET:
        write(f"open/{name}_keypoints.json", {"version": 1.3, "people": [{"pose_keypoints_2d": flat(25)}]})
    write_market(poses="open", keypoints="coco")
    assert run(main, ["mine"]) == 0
    assert joints_of_market()[MARKET[2]][3:6] == [4 + 16, 5, 2]
    instance = {"keypoints": [[4 + joint, 5] for joint in range(17)], "keypoint_scores": [0.5] * 17}
    write(f"mm/{MARKET[1]}.json", [instance])
    write_market(poses="mm", min_confidence=0.6)
    assert run(main, ["mine"]) == 0
    assert joints_of_market() == {MARKET[0]: None, MARKET[1]: [0] * 51, MARKET[2]: None}


def test_poses_of_pictures_of_another_size(capsys):
    # DeepFashion's pictures are published as 176 x 256 and as 256 x 256: every joint 40 pixels beside its person
    person = {"category_id": 1, "score": 0.5, "bbox": [3, 4, 20, 30], "keypoints": flat(17), "width": 44, "height": 48}
    write(f"poses/{MARKET[0]}.people.json", [person])
    write_market()
    assert run(main, ["mine"]) == 1
    assert "is 44 x 48 pixels there, but train/" in capsys.readouterr().err
    write(f"poses/{MARKET[0]}.people.json", [person | {"width": 32}])
    assert run(main, ["mine"]) == 0
    del person["width"], person["height"]  # as earlier versions wrote it: joints twice as far tell
    write(f"poses/{MARKET[0]}.people.json", [person | {"keypoints": flat(17, (38, 5))}])
    assert run(main, ["mine"]) == 1
    assert "joints lie far outside of their pictures, so they belong to pictures of another" in capsys.readouterr().err
    write(f"poses/{MARKET[0]}.people.json", [person | {"keypoints": [one / 50 for one in flat(17, confidence=45)]}])
    assert run(main, ["mine"]) == 1
    assert "all joints lie between 0 and 1, so they are fractions; write pixels" in capsys.readouterr().err


# --- pictures turned by EXIF, and files of which nothing can be used ---


def turn(folder):
    for path in Path("raw", folder).rglob("*.png"):
        with Image.open(path) as picture:
            exif = Image.Exif()
            exif[0x0112] = 6
            picture.save(path, exif=exif)


@pytest.mark.parametrize(("orientation", "box"), [("stored", [8, 18, 16, 12]), ("upright", [12, 12, 24, 8])])
def test_fractions_of_the_picture_as_it_is_read(orientation, box):
    write_yolo()
    turn("images")
    prepare_with(annotations="data.yaml", orientation=orientation)
    assert load("train")["annotations"][0]["bbox"] == box


@pytest.mark.parametrize(
    "stated", [{"width": 0, "height": 0}, {"width": 31, "height": 48}, {"width": 32, "height": 48}]
)
def test_sizes_that_a_folder_of_coco_files_states(stated):
    write_pictures("a.png", "b.png")
    for number, name in enumerate(("a", "b"), 1):
        person = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [4, 4, 20, 40], "iscrowd": 0}
        images = [{"id": 1, "file_name": f"{name}.png", **stated}]
        categories = [{"id": 1, "name": "person"}]
        write(f"labels/{number}.json", {"images": images, "annotations": [person], "categories": categories})
    prepare_with(annotations={"test": "labels"})
    assert {(one["width"], one["height"]) for one in load("test")["images"]} == {(32, 48)}


def test_labels_none_of_which_can_be_used(capsys):
    write_yolo(**{"train/a": "0 16 24 16 12 0.5 0.5 2 0.5 0.5 1 0 0 0\n" * 3})
    write_params(annotations="data.yaml")
    assert run(main, ["mine"]) == 1
    error = capsys.readouterr().err
    assert "none of 3 records can be used; the first, labels/train/a.txt: 1: label is not in fractions" in error
