"""Preparing people and other things with joints of any kind, in COCO's form."""

import json
import math
from functools import partial

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from figura.base.errors import UserError
from figura.formats.coco import KEYPOINTS, read_head
from figura.formats.keypoint_sets import AP10K, CROWDPOSE, WHOLEBODY
from figura.formats.prepared import read_facts
from figura.formats.skeletons import COCO, skeleton_from
from figura.preparation.people import Preparation, Raw
from figura.preparation.settings import KeypointSettings
from figura.preparation.skeletons import Poses, measured_pose, spanning_tree
from models.people.persons import people_category

JOINTS = ["nose", "left_paw", "right_paw", "tail", "ear"]
PLACES = np.array([(10, 40), (20, 70), (45, 70), (70, 45), (25, 25)])  # x, y (downwards)
DOG = {"id": 18, "name": "dog", "keypoints": JOINTS, "skeleton": [[1, 5], [5, 4], [1, 2], [4, 3]]}
SIZE = (90, 80)


def flat(places, flags=2):
    rows = np.column_stack([places, np.broadcast_to(flags, len(places))])
    return [int(value) for value in rows.ravel()]


def annotation(number, keypoints, image=1, category=18, **more):
    return {
        "id": number, "image_id": image, "category_id": category, "bbox": [5, 20, 70, 55], "area": 3850, "iscrowd": 0,
        "keypoints": keypoints, "num_keypoints": sum(flag > 0 for flag in keypoints[2::3]), **more,
    }  # fmt: skip


def boxed(category):
    return {"id": 1, "image_id": 1, "category_id": category, "bbox": [5, 20, 70, 55]}


def write_raw(folder, categories, annotations, images=2, name="a.json"):
    (folder / "images").mkdir(parents=True, exist_ok=True)
    records = []
    for number in range(1, images + 1):
        Image.new("RGB", SIZE, (number * 40, 90, 120)).save(folder / "images" / f"{number}.png")
        records.append({"id": number, "file_name": f"{number}.png", "width": SIZE[0], "height": SIZE[1]})
    content = {"images": records, "categories": categories, "annotations": annotations}
    path = folder / name
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return path


def add(preparation, path, *splits):
    names = splits or ("train",)
    preparation.add(
        Raw(
            annotations=path,
            images=path.parent / "images",
            root=path.parent,
            splits=names,
            split_of=lambda image: names[(image or 0) % len(names)],
        )
    )


def prepared(tmp_path, categories, annotations, **settings):
    """Prepare one file as the split train; return the preparation and the file's content."""
    path = write_raw(tmp_path / "raw", categories, annotations)
    folder = tmp_path / "prepared"
    folder.mkdir()
    preparation = Preparation(folder, **settings)
    add(preparation, path)
    preparation.finish()
    return preparation, json.loads((folder / "train.json").read_text())


def skeleton_of(tmp_path):
    return skeleton_from(read_facts(tmp_path / "prepared")["skeleton"])


# --- the skeleton ---


def test_a_dog_with_five_joints(tmp_path):
    ball = {"id": 3, "name": "ball"}
    thing = {"id": 9, "image_id": 2, "category_id": 3, "bbox": [1, 1, 9, 9]}
    records = [annotation(1, flat(PLACES)), annotation(2, flat(PLACES, [2, 0, 1, 2, 2]), image=2), thing]
    preparation, content = prepared(tmp_path, [ball, DOG], records)
    assert content["categories"] == [ball, DOG]
    assert content["annotations"] == [*records[:2], thing | {"area": 81}]
    assert not preparation.repairs().counts
    facts = read_facts(tmp_path / "prepared")
    assert facts["people"] == "dog"
    assert facts["categories"] == [{"id": 3, "name": "ball"}, {"id": 18, "name": "dog"}]
    assert facts["annotated"] == {
        "train": {
            "annotated": True, "images": 2, "persons": 2, "with_joints": 2, "boxes": 3, "identities": 0,
            "identities_seen_twice": 0,
        }
    }  # fmt: skip
    skeleton = skeleton_of(tmp_path)
    assert skeleton.keypoints == tuple(JOINTS)
    assert skeleton.connections == ((0, 4), (4, 3), (0, 1), (3, 2))
    assert skeleton.flip == (0, 2, 1, 3, 4)
    assert skeleton.sigmas.tolist() == [0.05] * 5
    lines = list(preparation.lines())
    assert sum(line.startswith("warning: ") and "sigmas" in line for line in lines) == 1
    assert "2 images, 2 persons (2 with joints)" in lines[-1]
    assert "0 of 2 people are seen twice: transfer cannot be judged; categories: dog 2, ball 1" in lines[-1]
    statistics = json.loads((tmp_path / "prepared/statistics.json").read_text())["train"]
    assert statistics["keypoint_visibility"]["left_paw"] == {"unlabelled": 1, "hidden": 0, "visible": 1}
    assert statistics["categories"] == {"ball": 1, "dog": 2}
    assert people_category(tmp_path, content["categories"], skeleton) == 18


