"""Annotations made right: every value is derived by hand, masks by pycocotools."""

import copy
import json
import math
import random

import numpy as np
import pytest
from pycocotools import mask as run_lengths

from figura.formats.coco import KEYPOINTS
from figura.formats.normalise import Conventions, Joints, labelled_points, normalise, place_of, triples
from figura.formats.person_check import check_person
from figura.formats.records import Size, UnusableError, is_finite, real_number, whole_number
from figura.formats.skeletons import COCO
from tests.real_people import REAL, needs_real

PICTURE = Size(width=48, height=32)
THREE = Joints(("top", "left", "right"))
POSE = [20.0, 5.0, 2, 10.0, 25.0, 2, 30.0, 25.0, 1]


def read(joints=THREE, conventions=None, picture=PICTURE, **record):
    """Return what `normalise` makes of a record, and the kinds of repairs."""
    before = copy.deepcopy(record)
    fixed, repairs = normalise(record, picture, joints, conventions or Conventions())
    assert repr(record) == repr(before)
    again, none = normalise(fixed, picture, joints and Joints(joints.names))
    assert (repr(again), none) == (repr(fixed), [])  # nothing is repaired twice
    return fixed, [repair.kind for repair in repairs]


# --- numbers ---


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7), (7.0, 7), ("7", 7), (" -7 ", -7), ("007", 7), ("7.0", 7), (2**63 - 1, 2**63 - 1),
        (1 - 2**63, 1 - 2**63),
        ("9223372036854775807", 2**63 - 1), (2**63, None), ("9223372036854775808", None), ("1" * 5000, None),
        (7.5, None), ("7.5", None), ("1e3", None), ("1_000", None), ("0x7", None), ("", None), ("x", None),
        (True, None), (None, None), ([7], None), (math.nan, None), (math.inf, None), ("nan", None),
    ],
)  # fmt: skip
def test_whole_numbers(value, number):
    assert whole_number(value) == number


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1.5, 1.5), ("1.5", 1.5), (" 1e2 ", 100), ("-.5", -0.5), ("1_0", None), ("1,5", None), ("inf", None),
        ("nan", None), (10**400, None), ("9" * 400, None), ("1e999", None), (False, None), (None, None), ({}, None),
    ],
)  # fmt: skip
def test_real_numbers(value, number):
    assert real_number(value) == number


# --- joints ---


@pytest.mark.parametrize(
    ("raw", "values"),
    [
        (POSE, POSE),
        ([[20.0, 5.0, 2], [10.0, 25.0, 2], [30.0, 25.0, 1]], POSE),
        ([20, 5, 0, 0, 30, 25], [20, 5, 2, 0, 0, 0, 30, 25, 2]),
        ([[20, 5], [0, 0], [30, 25]], [20, 5, 2, 0, 0, 0, 30, 25, 2]),
        ([[20, 5, 1], None, []], [20, 5, 1, 0, 0, 0, 0, 0, 0]),
        ([[20, 5, 1], [3], [1, 2, 3, 4]], [20, 5, 1, "", "", "", "", "", ""]),
        ([{"x": 20, "y": 5, "v": 1}, {"x": 3, "y": 4}, {}], [20, 5, 1, 3, 4, 2, 0, 0, 0]),
        ([{"x": 20, "y": 5, "confidence": 0.4}] * 3, [20, 5, 0.4] * 3),
        ({"right": [30, 25, 1], "top": {"x": 20, "y": 5, "visible": True}}, [20, 5, True, 0, 0, 0, 30, 25, 1]),
        ({"Right ": [30, 25, 1], "TOP": [20, 5, 2]}, [20, 5, 2, 0, 0, 0, 30, 25, 1]),
        ({"nose": [1, 2, 3]}, None), ([1, 2, 3, 4], None), ([[1, 2]], None), ("text", None), (5, None), (None, None),
    ],
)  # fmt: skip
def test_forms_of_keypoints(raw, values):
    assert triples(raw, THREE.names) == values


def test_points_that_are_labelled():
    assert labelled_points(["20", 5, 2, 1, 1, 0, None, 25, 2], THREE.names) == [(20, 5)]
    assert labelled_points([1, 2], THREE.names) == labelled_points(POSE, ()) == []


