"""Skeletons: COCO's against COCO's own files and pycocotools, and what a recipe may say of others."""

import json

import numpy as np
import pytest
from pycocotools.cocoeval import Params

from figura.data.formats.skeletons import COCO, Skeleton, skeleton_from
from tests.real_people import REAL, needs_real

ARM = {
    "keypoints": ["hub", "left_tip", "right_tip"],
    "sigmas": [0.1, 0.05, 0.05],
    "connections": [["hub", "left_tip"], ["hub", "right_tip"]],
    "standing_pose": [[0.0, 1.0], [-1.0, 0.0], [1.0, 0.0]],
}


def edges(pairs):
    return {frozenset(pair) for pair in pairs}


def test_coco_sigmas_are_those_of_its_evaluation():
    assert np.allclose(COCO.sigmas, Params(iouType="keypoints").kpt_oks_sigmas, rtol=1e-12)


@needs_real
def test_coco_names_and_connections_are_those_of_its_files():
    file = next(p for p in sorted(REAL.rglob("*.json")) if "categories" in json.loads(p.read_text()))
    person = next(c for c in json.loads(file.read_text())["categories"] if c["name"] == "person")
    assert list(COCO.keypoints) == person["keypoints"]
    assert [[a + 1, b + 1] for a, b in COCO.connections] == person["skeleton"]


def test_coco_flip_swaps_left_and_right():
    swapped = [COCO.keypoints[place] for place in COCO.flip]
    words = {"left": "right", "right": "left"}
    assert swapped == ["_".join(words.get(word, word) for word in name.split("_")) for name in COCO.keypoints]


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


def test_coco_names_of_some_connections():
    def named(pairs, field):
        return tuple(COCO.keypoints[joint] for joint in pairs[field])

    assert named(COCO.connections, 0) == ("left_ankle", "left_knee")
    assert named(COCO.connections, 18) == ("right_ear", "right_shoulder")
    assert named(COCO.dense_connections, 9) == ("left_shoulder", "left_wrist")
    assert named(COCO.kinematic_tree, 15) == ("right_knee", "right_ankle")


def test_coco_standing_pose_and_score_weights():
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
    full = skeleton_from(
        ARM
        | {
            "flip": {"hub": "right_tip"},
            "dense_connections": [["left_tip", "right_tip"]],
            "kinematic_tree": [["hub", "left_tip"]],
            "score_weights": [3, 1, 1],
        }
    )
    assert full.flip == (2, 1, 0)
    assert full.dense_connections == ((1, 2),)
    assert full.kinematic_tree == ((0, 1),)
    assert full.score_weights.tolist() == [3, 1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"connections": [["hub", "left_tipp"]]}, ["connections", "'left_tipp'", "did you mean 'left_tip'"]),
        ({"connections": [["hub", "left_tip", "right_tip"]]}, ["connections.0"]),
        ({"connections": [["hub", "hub"]]}, ["connections", "two different joints"]),
        ({"connections": [["hub", "left_tip"], ["left_tip", "hub"]]}, ["connections", "once"]),
        ({"sigmas": [0.1, 0.1]}, ["sigmas", "(2,)", "(3,)"]),
        ({"sigmas": [0.1, 0.1, 0.0]}, ["sigmas", "positive"]),
        ({"sigmas": "wide"}, ["sigmas", "'wide'"]),
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


def test_a_missing_key_is_named():
    with pytest.raises(ValueError, match=r"standing_pose: missing"):
        skeleton_from({key: value for key, value in ARM.items() if key != "standing_pose"})