def test_poses_that_look_to_the_other_side_are_mirrored():
    poses, flip = Poses(5), (0, 2, 1, 3, 4)
    for number in range(6):
        places = (90 - PLACES[list(flip), 0], PLACES[:, 1]) if number % 2 else PLACES.T
        box = [90 - 75 if number % 2 else 5, 20, 70, 55]
        poses.add(box, flat(np.column_stack(places)))
    poses.add([5, 20, 70, 55], flat(PLACES, [2, 2, 0, 0, 0]))
    pose = measured_pose(poses.places(), flip, [])
    upright = PLACES * (1, -1)
    assert np.allclose(pose, (upright - upright.min(axis=0)) / 6, atol=1e-3)


def test_a_joint_that_is_never_labelled_lies_between_its_neighbours():
    poses = Poses(5)
    poses.add([0, 0, 90, 90], flat(PLACES, [2, 2, 2, 2, 0]))
    pose = measured_pose(poses.places(), range(5), [(0, 4), (4, 3)])
    assert np.allclose(pose[4], (pose[0] + pose[3]) / 2, atol=1e-3)
    assert measured_pose(Poses(5).places(), range(5), []) is None


def test_the_sample_of_poses_is_bounded_and_spread():
    poses = Poses(2)
    for number in range(5000):
        poses.add([0, 0, 100, 1], [number, 0, 2, 0, 0, 2])
    numbers = poses.places()[:, 0, 0] * 10 + 50
    assert 512 <= len(numbers) <= Poses.limit
    assert np.allclose(np.diff(numbers), 8)


def test_the_spanning_tree_has_least_length():
    random = np.random.default_rng(4)
    places = random.normal(size=(1, 7, 2))
    tree = spanning_tree(places)
    assert len(tree) == 6
    # Kruskal's rule, by hand: shortest edges first, unless both ends are together already
    groups = {joint: {joint} for joint in range(7)}
    expected = set()
    lengths = {(a, b): math.dist(places[0, a], places[0, b]) for a in range(7) for b in range(a)}
    for a, b in sorted(lengths, key=lengths.get):
        if groups[a] is not groups[b]:
            expected.add(frozenset((a, b)))
            groups[a] |= groups[b]
            for joint in groups[b]:
                groups[joint] = groups[a]
    assert {frozenset(pair) for pair in tree} == expected
    assert spanning_tree(np.full((2, 3, 2), np.nan)) is None


def test_a_missing_skeleton_is_measured(tmp_path):
    category = {key: value for key, value in DOG.items() if key != "skeleton"}
    line = np.array([(10, 30), (40, 30), (70, 30), (20, 31), (55, 32)])  # nose, tail, left, ear, right along x
    preparation, content = prepared(tmp_path, [category], [annotation(1, flat(line))])
    assert content["categories"][0]["skeleton"] == [[1, 4], [4, 2], [2, 5], [5, 3]]
    assert any("dog has no skeleton" in line and "nose-tail" in line for line in preparation.lines())
    with pytest.raises(UserError, match=r"dog has no skeleton.*write the pairs of joints to coco\.keypoints\.connect"):
        prepared(tmp_path / "unlabelled", [category], [annotation(1, [0] * 15)])