@pytest.mark.parametrize(
    ("flags", "least", "expected"),
    [
        ((0.3, 0.6, 0.0), 0.0, [2, 2, 0]),
        ((0.3, 0.6, 0.0), 0.5, [0, 2, 0]),
        ((1.0, 0.4, 1.0), 0.5, [2, 0, 2]),
        ((3, 2, -1), 0.0, [2, 2, 0]),
        ((True, False, 1), 0.0, [2, 0, 1]),
        (("2", "0", "1"), 0.0, [2, 0, 1]),
        ((None, 2, 2), 0.0, [0, 2, 2]),
    ],
)
def test_flags(flags, least, expected):
    keypoints = [value for index, flag in enumerate(flags) for value in (*POSE[3 * index : 3 * index + 2], flag)]
    fixed, kinds = read(
        Joints(THREE.names), Conventions(min_confidence=least), bbox=[5, 1, 30, 30], keypoints=keypoints
    )
    assert fixed["keypoints"][2::3] == expected
    assert fixed["num_keypoints"] == sum(flag > 0 for flag in expected)
    assert len(kinds) == 1


def test_joints_outside_cost_themselves_and_far_ones_the_person():
    fixed, kinds = read(bbox=[5, 1, 30, 30], keypoints=[20, 5, 2, -0.1, 25, 2, 48, 32, 1], num_keypoints=3)
    assert fixed["keypoints"] == [20, 5, 2, 0, 0, 0, 48, 32, 1]
    assert (fixed["num_keypoints"], kinds) == (2, ["joints outside of the image"])
    odd, kinds = read(bbox=[5, 1, 30, 30], keypoints=[math.nan, 5, 2, "", "", 2, 30, 25, 2])
    assert (odd["keypoints"][::3], kinds) == ([0, 0, 30], ["joints that are no numbers, unlabelled"])
    unlabelled = [20, 5, 2, -9, 99, 0, 48, 32, 1]
    assert read(bbox=[5, 1, 30, 30], keypoints=unlabelled)[0]["keypoints"] == unlabelled
    with pytest.raises(UnusableError, match="keypoint far outside of the image: left: 97, 25 in 48 x 32"):
        read(bbox=[5, 1, 30, 30], keypoints=[20, 5, 2, 97, 25, 2, 48, 32, 1])


@pytest.mark.parametrize(
    ("box", "keypoints", "kept"),
    [
        ([5, 1, 30, 30], [0, 0, 2, 10, 25, 2, 30, 25, 2], 2),
        ([0, 0, 40, 30], [0, 0, 2, 10, 25, 2, 30, 25, 2], 3),
        ([0, 0, 40, 30], [0, 0, 2, 0, 0, 1, 30, 25, 2], 1),
        ([0, 0, 40, 30], [0, 0, 2, 0, 0, 1, 5, 6, 0], 0),
        ([5, 1, 30, 30], [0, 0, 0, 10, 25, 2, 30, 25, 2], 2),
    ],
)
def test_joints_at_the_origin(box, keypoints, kept):
    fixed, kinds = read(bbox=box, keypoints=keypoints)
    assert fixed["num_keypoints"] == kept
    labelled = sum(flag > 0 for flag in keypoints[2::3])
    assert kinds == ["joints at 0, 0, away from the person"] * (labelled - kept)


# --- boxes ---


def test_a_box_around_joints_by_hand():
    """Without a pose, the margin is a tenth of the joints' extent: hypot(20, 20) / 10 = 2.83."""
    fixed, kinds = read(keypoints=POSE)
    margin = math.hypot(20, 20) / 10
    assert np.allclose(fixed["bbox"], [10 - margin, 5 - margin, 20 + 2 * margin, 20 + 2 * margin], atol=0.005)
    assert fixed["area"] == fixed["bbox"][2] * fixed["bbox"][3]
    assert kinds == ["boxes that are missing or empty, taken from the joints"]


def test_the_margin_of_a_pose_is_that_of_the_whole_person():
    """Two shoulders 28 pixels apart, 2.8 in the pose, are of a person 9.7 / 2.8 * 28 = 97 pixels high."""
    keypoints = [0.0] * 51
    keypoints[15:21] = [100, 60, 2, 128, 60, 2]
    fixed, _ = read(Joints(KEYPOINTS, COCO.standing_pose), picture=Size(300, 300), keypoints=keypoints)
    assert np.allclose(fixed["bbox"], [100 - 9.7, 60 - 9.7, 28 + 19.4, 19.4], atol=0.005)


