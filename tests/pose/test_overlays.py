"""Overlays: which pixels change and which do not, for records made by hand on plain pictures."""

import numpy as np
import pytest
from pydantic import ValidationError

from figura.data.formats.skeletons import COCO, skeleton_from
from models.pose.decode.overlays import COLOURS, OverlayStyle, overlay

SIDE = 400  # large enough not to be enlarged
GREY = np.full((SIDE, SIDE, 3), 120, np.uint8)
PLAIN = OverlayStyle(scores=False)
SHOULDER, ELBOW, WRIST, HIP, KNEE = 5, 7, 9, 11, 13  # on the left
ARM = {SHOULDER: (100, 100), ELBOW: (200, 100), WRIST: (300, 200)}


def person(joints, confidence=0.9, **more):
    keypoints = np.zeros((17, 3))
    for joint, place in joints.items():
        keypoints[joint] = (*place, confidence)
    return {"keypoints": keypoints.ravel().tolist(), **more}


def changed(picture, before=GREY):
    return (picture != before).any(axis=2)


def far_from(lines, reach):
    """Mask of the pixels farther than `reach` from each of the lines."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    points = np.stack([columns, rows], axis=-1).astype(float)
    far = np.ones((SIDE, SIDE), bool)
    for start, end in np.array(lines, dtype=float):
        along = np.clip((points - start) @ (end - start) / max(((end - start) ** 2).sum(), 1e-9), 0, 1)
        far &= np.linalg.norm(points - start - along[..., None] * (end - start), axis=-1) > reach
    return far


def test_a_limb_is_drawn_where_it_is_and_nowhere_else():
    drawn = changed(overlay(GREY, [person(ARM)], [], COCO, PLAIN))
    for share in np.linspace(0, 1, 40):
        for start, end in ((ARM[SHOULDER], ARM[ELBOW]), (ARM[ELBOW], ARM[WRIST])):
            x, y = np.rint((1 - share) * np.array(start) + share * np.array(end)).astype(int)
            assert drawn[y, x]
    lines = [(ARM[SHOULDER], ARM[ELBOW]), (ARM[ELBOW], ARM[WRIST])]
    assert not drawn[far_from(lines, 6.0)].any()


def test_each_connection_has_its_colour_or_each_person_has_one():
    # Connections 8 and 10 of COCO's skeleton are shoulder-elbow and elbow-wrist.
    several = overlay(GREY, [person(ARM)], [], COCO, PLAIN)
    assert tuple(several[100, 150]) == COLOURS[8]
    assert tuple(several[150, 250]) == COLOURS[10]
    other = {joint: (x, y + 150) for joint, (x, y) in ARM.items()}
    single = overlay(GREY, [person(ARM), person(other)], [], COCO, OverlayStyle(scores=False, colours="instance"))
    assert tuple(single[100, 150]) == tuple(single[150, 250]) == COLOURS[0]
    assert tuple(single[250, 150]) == COLOURS[1]
    assert tuple(single[100, 100]) == tuple(single[250, 100]) == (255, 255, 255)  # joints


def test_places_and_numbers_out_of_bounds_do_no_harm():
    far = person({SHOULDER: (-1e9, 50), ELBOW: (200, 100), WRIST: (1e30, -1e30), HIP: (np.nan, 10)})
    far |= {"bbox": [-1e9, 0, 2e9, 50], "score": 1.0}
    broken = person({SHOULDER: (np.inf, 5)}, bbox=[np.nan, 0, 1, 1], score=0.5)
    style = OverlayStyle(boxes=True, joint_scales=True)
    picture = overlay(GREY, [far, broken], [{"bbox": [390, 390, 500, 500], "score": 0.1, "category": "x"}], COCO, style)
    assert picture.shape == GREY.shape
    assert picture.dtype == np.uint8
    assert changed(picture)[100, 200]


def test_a_line_is_dashed_where_an_end_is_not_confident():
    def covered(confidence, threshold=0.5):
        style = OverlayStyle(scores=False, solid_threshold=threshold)
        return changed(overlay(GREY, [person(ARM, confidence)], [], COCO, style))[100, 110:190]

    assert covered(0.51).all()
    assert 0.4 < covered(0.5).mean() < 0.8
    assert covered(0.01, threshold=0.0).all()
    gaps = np.flatnonzero(np.diff(covered(0.3).astype(int)))
    assert len(gaps) >= 8  # dash, gap, dash, ...


def test_which_connections_are_drawn():
    # Shoulder-hip is standard; nose-shoulder is of the kinematic tree and dense; elbow-elbow is dense alone (2.3).
    joints = {0: (50, 50), SHOULDER: (150, 50), HIP: (150, 150), ELBOW: (50, 350), 8: (350, 350)}
    middle = {"nose-shoulder": (50, 100), "shoulder-hip": (100, 150), "elbow-elbow": (350, 200)}
    expected = {
        "standard": {"shoulder-hip"},
        "kinematic": {"nose-shoulder", "shoulder-hip"},
        "dense": {"nose-shoulder", "shoulder-hip", "elbow-elbow"},
    }
    for skeleton, names in expected.items():
        style = OverlayStyle(scores=False, skeleton=skeleton)
        drawn = changed(overlay(GREY, [person(joints)], [], COCO, style))
        assert {name for name, place in middle.items() if drawn[place]} == names


def test_boxes_and_labels():
    found = person(ARM, bbox=[90, 90, 220, 120], score=0.5)
    thing = {"bbox": [20, 300, 60, 40], "score": 0.25, "category": "ball", "category_id": 2}
    bare = changed(overlay(GREY, [found], [thing], COCO, PLAIN))
    assert bare[320, 20]
    assert bare[300, 50]
    assert not bare[320, 50]
    assert not bare[160, 90]  # people's boxes only if asked for
    assert changed(overlay(GREY, [found], [], COCO, OverlayStyle(boxes=True, scores=False)))[160, 90]
    labelled = overlay(GREY, [found], [thing], COCO)
    rows, columns = np.nonzero(changed(labelled, overlay(GREY, [found], [thing], COCO, PLAIN)))
    assert rows.min() > 60  # above the person
    assert ((rows < 92) | ((rows > 280) & (rows < 302) & (columns < 90))).all()  # and above the ball
    patch = labelled[75:90, 90:130].reshape(-1, 3)
    assert np.ptp(patch.mean(axis=1)) > 150  # bright on dark


def test_truth_is_grey_below_and_dashed_to_hidden_joints():
    truth = person(ARM, 2) | {"bbox": [90, 90, 220, 120], "iscrowd": 0}
    picture = overlay(GREY, [], [], COCO, PLAIN, truth=[truth])
    assert picture[100, 150].min() == picture[100, 150].max() > 180
    hidden = changed(overlay(GREY, [], [], COCO, PLAIN, truth=[person(ARM, 1)]))[100, 110:190]
    assert changed(picture)[100, 110:190].all()
    assert 0.3 < hidden.mean() < 0.8
    both = overlay(GREY, [person(ARM)], [], COCO, PLAIN, truth=[truth])
    assert tuple(both[100, 150]) == COLOURS[8]
    boxes = OverlayStyle(scores=False, boxes=True)
    region = {"bbox": [20, 20, 300, 300], "category_id": 1}
    whole, crowd = (changed(overlay(GREY, [], [], COCO, boxes, [region | {"iscrowd": one}])) for one in (0, 1))
    assert whole[20, 30:310].all()
    assert not crowd[20, 30:310].all()
    assert crowd.sum() > 200


def test_small_pictures_are_enlarged_by_a_whole_factor():
    small = np.full((96, 192, 3), 120, np.uint8)
    picture = overlay(small, [person({SHOULDER: (50, 40), ELBOW: (100, 40)})], [], COCO, PLAIN)
    assert picture.shape == (192, 384, 3)
    drawn = changed(picture, np.full_like(picture, 120))
    assert drawn[81, 110:190].all()  # the middle of row 40 lies between rows 80 and 81
    assert not drawn[90:].any()
    assert overlay(small, [], [], COCO, OverlayStyle(least_side=400)).shape == (288, 576, 3)


def test_whitening_scales_and_line_width():
    white = overlay(GREY, [], [], COCO, OverlayStyle(whiten=0.5))
    np.testing.assert_allclose(white, 255 - 0.5 * (255 - 120), atol=1)
    np.testing.assert_array_equal(overlay(GREY, [], [], COCO, OverlayStyle(whiten=1.0)), 255)
    body = dict(enumerate(20 + 30 * COCO.standing_pose * (1, -1) + (150, 310)))
    plain, scaled = (
        overlay(GREY, [person(body)], [], COCO, OverlayStyle(scores=False, joint_scales=on)) for on in (False, True)
    )
    # The box is 3.5 by 9.7 units of 30 px, the knee's sigma 0.087 (2.2): a circle of radius 7.6 px around it.
    radius = 30 * np.sqrt(3.5 * 9.7) * 0.087 / 2
    x, y = body[KNEE]
    rows, columns = np.nonzero(changed(scaled, plain))
    near = np.hypot(rows - y, columns - x)
    assert near[near < 14].mean() == pytest.approx(radius, abs=0.7)
    assert np.ptp(near[near < 14]) < 7
    thin, thick = (
        changed(overlay(GREY, [person(ARM)], [], COCO, OverlayStyle(scores=False, line_width=width)))[80:120, 150].sum()
        for width in (1, 5)
    )
    assert thick - thin == pytest.approx(4, abs=1)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="keypoints of 6 numbers: 51 are needed"):
        overlay(GREY, [{"keypoints": [1.0] * 6}], [], COCO)
    stick = skeleton_from(
        {"keypoints": ["a", "b"], "sigmas": [0.1, 0.1], "connections": [["a", "b"]], "standing_pose": [[0, 0], [0, 1]]}
    )
    for skeleton in ("kinematic", "dense"):
        with pytest.raises(ValueError, match=f"skeleton {skeleton}: this skeleton names no such connections"):
            overlay(GREY, [], [], stick, OverlayStyle(skeleton=skeleton))
    with pytest.raises(ValidationError, match="whiten"):
        OverlayStyle(whiten=1.5)


def test_truth_without_joints_is_a_grey_box():
    """Crowds and annotations without labelled joints are boxes, dotted for crowds; people with joints have none."""
    box = {"bbox": [40, 120, 200, 120]}
    side = slice(122, 238)
    drawn = {}
    for name, record in (
        ("object", box), ("unlabelled", box | {"keypoints": [0] * 51}), ("crowd", box | {"iscrowd": 1}),
    ):  # fmt: skip
        drawn[name] = changed(overlay(GREY, [], [], COCO, PLAIN, truth=[record]))[side, 38:43].any(axis=1)
    assert drawn["object"].all()
    assert drawn["unlabelled"].all()
    assert drawn["crowd"].any()
    assert not drawn["crowd"].all()
    labelled = changed(overlay(GREY, [], [], COCO, PLAIN, truth=[person(ARM, 2) | box]))
    assert not labelled[side, 38:43].any()