def test_what_the_category_tells_counts(tmp_path):
    pose = [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [3.0, 1.0], [1.0, 2.0]]
    told = {"sigmas": [0.1, 0.2, 0.2, 0.3, 0.4], "flip_pairs": [["nose", "tail"], ["left_paw", "right_paw"]]}
    told["standing_pose"] = pose
    preparation, content = prepared(tmp_path, [DOG | told], [annotation(1, flat(PLACES))])
    skeleton = skeleton_of(tmp_path)
    assert skeleton.sigmas.tolist() == told["sigmas"]
    assert skeleton.flip == (3, 2, 1, 0, 4)
    assert skeleton.standing_pose.tolist() == pose
    assert not preparation.notes
    assert content["categories"] == [DOG]  # facts.json has the rest


def test_settings_win(tmp_path):
    settings = KeypointSettings(
        sigmas=0.07, connections=[["nose", "tail"], ["tail", "ear"]], flip={"ear": "tail"},
        dense_connections=[["nose", "ear"]], kinematic_tree=[["nose", "tail"]], score_weights=[2.0, 1.0, 1.0, 1.0, 1.0],
    )  # fmt: skip
    preparation, content = prepared(
        tmp_path, [DOG | {"sigmas": [0.2] * 5}], [annotation(1, flat(PLACES))], keypoints=settings
    )
    skeleton = skeleton_of(tmp_path)
    assert skeleton.sigmas.tolist() == [0.07] * 5
    assert skeleton.connections == ((0, 3), (3, 4))
    assert skeleton.dense_connections == ((0, 4),)
    assert skeleton.kinematic_tree == ((0, 3),)
    assert skeleton.score_weights.tolist() == [2, 1, 1, 1, 1]
    assert skeleton.flip == (0, 1, 2, 4, 3)
    assert content["categories"][0]["skeleton"] == [[1, 4], [4, 5]]
    assert any("none reaches left_paw, right_paw" in line for line in preparation.lines())


def test_settings_name_joints_that_the_category_does_not(tmp_path):
    category = {"id": 18, "name": "dog"}
    settings = KeypointSettings(keypoints=JOINTS)
    _, content = prepared(tmp_path, [category], [annotation(1, flat(PLACES))], keypoints=settings)
    assert content["categories"][0]["keypoints"] == JOINTS


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        ({}, {"connections": [["nose", "tial"]]}, r"coco\.keypoints\.connections: no keypoint 'tial' \(did"),
        ({}, {"sigmas": [0.1]}, r"coco\.keypoints: sigmas of shape \(1,\): \(5,\) is needed"),
        ({}, {"keypoints": ["a", "b"]}, r"keypoints\.keypoints: found 2 names; .* has 5 keypoints: nose"),
        ({}, {"set": "ap10k"}, r"coco\.keypoints: the set 'ap10k' has 17 joints, left_eye.*a\.json has 5, nose, left"),
        ({"skeleton": [[0, 5]]}, {}, r"dog: skeleton: found \[0, 5\]; expected joints from 1 to 5"),
        ({"sigmas": 0.1}, {}, r"dog: sigmas: found 0\.1; expected a list; correct it, or write it to coco\.keypoints"),
        ({"flip_pairs": [["nose", "noose"]]}, {}, r"dog: flip_pairs: found \['nose', 'noose'\]"),
    ],
)
def test_faults_of_joints(tmp_path, change, settings, message):
    keypoints = KeypointSettings(**settings)
    with pytest.raises(UserError, match=message) as caught:
        prepared(tmp_path, [DOG | change], [annotation(1, flat(PLACES))], keypoints=keypoints)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("told", "settings"),
    [
        ({"skeleton": [[0, 1]]}, {"connections": [["nose", "tail"]]}),
        ({"flip": {"nose": "noose"}}, {"flip": {"nose": "tail"}}),
        ({"sigmas": [0.1]}, {"sigmas": 0.07}),
        ({"standing_pose": [[0, 0]]}, {"standing_pose": PLACES.tolist()}),
    ],
)
def test_settings_win_over_faults_of_the_category(tmp_path, told, settings):
    keypoints = KeypointSettings(**settings)
    prepared(tmp_path / "told", [DOG | told], [annotation(1, flat(PLACES))], keypoints=keypoints)
    prepared(tmp_path / "alone", [DOG], [annotation(1, flat(PLACES))], keypoints=keypoints)
    assert skeleton_of(tmp_path / "told").settings() == skeleton_of(tmp_path / "alone").settings()