def test_boxes_end_at_the_picture_and_a_joint_alone_has_one():
    """A single joint counts as a fifth of the shorter side: a margin of 32 / 5 / 10, but at least 2 pixels."""
    fixed, _ = read(keypoints=[0, 0, 0, 47, 31, 2, 0, 0, 0])
    assert fixed["bbox"] == [45, 29, 3, 3]


@pytest.mark.parametrize(
    ("box", "conventions", "expected"),
    [
        ([5, 4, 20, 10], {}, [5, 4, 20, 10]),
        ([5, 4, 25, 14], {"boxes": "corners"}, [5, 4, 20, 10]),
        ([25, 14, 5, 4], {"boxes": "corners"}, [5, 4, 20, 10]),
        ([25, 14, -20, -10], {}, [5, 4, 20, 10]),
        (["5", " 4", "20.0", "10"], {}, [5, 4, 20, 10]),
        ({"x": 5, "y": 4, "w": 20, "h": "10"}, {}, [5, 4, 20, 10]),
        ({"left": 5, "top": 4, "width": 20, "height": 10}, {}, [5, 4, 20, 10]),
        ({"x1": 5, "y1": 4, "x2": 25, "y2": 14}, {}, [5, 4, 20, 10]),
        ([[5, 4], [25, 14]], {}, [5, 4, 20, 10]),
        ([5 / 48, 4 / 32, 20 / 48, 10 / 32], {"coordinates": "relative"}, [5, 4, 20, 10]),
        ([500 / 48, 400 / 32, 2500 / 48, 1400 / 32], {"coordinates": "percent", "boxes": "corners"}, [5, 4, 20, 10]),
        ([-5, -5, 60, 60], {}, [-5, -5, 60, 60]),
        ([0, 0, 1e300, 4], {}, [0, 0, 48, 4]),
        ([-1e308, 2, 1.1e308, 4], {}, [0, 2, 48, 4]),
    ],
)
def test_boxes_in_many_forms(box, conventions, expected):
    fixed, _ = read(None, Conventions(**conventions), bbox=box)
    assert np.allclose(fixed["bbox"], expected)


def test_joints_of_matlab():
    """A 3 x K matrix: all x, all y, all flags."""
    assert triples([[1, 4], [2, 5], [2, 1]], ("top", "left")) == [1, 2, 2, 4, 5, 1]


def test_a_missing_joint_at_0_0_is_not_in_the_box_of_the_joints():
    fixed, kinds = read(conventions=Conventions(boxes="joints"), keypoints=[0, 0, 1, *POSE[3:]], bbox=[0, 0, 30, 25])
    assert fixed["keypoints"] == [0, 0, 0, *POSE[3:]]
    assert fixed["bbox"] == [8, 23, 24, 4]  # 20 x 0, with the least margin of 2
    assert kinds == ["joints at 0, 0, away from the person"]


def test_a_turned_box_of_cvat():
    """By 90 degrees, sides exchange about the same middle (20, 10); by 45, both are (12 + 4) / sqrt(2)."""
    fixed, kinds = read(None, bbox=[14, 8, 12, 4], attributes={"rotation": 90.0, "id": 1})
    assert fixed["bbox"] == [18, 4, 4, 12]
    assert fixed["attributes"] == {"id": 1}
    assert len(kinds) == 1
    side = 16 / math.sqrt(2)
    assert np.allclose(
        read(None, bbox=[14, 8, 12, 4], attributes={"rotation": 45})[0]["bbox"],
        [20 - side / 2, 10 - side / 2, side, side],
        atol=0.01,
    )
    assert read(None, bbox=[14, 8, 12, 4], attributes={"rotation": 0})[1] == []


