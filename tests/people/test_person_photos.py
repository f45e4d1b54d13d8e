import json

import cv2
import numpy as np
import pytest
from people_of_noise import prepared
from skeletons_by_hand import DOG

from figura.base.errors import UserError
from figura.prediction.inputs import Photo
from models.people.pairs import PersonPairs
from models.people.photos import PersonPhotos

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # by pycocotools

BASIC = {"image_size": 32, "margin": 0.0, "min_keypoints": 3, "min_height": 10, "background": 0.5}


def person(score=0.9, box=(10, 5, 20, 40), category=1, confidence=0.8, joints=5):
    triples = [(12 + joint, 10 + 2 * joint, confidence if joint < joints else 0) for joint in range(17)]
    flat = [float(value) for triple in triples for value in triple]
    return {"image_id": 1, "category_id": category, "keypoints": flat, "bbox": list(box), "score": score}


@pytest.fixture
def photo(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "a.png"), pixels[..., ::-1])
    return Photo(tmp_path / "a.png", "deep/a", 1)


def beside(photo, content, name="a"):
    path = photo.path.parent / f"{name}.people.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_annotated_people_look_as_in_training(tmp_path):
    root = prepared(tmp_path, [None] * 3)
    content = json.loads((root / "validation.json").read_text())
    content["annotations"][1]["segmentation"] = [[6, 6, 40, 8, 30, 70]]
    (root / "validation.json").write_text(json.dumps(content))
    for one in content["annotations"]:
        (root / f"images/{one['id']}.people.json").write_text(json.dumps([one]))
    pairs = PersonPairs(root=str(root), split="validation", appearance="self", **BASIC)
    photos = PersonPhotos(**BASIC)
    files = sorted((root / "images").glob("*.png"))
    found = [one for n, path in enumerate(files, 1) for one in photos.examples(Photo(path, path.stem, n))]
    assert [one["name"] for one in found] == ["1-1", "2-1", "3-1"]
    for one, expected in zip(found, pairs, strict=True):
        for name in ("pose", "target", "appearance", "mask"):
            assert one[name].dtype == np.float32
            assert np.abs(one[name] - expected[name]).max() < 1e-6


def test_found_people(photo):
    beside(photo, [person(), person(score=0.1), person(category=2), person(joints=2), person(box=(0, 0, 30, 6))])
    first, second = PersonPhotos(**BASIC).examples(photo)  # whose category, joints and height are right
    assert (first["name"], second["name"]) == ("deep/a-1", "deep/a-2")
    assert [len(PersonPhotos(**BASIC, **more).examples(photo)) for more in (
        {"min_score": 0.5}, {"min_confidence": 0.9}, {"padding": 0.1},
    )] == [1, 0, 3]  # fmt: skip


def test_people_of_another_category(photo):
    beside(photo, [person(category=18), person(category=18)])
    with pytest.raises(UserError, match=r"no person has the category_id 1; there are \[18\]; .*data\.category"):
        PersonPhotos(**BASIC).examples(photo)
    assert len(PersonPhotos(**BASIC, category=18).examples(photo)) == 2
    beside(photo, [])
    assert PersonPhotos(**BASIC).examples(photo) == []


def test_own_joints(photo):
    joints = [float(value) for joint in range(5) for value in (12 + joint, 10 + 5 * joint, 0.8)]
    dog = person() | {"keypoints": joints}
    beside(photo, [dog, dog | {"keypoints": joints[:6] + [0.0] * 9}])
    settings = BASIC | {"skeleton": DOG, "min_keypoints": 0.6}  # three of five, or more
    (found,) = PersonPhotos(**settings).examples(photo)
    assert found["pose"].shape == (3, 32, 32)
    assert len(PersonPhotos(**settings | {"min_keypoints": 0.4}).examples(photo)) == 2
    beside(photo, [person()])  # seventeen joints
    assert PersonPhotos(**settings).examples(photo) == []
    assert photo.faults[-1].endswith("record 0 (counted from 0): keypoints are not 5 x 3 numbers: 51 numbers")


def test_a_found_box_is_padded_and_all_around_it_replaced(photo):
    beside(photo, [person(box=(12, 12, 20, 40))])
    (example,) = PersonPhotos(**BASIC | {"image_size": 48}, padding=0.1).examples(photo)
    # 4 pixels (a tenth of 40) on each side: (8, 8) to (36, 56); the square of 48 pixels around it begins at x = -2
    expected = np.full((48, 48, 3), 0.5)
    expected[:, 10:38] = photo.pixels()[8:56, 8:36] / 127.5 - 1
    assert np.abs(example["target"] - expected.transpose(2, 0, 1)).max() < 1e-5
    mask = np.zeros((48, 48))
    mask[:, 10:38] = 1
    assert np.array_equal(example["mask"][0], mask)


def test_people_in_a_folder_of_predictions(photo, tmp_path):
    beside(photo, [person()], "poses/deep/a")
    assert len(PersonPhotos(people=str(tmp_path / "poses"), **BASIC).examples(photo)) == 1
    with pytest.raises(UserError, match=r"a\.png: .*a\.people\.json: no such file; predict with a pose recipe first"):
        PersonPhotos(**BASIC).examples(photo)


@pytest.mark.parametrize(("content", "said"), [("{", "no readable JSON"), ("{}", "no COCO results of people: found")])
def test_files_that_are_no_results(photo, content, said):
    beside(photo, content)
    with pytest.raises(UserError, match=rf"a\.png: .*a\.people\.json: {said}"):
        PersonPhotos(**BASIC).examples(photo)