def test_a_set_in_another_order_has_the_order_of_the_file(tmp_path):
    person = PERSON | {"keypoints": [name.replace("_", " ") for name in KEYPOINTS[::-1]]}
    prepared(tmp_path, [person], [boxed(1)], keypoints=KeypointSettings(set="coco"))
    skeleton = skeleton_of(tmp_path)
    assert skeleton.keypoints[:2] == ("right ankle", "left ankle")
    np.testing.assert_array_equal(skeleton.sigmas, COCO.sigmas[::-1])
    assert [(16 - a, 16 - b) for a, b in skeleton.connections] == list(COCO.connections)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("wholebdy", r"no set of joints 'wholebdy' \(did you mean 'wholebody'\?\); there are coco, crowdpose"),
        ({"set": "coco", "keypoints": ["a", "b"]}, "leave out set or keypoints"),
    ],
)
def test_faulty_settings(value, message):
    with pytest.raises(ValidationError, match=message):
        KeypointSettings.model_validate(value)
    assert KeypointSettings.model_validate("ap10k") == KeypointSettings(set="ap10k")


# --- the category ---

PERSON = {"id": 1, "name": "person", "keypoints": list(KEYPOINTS), "skeleton": [[1, 2]]}
HAND = {"id": 7, "name": "hand", "keypoints": ["wrist", "tip"], "skeleton": [[1, 2]]}


@pytest.mark.parametrize(
    ("categories", "wanted", "people"),
    [
        ([DOG, PERSON], None, "person"),
        ([DOG, PERSON], "dog", "dog"),
        ([DOG, {"id": 1, "name": "person"}], None, "dog"),
        ([{"id": 1, "name": "person"}, {"id": 2, "name": "cup"}], None, "person"),
        ([{"id": 2, "name": "cup"}], None, None),
        ([DOG, DOG | {"id": 19, "name": "cat"}], None, "instance"),
        ([DOG | {"supercategory": "pet"}, DOG | {"id": 19, "name": "cat", "supercategory": "pet"}, HAND],
         ["dog", "cat"], "pet"),
        ([HAND, DOG], None, r"hand \(2 keypoints\), dog \(5 keypoints\).*write the one to use.*to coco\.category"),
        ([HAND, DOG], "dogs", r"coco\.category: .*no category 'dogs' \(did you mean 'dog'\?\); there are hand"),
        ([], None, "categories: the list is empty"),
    ],
)  # fmt: skip
def test_the_category_of_people(tmp_path, categories, wanted, people):
    if isinstance(people, str) and " " in people:
        with pytest.raises(UserError, match=people):
            prepared(tmp_path, categories, [boxed(1)], category=wanted)
        return
    preparation, content = prepared(tmp_path, categories, [boxed(categories[0]["id"])], category=wanted)
    assert read_facts(tmp_path / "prepared")["people"] == people
    with_joints = [one["name"] for one in content["categories"] if "keypoints" in one]
    assert with_joints in ([], [people])
    assert (people is None) == any("only boxes" in line for line in preparation.lines())


@pytest.mark.parametrize("joints", [["tip"], 3])
def test_joints_of_categories_that_are_not_chosen_do_not_matter(tmp_path, joints):
    odd = {"id": 2, "name": "ball", "keypoints": joints}
    _, content = prepared(tmp_path, [odd, DOG], [annotation(1, flat(PLACES))], category="dog")
    assert [one["name"] for one in content["categories"] if "keypoints" in one] == ["dog"]
    _, content = prepared(tmp_path / "people", [odd, PERSON], [boxed(1)])
    assert [one["name"] for one in content["categories"] if "keypoints" in one] == ["person"]
    with pytest.raises(UserError, match=r"has no category 'dig' .*; there are ball \([01] keypoints\), dog \(5 keypoi"):
        prepared(tmp_path / "wrong", [odd, DOG], [boxed(2)], category="dig")
    with pytest.raises(UserError, match=r"categories: ball: keypoints: found .*expected two or more names, each once"):
        prepared(tmp_path / "ball", [odd, DOG], [boxed(2)], category="ball")