@pytest.mark.parametrize("picture", [PICTURE, Size(640, 480)])
def test_tight_boxes_are_widened_once(picture):
    fixed, kinds = read(bbox=[10, 5, 20, 20], keypoints=POSE, picture=picture)
    assert kinds == ["boxes tight around their joints, widened"]
    assert fixed["bbox"][2] > 24
    whole = [0, 0, 2, 48, 32, 2, 0, 32, 2]
    assert read(bbox=[0, 0, 48, 32], keypoints=whole)[1] == []  # nothing to widen to


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"bbox": [1, 2, 0, 4]}, "box without extent"),
        ({"bbox": [48, 2, 5, 4]}, "box outside of the image"),
        ({"bbox": [1, 2, 3]}, "box is not four numbers"),
        ({"bbox": [1, 2, 3, 10**400]}, "box is not four numbers"),
        ({}, "box is not four numbers"),
        ({"keypoints": [0] * 9, "segmentation": [[1, 1, 2, 2]]}, "box is not four numbers"),
    ],
)
def test_what_says_nowhere_is_unusable(record, reason):
    with pytest.raises(UnusableError) as caught:
        read(**record)
    assert caught.value.reason == reason
    assert place_of(record, PICTURE) is None


def test_the_place_of_the_unusable():
    assert place_of({"bbox": [40, 20, 30, 30], "keypoints": [9e9, 0, 2] * 3}, PICTURE) == [40, 20, 8, 12]
    assert place_of({"keypoints": [9e9, 0, 2, 10, 10, 2, 20, 10, 2]}, PICTURE) == [8, 8, 14, 4]
    relative = Conventions(coordinates="relative")
    assert place_of({"keypoints": [9e9, 0, 2, 0.25, 0.5, 2]}, PICTURE, relative) == [10, 14, 4, 4]


# --- masks and areas ---


def runs(mask, compressed):
    encoded = run_lengths.encode(np.asfortranarray(mask.astype(np.uint8)))
    if compressed:
        return {"size": [32, 48], "counts": encoded["counts"].decode()}
    flat = np.concatenate([[0], mask.flatten(order="F").astype(int), [0]])
    edges = np.flatnonzero(np.diff(flat))
    lengths = np.diff(np.concatenate([[0], edges, [mask.size]]))
    return {"size": [32, 48], "counts": lengths[: len(lengths) - (lengths[-1] == 0)].tolist()}


@pytest.mark.parametrize("compressed", [True, False])
def test_boxes_and_areas_of_run_lengths(compressed):
    """Equal to pycocotools' `area` and `toBbox`."""
    mask = np.random.default_rng(3).random((32, 48)) < 0.2
    mask[:, :7], mask[30:] = False, False
    encoded = run_lengths.encode(np.asfortranarray(mask.astype(np.uint8)))
    fixed, kinds = read(segmentation=runs(mask, compressed), area=1)
    assert fixed["area"] == run_lengths.area(encoded) == mask.sum()
    assert fixed["bbox"] == run_lengths.toBbox(encoded).tolist()
    assert kinds == ["boxes that are missing or empty, taken from the mask", "areas in another unit, or wrong"]
    area = float(mask.sum())
    for stated, right in ((0.8 * area, True), (1.2 * area, True), (0.7 * area, False), (1.3 * area, False)):
        fixed, kinds = read(bbox=[1, 1, 40, 30], segmentation=runs(mask, compressed), area=stated)
        assert (fixed["area"], kinds == []) == (stated if right else area, right)


@pytest.mark.parametrize(
    ("polygons", "area"),
    [
        ([[0, 0, 10, 0, 10, 10]], 50),
        ([[10, 10, 10, 0, 0, 0]], 50),
        ([[2, 3, 12, 3, 12, 9, 2, 9]], 60),
        ([[2, 3, 12, 3, 12, 9, 2, 9], [20, 20, 24, 20, 24, 24, 20, 24]], 76),
        ([[-10, 0, 10, 0, 10, 10, -10, 10]], 200),
    ],
)
def test_areas_of_polygons(polygons, area):
    """The shoelace formula: half of the sum of x1 y2 - x2 y1."""
    fixed, _ = read(bbox=[0, 0, 30, 30], segmentation=polygons, area=-1)
    assert fixed["area"] == area
    assert fixed["segmentation"] == polygons


@pytest.mark.parametrize(("share", "kept"), [(0.04, False), (0.05, True), (0.6, True), (1.1, True), (1.2, False)])
def test_areas_without_a_mask(share, kept):
    fixed, kinds = read(None, bbox=[4, 4, 20, 20], area=share * 400)
    assert (fixed["area"], kinds == []) == (share * 400 if kept else 400, kept)


