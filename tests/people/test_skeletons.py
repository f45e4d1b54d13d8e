"""Skeletons: COCO's and other published ones against their files and evaluations, and what a recipe may say."""

import json

import numpy as np
import pytest
from pycocotools.cocoeval import Params

from figura.formats.keypoint_sets import AP10K, CROWDPOSE, SETS, WHOLEBODY, reordered, set_of
from figura.formats.skeletons import COCO, Skeleton, mirrored_names, skeleton_from
from tests.real_people import REAL, needs_real

OF_COCO = Params(iouType="keypoints").kpt_oks_sigmas
ARM = {
    "keypoints": ["hub", "left_tip", "right_tip"],
    "sigmas": [0.1, 0.05, 0.05],
    "connections": [["hub", "left_tip"], ["hub", "right_tip"]],
    "standing_pose": [[0.0, 1.0], [-1.0, 0.0], [1.0, 0.0]],
}


def edges(pairs):
    return {frozenset(pair) for pair in pairs}


@needs_real
def test_coco_names_and_connections_are_those_of_its_files():
    file = next(p for p in sorted(REAL.rglob("*.json")) if "categories" in json.loads(p.read_text()))
    person = next(c for c in json.loads(file.read_text())["categories"] if c["name"] == "person")
    assert list(COCO.keypoints) == person["keypoints"]
    assert [[a + 1, b + 1] for a, b in COCO.connections] == person["skeleton"]


def test_coco_connection_sets():
    assert [len(x) for x in (COCO.connections, COCO.dense_connections, COCO.kinematic_tree)] == [19, 25, 16]
    assert len(edges(COCO.connections) | edges(COCO.dense_connections)) == 44
    reached = [0]
    for start, end in COCO.kinematic_tree:
        assert start in reached
        reached.append(end)
    assert sorted(reached) == list(range(17))
    for pairs in (COCO.connections, COCO.dense_connections, COCO.kinematic_tree):
        assert edges((COCO.flip[a], COCO.flip[b]) for a, b in pairs) == edges(pairs)


def test_coco_sigmas_standing_pose_and_score_weights():
    assert np.allclose(COCO.sigmas, OF_COCO, rtol=1e-12)
    width, height = np.ptp(COCO.standing_pose, axis=0)
    assert np.isclose(2 * np.sqrt(width * height), 11.653326, atol=1e-6)  # OpenPifPaf's value
    assert np.isclose(np.prod(np.ptp(COCO.standing_pose[11:], axis=0)), 2.8 * 4)
    assert COCO.standing_pose[5, 0] < 0 < COCO.standing_pose[6, 0]
    assert COCO.score_weights.tolist() == [3, 3, 3, *[1] * 14]
    assert not COCO.sigmas.flags.writeable


def test_a_skeleton_from_a_recipe():
    found = skeleton_from(ARM)
    assert isinstance(found, Skeleton)
    assert found.connections == ((0, 1), (0, 2))
    assert found.flip == (0, 2, 1)
    assert found.dense_connections == found.kinematic_tree == ()
    assert found.score_weights.tolist() == [1, 1, 1]
    assert found.standing_pose.shape == (3, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"connections": [["hub", "left_tipp"]]}, ["connections", "'left_tipp'", "did you mean 'left_tip'"]),
        ({"connections": [["hub", "hub"]]}, ["connections", "two different joints"]),
        ({"connections": [["hub", "left_tip"], ["left_tip", "hub"]]}, ["connections", "once"]),
        ({"sigmas": [0.1, 0.1]}, ["sigmas", "(2,)", "(3,)"]),
        ({"sigmas": [0.1, 0.1, 0.0]}, ["sigmas", "positive"]),
        ({"standing_pose": [[0.0, 1.0], [0.0, 0.0]]}, ["standing_pose", "(2, 2)", "(3, 2)"]),
        ({"keypoints": ["hub", "hub", "left_tip", "right_tip"]}, ["keypoints", "each once"]),
        ({"flip": {"hub": "left_tip", "left_tip": "right_tip"}}, ["flip", "pairs swapped"]),
        ({"sigma": [1.0]}, ["unknown key 'sigma'", "did you mean 'sigmas'"]),
    ],
)
def test_bad_skeletons_are_explained(change, words):
    with pytest.raises(ValueError, match=r".") as error:
        skeleton_from(ARM | change)
    for word in words:
        assert word in str(error.value)