def test_animals_of_several_species_become_one_category(tmp_path):
    names = list(AP10K.keypoints)
    species = [
        {"id": number, "name": name, "supercategory": family, "keypoints": names, "skeleton": [[1, 2]]}
        for number, name, family in ((3, "antelope", "Bovidae"), (8, "fox", "Canidae"), (21, "wolf", "Canidae"))
    ]
    places = np.random.default_rng(2).integers(10, 70, (17, 2))
    records = [annotation(number, flat(places), category=kind) for number, kind in ((1, 8), (2, 3), (3, 21), (4, 8))]
    preparation, content = prepared(tmp_path, species, records)
    assert [(one["id"], one["name"], one["keypoints"]) for one in content["categories"]] == [(3, "animal", names)]
    assert {one["category_id"] for one in content["annotations"]} == {3}
    assert [one["source_category"] for one in content["annotations"]] == ["fox", "antelope", "wolf", "fox"]
    facts = read_facts(tmp_path / "prepared")
    assert (facts["people"], facts["categories"]) == ("animal", [{"id": 3, "name": "animal"}])
    assert facts["annotated"]["train"]["persons"] == 4
    skeleton = skeleton_of(tmp_path)
    assert skeleton.sigmas.tolist() == AP10K.sigmas.tolist()
    assert skeleton.connections == ((0, 1),)  # the category's own
    lines = list(preparation.lines())
    assert any("animal is antelope, fox, wolf" in line for line in lines)
    assert "categories: fox 2, antelope 1, wolf 1" in lines[-1]


def test_species_that_differ_are_told(tmp_path):
    species = [DOG | {"sigmas": [0.1] * 5}, DOG | {"id": 19, "name": "cat", "sigmas": [0.2] * 5}]
    preparation, _ = prepared(tmp_path / "a", species, [annotation(1, flat(PLACES))])
    assert skeleton_of(tmp_path / "a").sigmas.tolist() == [0.1] * 5
    told = [line for line in preparation.notes if "differ in" in line]
    assert len(told) == 1
    assert "a.json: categories: dog, cat differ in sigmas; that of dog counts" in told[0]
    settings = KeypointSettings(sigmas=0.07)
    preparation, _ = prepared(tmp_path / "b", species, [annotation(1, flat(PLACES))], keypoints=settings)
    assert not any("differ in" in line for line in preparation.notes)


def test_crowdpose_comes_with_the_skeleton_of_another_set(tmp_path):
    category = {"id": 1, "name": "person", "keypoints": list(CROWDPOSE.keypoints), "skeleton": [[16, 14], [14, 12]]}
    places = np.random.default_rng(2).integers(10, 70, (14, 2))
    preparation, content = prepared(tmp_path, [category], [annotation(1, flat(places), category=1)])
    assert skeleton_of(tmp_path).settings() == CROWDPOSE.settings()
    assert content["categories"][0]["skeleton"] == [[a + 1, b + 1] for a, b in CROWDPOSE.connections]
    assert [line.split(":")[0] for line in preparation.notes] == ["warning"]
    assert "[16, 14]" in preparation.notes[0]


# --- COCO-WholeBody ---

WHOLE = KeypointSettings(set="wholebody")


def wholebody_record(**changes):
    random = np.random.default_rng(5)
    points = partial(random.integers, 5, 70)
    parts = {"foot_kpts": 6, "face_kpts": 68, "lefthand_kpts": 21, "righthand_kpts": 21}
    record = annotation(1, flat(points((17, 2))), category=1)
    record |= {key: [float(v) for v in flat(points((count, 2)))] for key, count in parts.items()}
    record |= {f"{part}_valid": True for part in ("foot", "face", "lefthand", "righthand")}
    return record | {"face_box": [1, 2, 3, 4]} | changes