def test_run_lengths_as_floats_are_read():
    mask = np.zeros((32, 48), dtype=bool)
    mask[4:9, 6:8] = True
    right = runs(mask, False)
    floats = {key: [float(one) for one in value] for key, value in right.items()}
    assert read(segmentation=floats, bbox=[1, 1, 20, 20])[0]["segmentation"] == right


@pytest.mark.parametrize(
    ("mask", "kind"),
    [
        ({"size": [48, 32], "counts": [0, 1536]}, "run lengths of another image size"),
        ({"size": [True, 48], "counts": [0, 1536]}, "run lengths of another image size"),
        ({"counts": [0, 1536]}, "run lengths of another image size"),
        ({"size": [32, 48]}, "run lengths do not fill the image"),
        ({"size": [32, 48], "counts": [1536, 1]}, "run lengths do not fill the image"),
        ({"size": [32, 48], "counts": [1537, -1]}, "run lengths do not fill the image"),
        ({"size": [32, 48], "counts": "0" * 10**6}, "run lengths do not fill the image"),
        ({"size": [32, 48], "counts": "~"}, "run lengths do not fill the image"),
        ({"size": [10**9, 10**9], "counts": [10**18]}, "run lengths of another image size"),
        ({"size": [32, 48], "counts": [1536]}, "run lengths without a pixel"),
        (7, "neither polygons nor run lengths"),
    ],
)
def test_masks_that_are_dropped(mask, kind):
    fixed, kinds = read(bbox=[1, 1, 20, 20], area=300, segmentation=mask, parts={"hat": mask})
    assert (fixed["segmentation"], fixed["parts"], fixed["area"]) == (None, {}, 300)
    assert kinds == [f"masks dropped: {kind}", f"masks of hat dropped: {kind}"]


def square(x, y, side):
    return [[x, y, x + side, y, x + side, y + side, x, y + side]]


LOWER_RIGHT = np.logical_and.outer(np.arange(32) >= 20, np.arange(48) >= 30)


@pytest.mark.parametrize(
    ("mask", "kept"),
    [
        (square(12, 8, 9), True),
        (square(0, 0, 30), True),
        (square(18, 12, 8), True),  # its middle is the box's corner, 22, 16
        (square(19, 12, 8), False),
        (square(24, 12, 20), False),  # of a picture twice as large
        (square(6, 3, 5), False),  # of one half as large
        (square(50, 5, 9), False),  # right of the picture
        (runs(~LOWER_RIGHT, True), True),
        (runs(LOWER_RIGHT, True), False),
        (runs(LOWER_RIGHT, False), False),
    ],
)
def test_masks_beside_their_box_are_dropped(mask, kept):
    box = [12, 6, 10, 10]  # its middle: 17, 11
    fixed, kinds = read(None, bbox=box, segmentation=mask)
    assert (fixed["bbox"], fixed["segmentation"]) == (box, mask if kept else None)
    told = ["masks dropped: beside their box, as those of another picture or size"]
    assert [kind for kind in kinds if "mask" in kind] == ([] if kept else told)
    assert kept or fixed["area"] == 100


def test_masks_and_parts_in_relative_coordinates():
    polygon = [[0.25, 0.5, 0.5, 0.5, 0.5, 1.0]]
    fixed, _ = read(None, Conventions(coordinates="relative"), segmentation=polygon, parts={"hat": polygon})
    assert fixed["segmentation"] == fixed["parts"]["hat"] == [[12, 16, 24, 16, 24, 32]]
    assert fixed["bbox"] == [12, 16, 12, 16]


def test_nesting_without_end_is_no_mask():
    deep = [5]
    for _ in range(900):
        deep = [deep]
    record = {"bbox": [0.1, 0.1, 0.5, 0.5], "segmentation": deep}
    fixed, repairs = normalise(record, PICTURE, None, Conventions(coordinates="relative"))
    assert (fixed["segmentation"], len(repairs)) == (None, 1)


# --- records of prepared datasets ---