# --- published sets of joints ---

EVERY = pytest.mark.parametrize("name", SETS)


COUNTS = {"coco": 17, "crowdpose": 14, "wholebody": 133, "halpe": 136, "halpe26": 26, "ochuman": 17, "posetrack18": 17,
          "mpii": 16, "humanart": 17, "humanart21": 21, "body_25": 25, "ap10k": 17}  # fmt: skip


@EVERY
def test_a_set_has_its_joints_connected_and_mirrored(name):
    skeleton = SETS[name]
    count = len(skeleton.keypoints)
    assert count == COUNTS[name]
    mirrored = edges((skeleton.flip[a], skeleton.flip[b]) for a, b in skeleton.connections)
    assert mirrored == edges(skeleton.connections)
    reached, front = {0}, [0]
    while front:
        joint = front.pop()
        near = {b if a == joint else a for a, b in skeleton.connections if joint in (a, b)} - reached
        reached |= near
        front += near
    assert reached == set(range(count))
    unlike = np.flatnonzero(skeleton.sigmas[list(skeleton.flip)] != skeleton.sigmas)
    feet_and_face = range(17, 91)  # whose sides were measured apart
    assert set(unlike.tolist()) <= set(feet_and_face if name == "wholebody" else ())


@EVERY
def test_plain_values_build_an_equal_skeleton(name):
    skeleton = SETS[name]
    again = skeleton_from(skeleton.settings())
    assert again.settings() == skeleton.settings()
    assert again.flip == skeleton.flip
    assert again.connections == skeleton.connections
    assert np.array_equal(again.sigmas, skeleton.sigmas)


def test_crowdpose_has_the_sigmas_of_cocos_limbs():
    # crowdposetools/cocoeval.py: shoulders, elbows, wrists, hips, knees, ankles as in COCO, head and neck 0.079
    assert np.allclose(CROWDPOSE.sigmas, [*OF_COCO[5:], 0.079, 0.079])
    assert CROWDPOSE.keypoints[-2:] == ("head", "neck")


def test_wholebody_has_the_sigmas_of_its_evaluation():
    assert np.allclose(WHOLEBODY.sigmas[:17], OF_COCO)
    assert WHOLEBODY.sigmas[17:23].tolist() == [0.068, 0.066, 0.066, 0.092, 0.094, 0.094]
    # sums over MMPose's copy of the list (coco_wholebody.py): the face's 68, a hand's 21
    assert np.isclose(WHOLEBODY.sigmas[23:91].sum(), 1.137)
    assert np.isclose(WHOLEBODY.sigmas[91:112].sum(), 0.553)
    assert np.array_equal(WHOLEBODY.sigmas[91:112], WHOLEBODY.sigmas[112:])
    assert WHOLEBODY.keypoints[:17] == COCO.keypoints
    assert [WHOLEBODY.keypoints[place] for place in (17, 22, 23, 90, 91, 112, 132)] == [
        "left_big_toe", "right_heel", "face-0", "face-67", "left_hand_root", "right_hand_root", "right_pinky_finger4",
    ]  # fmt: skip


def test_mirrored_joints_of_the_face():
    # pairs of the 68 landmarks of iBUG 300-W, counted from 0
    pairs = ((0, 16), (8, 8), (17, 26), (21, 22), (27, 27), (31, 35), (36, 45), (39, 42), (41, 46), (48, 54), (55, 59),
             (60, 64), (62, 62), (65, 67))  # fmt: skip
    for one, other in pairs:
        assert WHOLEBODY.flip[23 + one] == 23 + other
    assert WHOLEBODY.flip[91] == 112
    # a mirrored standing pose is the same pose, but for the arms and legs that COCO's has at different heights
    mirrored = WHOLEBODY.standing_pose[list(WHOLEBODY.flip)] * (-1, 1)
    assert np.allclose(mirrored[23:91], WHOLEBODY.standing_pose[23:91], atol=1e-9)


def test_ap10k_has_the_sigmas_of_its_repository():
    by_part = {"eye": 0.025, "nose": 0.026, "neck": 0.035, "tail": 0.035, "shoulder": 0.079, "elbow": 0.072,
               "front_paw": 0.062, "hip": 0.107, "knee": 0.087, "back_paw": 0.089}  # fmt: skip
    for name, sigma in zip(AP10K.keypoints, AP10K.sigmas, strict=True):
        assert sigma == next(value for part, value in by_part.items() if name.endswith(part))