def test_wholebody_annotations_are_joined(tmp_path):
    record = wholebody_record(righthand_valid=False)
    record["foot_kpts"][2] = 0.4  # the visibility of the left big toe
    record["foot_kpts"][5] = 0.0
    record["lefthand_kpts"][0] = -3.0  # outside of the image
    _, content = prepared(tmp_path, [PERSON], [record], keypoints=WHOLE)
    (written,) = content["annotations"]
    joints = np.array(written["keypoints"]).reshape(133, 3)
    assert joints[:17].ravel().tolist() == record["keypoints"]
    assert joints[17].tolist() == [*record["foot_kpts"][:2], 2]
    assert joints[18].tolist() == [0, 0, 0]
    assert joints[23:91].ravel().tolist() == record["face_kpts"]
    assert joints[91].tolist() == [0, 0, 0]
    assert joints[92:112].ravel().tolist() == record["lefthand_kpts"][3:]
    assert not joints[112:].any()
    assert written["num_keypoints"] == 133 - 1 - 1 - 21
    assert "face_kpts" not in written
    assert written["face_box"] == [1, 2, 3, 4]
    assert content["categories"][0]["keypoints"] == list(WHOLEBODY.keypoints)
    assert skeleton_of(tmp_path).settings() == WHOLEBODY.settings()


def test_parts_of_wholebody_as_texts(tmp_path):
    record = wholebody_record()
    texts = record | {key: [str(one) for one in record[key]] for key in ("foot_kpts", "righthand_kpts")}
    preparation, content = prepared(tmp_path, [PERSON], [texts], keypoints=WHOLE)
    (written,) = content["annotations"]
    parts = ("keypoints", "foot_kpts", "face_kpts", "lefthand_kpts", "righthand_kpts")
    assert written["keypoints"] == [one for part in parts for one in record[part]]
    assert preparation.repairs().counts == {"numbers written as text, or whole numbers as 1.0": 1}


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"face_kpts": [0] * 200}, range(23, 91)),
        ({"foot_kpts": None}, range(17, 23)),
        ({"keypoints": [0] * 399}, range(17)),
        ({"righthand_kpts": [math.nan] * 63}, range(112, 133)),
    ],
)
def test_a_faulty_part_of_wholebody_costs_itself(tmp_path, changes, lost):
    preparation, content = prepared(tmp_path, [PERSON], [wholebody_record(**changes)], keypoints=WHOLE)
    (written,) = content["annotations"]
    assert not preparation.rejected
    assert [joint for joint, flag in enumerate(written["keypoints"][2::3]) if not flag] == [*lost]
    assert written["num_keypoints"] == 133 - len(lost)


# --- further splits ---


@pytest.mark.parametrize("categories", [[PERSON, {"id": 2, "name": "bicycle"}], None, []])
def test_a_test_set_of_images_alone(tmp_path, categories):
    raw = tmp_path / "raw"
    train = write_raw(raw, [DOG], [annotation(1, flat(PLACES), person_id=5)])
    test = write_raw(raw, categories, None, images=3, name="image_info.json")
    assert "annotations" not in read_head(test)[1]
    folder = tmp_path / "prepared"
    folder.mkdir()
    preparation = Preparation(folder)
    add(preparation, train)
    add(preparation, test, "test-dev")
    preparation.finish()
    content = json.loads((folder / "test-dev.json").read_text())
    assert len(content["images"]) == 3
    assert content["annotations"] == []
    assert content["categories"] == [DOG]
    facts = read_facts(folder)
    assert facts["annotated"]["test-dev"] | {"annotated": False, "persons": 0} == facts["annotated"]["test-dev"]
    assert not json.loads((folder / "statistics.json").read_text())["test-dev"]["annotated"]
    assert facts["categories"] == [{"id": 18, "name": "dog"}]
    assert list(preparation.lines())[-1] == "test-dev: 3 images without annotations, 0 records rejected"


