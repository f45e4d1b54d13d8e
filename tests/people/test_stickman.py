import numpy as np
import pytest

from figura.formats.coco import KEYPOINTS
from figura.formats.skeletons import COCO, skeleton_from
from models.people.stickman import (
    coco_to_openpose18,
    draw_skeleton,
    draw_stickman,
    joint_sides,
    pose_picture,
    skeleton_colours,
)

# a test figure with the counts and pixels of VUNet's stickman
FIGURE = [
    (128, 40), (128, 70), (100, 72), (88, 110), (84, 146), (156, 72), (168, 110), (172, 146), (110, 140),
    (106, 186), (104, 232), (146, 140), (150, 186), (152, 232), (120, 34), (136, 34), (112, 38), (144, 38),
]  # fmt: skip
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
PIXELS = {
    (128, 100): GREEN, (94, 91): RED, (162, 91): BLUE, (110, 140): RED, (146, 140): BLUE, (128, 70): GREEN,
}  # fmt: skip
OPENPOSE = [
    "nose", None, "right_shoulder", "right_elbow", "right_wrist", "left_shoulder", "left_elbow", "left_wrist",
    "right_hip", "right_knee", "right_ankle", "left_hip", "left_knee", "left_ankle", "right_eye", "left_eye",
    "right_ear", "left_ear",
]  # fmt: skip


def figure(missing=(), size=256, flag=2):
    joints = np.array([(x * size / 256, y * size / 256, flag) for x, y in FIGURE], dtype=float)
    joints[list(missing), 2] = 0
    return joints


def counts(image):
    return (image == 255).sum(axis=(0, 1))


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ((), (1033, 3266, 1030)),
        ((4, 10), (683, 3266, 1030)),
        ((0, 16, 17), (1033, 3011, 1030)),
        ((2, 8), (424, 1251, 1030)),
    ],
)
def test_reference_figure(missing, expected):
    image = draw_stickman(figure(missing), 256)
    assert image.shape == (256, 256, 3)
    assert image.dtype == np.uint8
    np.testing.assert_allclose(counts(image), expected, rtol=0.10)
    joints = np.random.default_rng(0).uniform(0, 128, (17, 3))
    assert np.array_equal(pose_picture(joints, COCO, 128), draw_stickman(coco_to_openpose18(joints), 128))


def test_colours_and_order():
    image = draw_stickman(figure(), 256)
    for (x, y), colour in PIXELS.items():
        assert tuple(image[y, x]) == colour
    for joint, (x, y) in enumerate(FIGURE):  # dots come last
        side = RED if joint in (2, 3, 4, 8, 9, 10) else BLUE if joint in (5, 6, 7, 11, 12, 13) else GREEN
        assert tuple(image[y, x]) == side
    assert ((image > 0).sum(axis=2) <= 1).all()
    assert set(np.unique(image)) == {0, 255}