def test_a_set_is_found_by_its_names_in_any_order():
    names = AP10K.keypoints[::-1]
    found = set_of(names)
    assert found is not None
    assert found.keypoints == names
    assert found.sigmas.tolist() == AP10K.sigmas[::-1].tolist()
    assert edges(map(frozenset, found.settings()["connections"])) == edges(AP10K.settings()["connections"])
    assert found.settings()["flip"].keys() | found.settings()["flip"].values() == {
        name for name in names if name.startswith(("left", "right"))
    }
    assert reordered(found, AP10K.keypoints).settings() == AP10K.settings()
    assert set_of(names[1:]) is None


def test_sets_have_the_published_order():
    # Halpe-FullBody/README.md, MPII's joint ids, PoseTrack's categories, OpenPose's doc/02_output.md
    places = {
        "halpe": {0: "nose", 16: "right_ankle", 17: "head", 18: "neck", 19: "hip", 20: "left_big_toe",
                  21: "right_big_toe", 22: "left_small_toe", 25: "right_heel", 26: "face-0", 93: "face-67",
                  94: "left_hand_root", 115: "right_hand_root", 135: "right_pinky_finger4"},
        "mpii": {0: "right_ankle", 5: "left_ankle", 6: "pelvis", 7: "thorax", 8: "upper_neck", 9: "head_top",
                 10: "right_wrist", 15: "left_wrist"},
        "posetrack18": {0: "nose", 1: "head_bottom", 2: "head_top", 3: "left_ear", 16: "right_ankle"},
        "humanart21": {16: "right_ankle", 17: "left_finger", 20: "right_toe"},
        "body_25": {1: "neck", 2: "right_shoulder", 7: "left_wrist", 8: "hip", 9: "right_hip", 14: "left_ankle",
                    15: "right_eye", 18: "left_ear", 19: "left_big_toe", 21: "left_heel", 24: "right_heel"},
    }  # fmt: skip
    for name, joints in places.items():
        keypoints = SETS[name].keypoints
        assert {place: keypoints[place] for place in joints} == joints
    # halpecocotools/cocoeval.py: the body as COCO, head, neck and hip 0.08, feet 0.089, face and hands 0.015
    assert np.allclose(SETS["halpe"].sigmas, [*OF_COCO, *[0.08] * 3, *[0.089] * 6, *[0.015] * 110])
    assert SETS["body_25"].sigmas[[1, 8, 24]].tolist() == [0.08, 0.08, 0.089]


def test_a_set_is_found_in_another_spelling():
    spelled = [f"{name[0].upper()}{name.split('_')[1].title()}" if "_" in name else "Nose" for name in COCO.keypoints]
    assert spelled[1:3] == ["LEye", "REye"]
    found = set_of(spelled)
    assert found is not None
    assert found.keypoints == tuple(spelled)
    assert (found.flip, found.connections) == (COCO.flip, COCO.connections)
    assert set_of(["Left Eye", "eye-left", *COCO.keypoints[2:]]) is None


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        (["nose", "left_eye", "right_eye"], {"left_eye": "right_eye"}),
        (["eye_left", "eye_right", "leftover"], {"eye_left": "eye_right"}),
        (["L_F_Paw", "R_F_Paw", "L_B_Paw"], {"L_F_Paw": "R_F_Paw"}),
        (["LEye", "REye", "tailL", "tailR"], {"LEye": "REye", "tailL": "tailR"}),
        (["LeftArm", "RightArm", "left-leg", "right-leg"], {"LeftArm": "RightArm", "left-leg": "right-leg"}),
        (["l", "r", "lip", "rip"], {"l": "r"}),
        (["left1", "right1", "left2", "L1", "R1", "ear1", "ear2"], {"left1": "right1", "L1": "R1"}),
        (["eye1L", "eye1R", "leg2_l", "leg2_r"], {"eye1L": "eye1R", "leg2_l": "leg2_r"}),
        (["l_arm_l", "r_arm_l", "l_arm_r"], {}),
        (["left_eye", "rightEye"], {}),
    ],
)
def test_mirrored_names(names, pairs):
    assert mirrored_names(names) == pairs