@pytest.mark.parametrize(
    ("category", "message"),
    [
        (DOG | {"id": 19}, r"people are 'dog' with id 19; in the file of another split they are 'dog' with id 18"),
        (DOG | {"keypoints": [*JOINTS[:4], "eye"]}, "dog has the joints nose, left_paw, right_paw, tail, eye"),
        ({"id": 18, "name": "cat"}, "id 18 is 'cat', and 'dog' in the file of another split"),
    ],
)
def test_splits_must_agree(tmp_path, category, message):
    preparation = Preparation(tmp_path)
    add(preparation, write_raw(tmp_path, [DOG], [annotation(1, flat(PLACES))]))
    with pytest.raises(UserError, match=message):
        add(preparation, write_raw(tmp_path, [category], [], name="b.json"), "validation")


CAT = DOG | {"id": 1, "name": "cat", "supercategory": "animal"}
PUPPY = DOG | {"supercategory": "animal"}


def of_validation(folder, train, validation):
    """Prepare files of two splits, with an annotation for each category; return the content of the second."""
    preparation = Preparation(folder)
    for name, categories in (("train", train), ("validation", validation)):
        records = [
            annotation(number, flat(PLACES), category=one["id"]) for number, one in enumerate(categories, start=1)
        ]
        add(preparation, write_raw(folder / "raw", categories, records, name=f"{name}.json"), name)
    preparation.finish()
    return json.loads((folder / "validation.json").read_text())


@pytest.mark.parametrize(
    ("train", "validation", "categories", "people"),
    [
        ([CAT, PUPPY], [CAT], [(1, "animal", True)], {1: "cat"}),
        ([CAT, PUPPY], [PUPPY], [(1, "animal", True)], {1: "dog"}),
        ([PUPPY], [CAT, PUPPY], [(1, "cat", False), (18, "dog", True)], {1: None, 18: None}),
    ],
    ids=["a cat of animals", "a dog of animals", "a cat apart"],
)
def test_categories_of_validation_are_those_of_train(tmp_path, train, validation, categories, people):
    """One of the categories that became one joins it; further ones with the same joints stay apart."""
    content = of_validation(tmp_path, train, validation)
    assert [(one["id"], one["name"], "keypoints" in one) for one in content["categories"]] == categories
    assert {one["category_id"]: one.get("source_category") for one in content["annotations"]} == people
    facts = read_facts(tmp_path)
    assert (facts["people"], facts["annotated"]["validation"]["persons"]) == (categories[-1][1], 1)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            [PUPPY | {"id": 7, "name": "fox"}],
            r"coco\.category: .*validation\.json has no category 'fox'; there are cat \(5 k",
        ),
        (
            [{"id": 18, "name": "dog"}],
            r"train\.json: .* have 15 numbers, 5 joints, and no category names them; write .* to",
        ),
    ],
)
def test_joints_of_validation_that_train_does_not_have(tmp_path, train, message):
    with pytest.raises(UserError, match=message):
        of_validation(tmp_path, train, [CAT, PUPPY] if "keypoints" in train[0] else [PUPPY])


# --- the picture ---


def test_the_picture_of_people(tmp_path):
    thing = {"id": 9, "image_id": 2, "category_id": 3, "bbox": [1, 1, 9, 9]}
    crowd = annotation(2, [0] * 15, iscrowd=1)
    records = [annotation(1, flat(PLACES, [2, 1, 0, 2, 2])), crowd, thing]
    pictures = []
    for name in ("a", "b"):
        prepared(tmp_path / name, [{"id": 3, "name": "ball\ud800"}, DOG], records)
        pictures.append((tmp_path / name / "prepared/plots/people.png").read_bytes())
    assert pictures[0] == pictures[1]
    with Image.open(tmp_path / "a/prepared/plots/people.png") as picture:
        above = picture.crop((0, 0, picture.width, picture.height - 18))  # without the legend
        colours = {colour for _, colour in above.getcolors(1 << 24)}
    assert {(0xFF, 0x3F, 0xD0), (0x7C, 0xFC, 0x00)} <= colours  # the crowd's box, a connection in the middle