def test_line_is_as_wide_as_specified():
    for size, width in ((64, 1), (128, 2), (256, 4), (512, 8)):
        upright = np.zeros((18, 3))
        upright[[9, 10]] = (size * 0.5, size * 0.2, 2), (size * 0.5, size * 0.8, 2)
        assert abs((draw_stickman(upright, size)[size // 2, :, 0] > 0).sum() - width) <= (0 if size == 64 else 1)


def test_hidden_joints_are_drawn_and_missing_ones_not():
    assert (draw_stickman(figure(flag=1), 256) == draw_stickman(figure(), 256)).all()
    assert not draw_stickman(figure(missing=range(18)), 256).any()
    for bad in (np.nan, np.inf):
        broken = figure()
        broken[[4, 10], 0] = bad
        assert (draw_stickman(broken, 256) == draw_stickman(figure(missing=(4, 10)), 256)).all()


@pytest.mark.parametrize("far", [300.0, 1e4, 1e6, 1e12])
def test_joints_off_the_canvas(far):
    joints = figure()
    joints[4, :2] = 88, 110 + far  # the right forearm, straight down
    image = draw_stickman(joints, 256)
    assert (image[111:250, 88, 0] > 0).all() == (far < 2**20)
    assert (image[:, 200:] == 0).all()
    corner = np.zeros((18, 3))
    corner[4, 2] = 2  # zero is a place
    assert tuple(draw_stickman(corner, 64)[0, 0]) == RED


def test_coco_joints_find_their_places():
    joints = np.array([(10 * index, 10 * index + 1, 1 + index % 2) for index in range(17)], dtype=float)
    joints[5] = 40, 60, 2
    joints[6] = 20, 80, 1
    converted = coco_to_openpose18(joints)
    assert converted.shape == (18, 3)
    for index, name in enumerate(OPENPOSE):
        expected = (30, 70, 1) if name is None else joints[KEYPOINTS.index(name)]
        np.testing.assert_array_equal(converted[index], expected)


@pytest.mark.parametrize("shoulder", [5, 6])
@pytest.mark.parametrize("how", [(0, 0, 0), (np.nan, 5, 2)])
def test_no_neck_without_both_shoulders(shoulder, how):
    joints = np.full((17, 3), 2.0)
    joints[shoulder] = how
    assert not coco_to_openpose18(joints)[1].any()


# --- other skeletons ---


def skeleton(names, connections, flip=None):
    places = [[float(index), 0.0] for index in range(len(names))]
    flips = {} if flip is None else {"flip": flip}
    content = {"keypoints": names, "sigmas": [0.1] * len(names), "connections": connections, "standing_pose": places}
    return skeleton_from(content | flips)


DOG = skeleton(
    ["nose", "left_paw", "right_paw", "tail", "tag"], [["nose", "left_paw"], ["nose", "right_paw"], ["nose", "tail"]]
)


def test_colours_of_other_skeletons():
    lines, dots = skeleton_colours(DOG)
    # a line on each side; in the middle, from hue 75 to 165, a line and a joint without one: 97.5 and 142.5
    assert lines == [(0, 0, 255), (255, 0, 0), (96, 255, 0)]
    assert dots == [lines[2], lines[0], lines[1], lines[2], (0, 255, 96)]
    sided = skeleton(["left_a", "left_b", "right_a", "right_b", "x", "y"], [
        ["left_a", "left_b"], ["right_a", "right_b"], ["x", "y"],
    ])  # fmt: skip
    assert skeleton_colours(sided)[0] == [(0, 0, 255), (255, 0, 0), (0, 255, 0)]  # as those of VUNet
    chain = skeleton(["a", "b", "c", "d"], [["a", "b"], ["b", "c"], ["c", "d"]])
    assert skeleton_colours(chain)[0] == [(255, 0, 0), (0, 255, 0), (0, 0, 255)]  # hues 0, 120, 240


@pytest.mark.parametrize(
    ("names", "flip", "sides"),
    [
        (["nose", "left_eye", "right_eye"], None, ["middle", "left", "right"]),
        (["R_Eye", "L_Eye", "Nose"], {"R_Eye": "L_Eye"}, ["right", "left", "middle"]),
        (["eyeRight", "eyeLeft"], {"eyeRight": "eyeLeft"}, ["right", "left"]),
        (["Neck", "RShoulder", "LShoulder"], None, ["middle", "right", "left"]),  # OpenPose's names
        (["right2", "left2"], {"right2": "left2"}, ["right", "left"]),
        (["ear1", "ear2", "left_over"], {"ear1": "ear2"}, ["left", "right", "middle"]),
    ],
)
def test_sides(names, flip, sides):
    assert joint_sides(skeleton(names, [[names[0], names[1]]], flip)) == sides


def test_lines_and_dots_of_other_skeletons():
    joints = np.array([(32, 10, 2), (10, 50, 2), (54, 50, 1), (32, 60, 0), (5, 5, 2)], dtype=float)
    image = draw_skeleton(joints, DOG, 64)
    lines, dots = skeleton_colours(DOG)
    for joint in (0, 1, 2, 4):
        x, y = joints[joint, :2].astype(int)
        assert tuple(image[y, x]) == dots[joint]
    assert tuple(image[30, 21]) == lines[0]  # the middle of the line to the left paw
    assert tuple(image[30, 43]) == lines[1]
    assert not image[40:, 32].any()  # no tail
    assert {tuple(pixel) for pixel in image.reshape(-1, 3)} == {(0, 0, 0), *lines[:2], dots[0], dots[4]}