def test_prepared_people_are_as_normalise_writes_them():
    right = {"id": 1, "category_id": 1, "bbox": [1, 1, 20, 20], "area": 300, "keypoints": POSE, "num_keypoints": 3}
    check_person(right, PICTURE, THREE.names, {1})
    for changes, reason in (
        ({"num_keypoints": 2}, "num_keypoints that disagree with the joints"),
        ({"bbox": None}, "boxes that are missing or empty, taken from the joints"),
        ({"area": 1}, "areas in another unit, or wrong"),
        ({"id": "1"}, "id is not a whole number"),
        ({"category_id": "1"}, "category unknown"),
        ({"person_id": "ann"}, "person_id that is no whole number"),
    ):
        with pytest.raises(UnusableError) as caught:
            check_person(right | changes, PICTURE, THREE.names, {1})
        assert caught.value.reason == reason
    check_person(right | {"bbox": None, "category_id": 2}, PICTURE, THREE.names, {1})


# --- anything at all ---

ODD = [
    None, True, False, "", "1", "1.5", "x", -1, 0, 1, 2, 3, 0.5, 1e9, -1e9, 1e308, 10**400, math.nan, math.inf, 2**63,
    [], {}, [[]], [1], "\ud800", [None], {"x": 1}, [{"x": 1, "y": 2}],
]  # fmt: skip


def anything(draw):
    def number():
        if draw.random() < 0.05:
            return draw.choice(ODD)
        return draw.choice([draw.uniform(-5, 55), draw.randint(0, 48), draw.uniform(0, 32), 0])

    def some(value):
        return draw.choice(ODD) if draw.random() < 0.15 else value

    def points(count):
        return [value for _ in range(count) for value in (number(), number(), some(draw.choice([0, 1, 2])))]

    flat = points(draw.choice([3, 3, 3, 17]))
    polygons = [[number() for _ in range(draw.choice([4, 6, 7, 8]))] for _ in range(draw.choice([1, 2]))]
    lengths = draw.choice([[1000, 536], [0, 1536], [1536], "zz", "0" * 50, [1536, "a"], *ODD])
    mask = draw.choice([polygons, {"size": draw.choice([[32, 48], [48, 32], *ODD]), "counts": lengths}])
    record = {
        "bbox": some([number() for _ in range(draw.choice([4, 4, 4, 5, 2]))]), "area": number(),
        "keypoints": some(draw.choice([flat, [flat[n : n + 3] for n in range(0, len(flat), 3)]])),
        "segmentation": some(mask), "parts": some({"hat": mask}), "iscrowd": some(0), "ignore": some(0),
        "num_keypoints": some(3), "person_id": some(1),
    }  # fmt: skip
    return {key: value for key, value in record.items() if draw.random() < 0.7}


def test_any_record_becomes_right_or_unusable():
    draw = random.Random(5)
    usable = 0
    for _ in range(1500):
        record = anything(draw)
        joints = draw.choice([THREE, Joints(KEYPOINTS, COCO.standing_pose), Joints(), None])
        conventions = Conventions(
            draw.choice([None, "xywh", "corners", "joints"]), draw.choice([None, "relative", "percent"])
        )
        try:
            fixed, _ = read(joints, conventions, **record)
        except UnusableError:
            place = place_of(record, PICTURE, conventions)
            assert place is None or min(place[2:]) > 0
            continue
        usable += 1
        x, y, width, height = fixed["bbox"]
        assert is_finite(fixed["bbox"])
        assert min(width, height, fixed["area"]) > 0
        assert max(x - 48, y - 32, -x - width, -y - height) < 0
        if joints and joints.names and "keypoints" in fixed:
            flat = fixed["keypoints"]
            assert {*flat[2::3]} <= {0, 1, 2}
            assert fixed["num_keypoints"] == sum(flag > 0 for flag in flat[2::3])
            labelled = labelled_points(flat, joints.names)
            assert all(0 <= across <= 48 and 0 <= down <= 32 for across, down in labelled)
        elif joints:
            assert "keypoints" not in fixed
    assert usable > 300


@needs_real
def test_true_people_need_no_repair():
    content = json.loads((REAL / "annotations.json").read_text())
    sizes = {one["id"]: Size(one["width"], one["height"]) for one in content["images"]}
    people = next(one["id"] for one in content["categories"] if one["name"] == "person")
    joints = Joints(KEYPOINTS, COCO.standing_pose)
    for record in content["annotations"]:
        of_people = joints if record["category_id"] == people else None
        fixed, repairs = normalise(record, sizes[record["image_id"]], of_people)
        assert (repairs, fixed) == ([], record)
