"""The drawn dataset on disk: same seed same bytes, and what pycocotools says about it."""

import hashlib
import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools import mask as rle
from pycocotools.coco import COCO

from figura.base.errors import UserError
from figura.synthetic import SyntheticSettings, write_synthetic

SETTINGS = SyntheticSettings(
    image_size=128,
    jpeg_quality=90,
    scenes={"train": 24, "validation": 9},
    identities={"train": 12, "validation": 5},
    people_per_scene={1: 0.3, 2: 0.4, 3: 0.3},
    objects_per_scene={1: 0.5, 2: 0.5},
    height_range=(0.5, 0.9),
    views={"front": 0.6, "back": 0.2, "side": 0.2},
    poses={"standing": 0.4, "walking": 0.2, "waving": 0.1, "sitting": 0.1, "crouching": 0.1, "arms_up": 0.1},
    max_overlap=0.3,
    cut_share=0.4,
    crowd_share=0.3,
    limb_thickness=1.2,
    head_size=1.2,
    clutter=10,
)
SPLITS = ("train", "validation")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("synthetic")
    write_synthetic(SETTINGS, 7, path, False, workers=1)
    return path


@pytest.fixture(scope="module", params=SPLITS)
def coco(folder, request) -> COCO:
    return COCO(folder / f"{request.param}.json")


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def labelled_people(coco: COCO) -> list[dict]:
    return [one for one in coco.anns.values() if one["category_id"] == 1 and not one["iscrowd"]]


def test_the_same_seed_gives_the_same_bytes_for_any_number_of_workers(folder, tmp_path):
    write_synthetic(SETTINGS, 7, tmp_path / "again", False, workers=2)
    assert digests(tmp_path / "again") == digests(folder)
    assert len(digests(folder)) == 24 + 9 + 2


def test_another_seed_gives_other_bytes(folder, tmp_path):
    few = SETTINGS.model_copy(update={"scenes": SETTINGS.scenes.model_copy(update={"train": 2, "validation": 1})})
    write_synthetic(few, 8, tmp_path / "other", False, workers=1)
    first, second = digests(folder), digests(tmp_path / "other")
    assert all(first[name] != second[name] for name in second)


def test_pictures_of_an_earlier_run_are_not_overwritten(folder):
    before = digests(folder)
    with pytest.raises(UserError, match="is not empty"):
        write_synthetic(SETTINGS, 8, folder, False, workers=1)
    assert digests(folder) == before


def test_images_are_there_and_have_the_stated_size(coco, folder):
    for image in coco.imgs.values():
        picture = cv2.imread(str(folder / "images" / image["file_name"]))
        assert picture.shape == (image["height"], image["width"], 3) == (128, 128, 3)
        assert picture.std() > 5


def test_categories_are_cocos(coco):
    assert [(one["id"], one["name"]) for one in coco.cats.values()] == [
        (1, "person"), (2, "ball"), (3, "box"), (4, "bird"), (5, "car"),
    ]  # fmt: skip
    person = coco.cats[1]
    assert (person["keypoints"][0], person["keypoints"][9], person["keypoints"][16]) == (
        "nose", "left_wrist", "right_ankle",
    )  # fmt: skip
    assert len(person["skeleton"]) == 19
    assert {joint for pair in person["skeleton"] for joint in pair} == set(range(1, 18))


def test_boxes_and_areas_are_those_of_the_masks(coco):
    kinds = set()
    for one in coco.anns.values():
        mask = coco.annToMask(one)
        rows, columns = np.nonzero(mask)
        assert one["area"] == mask.sum() > 0
        x, y, width, height = one["bbox"]
        assert (x, y, x + width, y + height) == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        kinds.add(one["category_id"])
    assert kinds == {1, 2, 3, 4, 5}


def test_masks_never_overlap(coco):
    for image in coco.imgs:
        masks = [coco.annToMask(one).astype(int) for one in coco.imgToAnns[image]]
        assert np.max(np.sum(masks, axis=0)) == 1


def test_keypoints_are_consistent(coco):
    values = set()
    for one in labelled_people(coco):
        keypoints = np.array(one["keypoints"]).reshape(17, 3)
        labelled = keypoints[:, 2] > 0
        assert one["num_keypoints"] == labelled.sum()
        assert np.all(keypoints[~labelled] == 0)
        assert np.all((keypoints[labelled, :2] >= 0) & (keypoints[labelled, :2] < 128))
        grown = cv2.dilate(coco.annToMask(one), np.ones((3, 3), np.uint8))
        for x, y, _ in keypoints[keypoints[:, 2] == 2]:
            assert grown[int(y), int(x)]
        values |= set(keypoints[:, 2].tolist())
    assert values == {0, 1, 2}


def test_clothes_lie_inside_their_person(coco):
    both = 0
    for one in labelled_people(coco):
        mask, top, bottom = (rle.decode(part) for part in (one["segmentation"], *one["parts"].values()))
        assert list(one["parts"]) == ["top", "bottom"]
        assert np.all(top + bottom <= mask)
        both += top.any() and bottom.any()
        assert (one["pose"] in SETTINGS.poses, one["view"] in SETTINGS.views) == (True, True)
    assert both > 0.8 * len(labelled_people(coco))


def test_crowds_are_regions_without_keypoints(folder):
    crowds = [one for split in SPLITS for one in COCO(folder / f"{split}.json").anns.values() if one["iscrowd"]]
    assert len(crowds) >= 3
    for one in crowds:
        assert one["category_id"] == 1
        assert "keypoints" not in one
        assert "person_id" not in one
        assert isinstance(one["segmentation"]["counts"], str | bytes)


def test_no_validation_identity_is_in_training(folder):
    train, validation = (
        {one["person_id"] for one in labelled_people(COCO(folder / f"{split}.json"))} for split in SPLITS
    )
    assert train <= set(range(1, 13))
    assert validation <= set(range(13, 18))
    assert len(train) >= 10
    assert len(validation) >= 4


def test_an_identity_keeps_its_clothes(folder):
    """Among plain tops, colours within a person differ less over scenes than between persons."""
    coco = COCO(folder / "train.json")
    colours: dict[int, list[np.ndarray]] = {}
    for one in labelled_people(coco):
        mask = rle.decode(one["parts"]["top"]).astype(bool)
        if mask.sum() < 80:
            continue
        picture = cv2.imread(str(folder / "images" / coco.imgs[one["image_id"]]["file_name"]))
        colour = picture[mask].mean(axis=0)
        colours.setdefault(one["person_id"], []).append(colour / colour.sum())  # without the light's brightness
    repeated = [np.array(found) for found in colours.values() if len(found) >= 2]
    assert len(repeated) >= 6
    within = np.mean([found.std(axis=0).mean() for found in repeated])
    between = np.std([found.mean(axis=0) for found in repeated], axis=0).mean()
    assert within < 0.35 * between


def test_json_is_compact_sorted_and_written_last(folder):
    text = (folder / "train.json").read_text()
    content = json.loads(text)
    assert text == json.dumps(content, separators=(",", ":"))
    for kind in ("images", "annotations"):
        ids = [one["id"] for one in content[kind]]
        assert ids == sorted(set(ids))
    assert not list(folder.glob(".*"))
