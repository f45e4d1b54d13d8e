"""People and objects in the pixels of the file, from fields made by hand; and drawn over their pictures."""

import numpy as np
import pytest
import torch
from decoder_by_hand import fields_of
from standing_people import SIZE, scene_of, standing

from figura.base.errors import UserError
from figura.data.formats.skeletons import COCO
from figura.interfaces import Networks, State
from models.pose.decode.decoding import FindObjects, FindPeople
from models.pose.decode.injectors import Overlays
from models.pose.encoders import Caf, Cif, CifDet

STRIDE, IMAGE = 8, 77
POSE = standing()[:, :2].astype(float)
# The file is twice as large, and the picture begins 10 and 20 pixels in.
TO_ORIGINAL = np.float32([[2, 0, -20], [0, 2, -40]])
NOWHERE = Networks({}, {})


def scene(people=1):
    keypoints = np.full((people, 17, 3), 2, np.float32)
    keypoints[..., :2] = POSE
    if people == 2:
        keypoints[1, :, :2] = (POSE - 96) / 2 + (150, 120)
    return scene_of(keypoints, range(people))


def state_of(annotations, **more):
    area = np.float32([0, 0, 192, 192])
    encoders = {"cif": Cif(COCO, STRIDE), "caf": Caf(COCO, STRIDE), "cifdet": CifDet(2, STRIDE)}
    targets = {kind: encoder.encode(annotations, SIZE, area) for kind, encoder in encoders.items()}
    return State({kind: torch.from_numpy(fields_of(target, kind))[None] for kind, target in targets.items()} | {
        "image_id": torch.tensor([IMAGE]), "to_original": torch.from_numpy(TO_ORIGINAL)[None],
        "image": torch.zeros(1, 3, *SIZE),
    } | more)  # fmt: skip


def test_people_in_pixels_of_the_file():
    state = state_of(scene(2))
    FindPeople("cif", "caf", "people", STRIDE, decoder={"force_complete": True})(state, NOWHERE, 0)
    first, second = state["people"][0]
    assert first.keys() == {"image_id", "category_id", "keypoints", "bbox", "score"}
    assert (first["image_id"], first["category_id"]) == (IMAGE, 1)
    assert first["score"] >= second["score"] > 0.8  # golden value of one seed: 0.84859
    found = {
        round(joints[0, 0]): joints for joints in (np.reshape(one["keypoints"], (17, 3)) for one in (first, second))
    }
    for place, keypoints in enumerate(scene(2).keypoints):
        expected = keypoints[:, :2] * 2 - (20, 40)
        joints = found[round(float(expected[0, 0]))]
        np.testing.assert_allclose(joints[:, :2], expected, atol=0.02)
        assert joints[:, 2].min() > 0.7, place
    assert state["people_count"].tolist() == [2.0]
    assert state["people_score"].tolist() == pytest.approx([first["score"]], abs=1e-6)


def test_the_box_holds_joints_and_their_scales():
    state = state_of(scene())
    FindPeople("cif", "caf", "people", STRIDE)(state, NOWHERE, 0)
    (person,) = state["people"][0]
    scales = 93.2266 * COCO.sigmas * 2  # OpenPifPaf's value, in pixels of the file
    places = POSE * 2 - (20, 40)
    low, high = (places - scales[:, None]).min(axis=0), (places + scales[:, None]).max(axis=0)
    np.testing.assert_allclose(person["bbox"], [*low, *(high - low)], atol=0.05)


def test_a_joint_that_was_not_found_is_zeros():
    annotations = scene()
    annotations.keypoints[0, [7, 9], 2] = 0  # left elbow and wrist
    state = state_of(annotations)
    FindPeople("cif", "caf", "people", STRIDE)(state, NOWHERE, 0)
    joints = np.reshape(state["people"][0][0]["keypoints"], (17, 3))
    assert (joints[[7, 9]] == 0).all()
    assert (joints[8] != 0).all()


def test_at_most_so_many_and_no_less_than_so_good():
    for options in ({"maximum": 1}, {"least_score": 0.99}):
        state = state_of(scene(2))
        FindPeople("cif", "caf", "people", STRIDE, **options)(state, NOWHERE, 0)
        assert len(state["people"][0]) == (1 if "maximum" in options else 0)
    assert state["people_score"].tolist() == [0.0]


def test_objects_in_pixels_of_the_file():
    state = state_of(scene(2))
    FindObjects("cifdet", "objects", STRIDE)(state, NOWHERE, 0)
    found = {one["category_id"]: one for one in state["objects"][0]}
    assert set(found) == {1, 2}
    for category, box in zip((1, 2), scene(2).boxes, strict=True):
        np.testing.assert_allclose(found[category]["bbox"], [*(box[:2] * 2 - (20, 40)), *(box[2:] * 2)], atol=0.02)
        assert found[category]["image_id"] == IMAGE
        assert 0.5 < found[category]["score"] < 0.9
    assert state["objects_count"].tolist() == [2.0]


def test_records_carry_the_ids_of_the_data():
    things = [{"id": 18, "name": "dog"}, {"id": 90, "name": "toothbrush"}]
    state = state_of(scene(2))
    FindObjects("cifdet", "objects", STRIDE, categories=things)(state, NOWHERE, 0)
    FindPeople("cif", "caf", "people", STRIDE, category=18)(state, NOWHERE, 0)
    assert {one["category_id"] for one in state["objects"][0]} == {18, 90}
    assert {one["category_id"] for one in state["people"][0]} == {18}
    FindObjects("cifdet", "sure", STRIDE, least_score=0.95)(state, NOWHERE, 0)
    assert state["sure"] == [[]]
    with pytest.raises(UserError, match="cifdet has 2 fields, but there are 1 categories"):
        FindObjects("cifdet", "more", STRIDE, categories=things[:1])(state, NOWHERE, 0)
    for kind, names in ((FindPeople, ("cif", "caf")), (FindObjects, ("cifdet",))):
        with pytest.raises(ValueError, match="stride: missing"):
            kind(*names, "people")


def test_overlays_lie_where_the_people_are():
    state = state_of(scene())
    FindPeople("cif", "caf", "people", STRIDE)(state, NOWHERE, 0)
    FindObjects("cifdet", "objects", STRIDE)(state, NOWHERE, 0)
    for options, output in (({"people": "people"}, "people_drawn"), ({"objects": "objects"}, "objects_drawn")):
        Overlays("image", output, **options)(state, NOWHERE, 0)
    zoom = state["people_drawn"].shape[2] // SIZE[0]
    grey = state["people_drawn"][0, :, 0, 0]
    drawn = (state["people_drawn"][0] - grey[:, None, None]).abs().sum(dim=0).numpy() > 0.1
    shin = (POSE[13] + POSE[15]) / 2  # between left knee and ankle, in the picture's pixels
    assert drawn[int(shin[1] * zoom), int(shin[0] * zoom)]
    assert not drawn[:, : int(40 * zoom)].any()
    boxes = (state["objects_drawn"][0] - grey[:, None, None]).abs().sum(dim=0).numpy() > 0.1
    x, y, width, height = scene().boxes[0]
    assert boxes[int((y + height / 2) * zoom), round(x * zoom)]
    assert not boxes[int((y + height / 2) * zoom), int((x + width / 2) * zoom)]
