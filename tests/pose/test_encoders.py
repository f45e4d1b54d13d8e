import os
import shutil
import subprocess
import sys
from pathlib import Path

import encoder_by_hand as by_hand
import numpy as np
import pytest
from people_by_hand import standing

from figura.formats.skeletons import COCO
from models.pose.annotations import Annotations
from models.pose.encoders import Caf, Cif, CifDet, instance_scales

K = len(COCO.keypoints)
SIZE = (97, 129)
WHOLE = (0.0, 0.0, 128.0, 96.0)
DENSE = {"sparse": COCO.connections, "only_in_view": True}


def annotation(joints=(), box=(0, 0, 1, 1), crowd=False, category=0):
    """An annotation for `encoder_by_hand`; `joints` maps a joint to (x, y) or (x, y, v), v = 2 unless given."""
    keypoints = np.zeros((K, 3), dtype=np.float32)
    for place, values in dict(joints).items():
        keypoints[place] = (*values, 2)[:3]
    return {"keypoints": keypoints, "box": np.float32(box), "crowd": crowd, "category": category}


def annotations(*those):
    return Annotations(
        keypoints=np.float32([one["keypoints"] for one in those]).reshape(-1, K, 3),
        boxes=np.float32([one["box"] for one in those]).reshape(-1, 4),
        crowd=np.array([one["crowd"] for one in those], dtype=bool),
        categories=np.array([one["category"] for one in those], dtype=np.int64),
        ids=np.arange(len(those)) + 100,
    )


STANDING = annotation(enumerate(standing()[:, :2]), box=(68, 16, 56, 155.2))


def random_scene(seed, size):
    """Persons near and on each other, hidden and missing joints, joints outside, crowds, unlabelled persons."""
    generator = np.random.default_rng(seed)
    height, width = size
    found = []
    for _ in range(generator.integers(0, 5)):
        unit = generator.uniform(2, 9)
        joints = COCO.standing_pose * (1, -1) * unit + generator.normal(0, unit, (K, 2))
        joints += generator.uniform(-0.1, 1.1, 2) * (width, height) - joints.mean(axis=0)
        if generator.random() < 0.4:
            joints = np.round(joints / 4) * 4  # on the borders of cells: ties in rounding and in distance
        visibility = generator.choice([0, 1, 2], K, p=[0.2, 0.3, 0.5])
        keypoints = np.column_stack([joints, visibility * (generator.random() < 0.85)]).astype(np.float32)
        found.append({"keypoints": keypoints})
    if found and generator.random() < 0.7:  # somebody nearly on somebody else
        twin = found[0]["keypoints"].copy()
        twin[:, :2] += generator.uniform(-6, 6, 2).astype(np.float32) * (generator.random() < 0.7)
        twin[:, 2] = generator.choice([0, 1, 2], K)
        found.insert(0, {"keypoints": twin})
    for one in found:
        corner, length = one["keypoints"][:, :2].min(axis=0), np.ptp(one["keypoints"][:, :2], axis=0)
        one |= {"box": np.float32([*corner, *length]), "crowd": False, "category": int(generator.integers(3))}
    if generator.random() < 0.6:
        box = np.float32([*generator.uniform(-0.2, 0.9, 2) * (width, height), *generator.uniform(1, 60, 2)])
        found.append(annotation(box=box, crowd=True, category=int(generator.integers(3))))
        if generator.random() < 0.5:
            found[-1]["keypoints"][:, 2] = 2  # must not matter
    left, top, right, bottom = generator.uniform(0, 0.4, 4) * (width, height, width, height)
    area = (left, top, width - 1 - left - right, height - 1 - top - bottom)
    return found, area if generator.random() < 0.5 else (0.0, 0.0, width - 1.0, height - 1.0)


def assert_agrees(target, expected):
    assert target.dtype == np.float32
    assert target.flags.c_contiguous
    np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-5)  # NaN equals NaN only


@pytest.mark.parametrize("seed", range(16))
def test_targets_of_random_scenes_agree_with_the_computation_by_hand(seed):
    size, stride = [((97, 129), 8), ((129, 97), 8), ((113, 100), 16), ((65, 65), 4)][seed % 4]
    scene, area = random_scene(seed, size)
    given = annotations(*scene)
    keypoints = size, area, stride, COCO.sigmas, COCO.standing_pose
    hidden = [32.0, 9.0, None][seed % 3]
    assert_agrees(
        Cif(COCO, stride, suppress_hidden=hidden).encode(given, size, area),
        by_hand.cif(scene, *keypoints, hidden=hidden),
    )
    assert_agrees(
        Caf(COCO, stride, suppress_hidden=hidden).encode(given, size, area),
        by_hand.caf(scene, *keypoints, COCO.connections, hidden=hidden),
    )
    assert_agrees(
        Caf(COCO, stride, connections="dense", suppress_invisible=seed % 2 == 0).encode(given, size, area),
        by_hand.caf(scene, *keypoints, COCO.dense_connections, **DENSE, invisible=seed % 2 == 0),
    )
    assert_agrees(CifDet(3, stride).encode(given, size, area), by_hand.cifdet(scene, size, area, stride, 3))


@pytest.mark.parametrize("seed", range(4))
def test_other_settings_agree_with_the_computation_by_hand(seed):
    scene, area = random_scene(seed + 50, SIZE)
    given = annotations(*scene)
    keypoints = SIZE, area, 8, COCO.sigmas, COCO.standing_pose
    assert_agrees(
        Cif(COCO, 8, side_length=3, bmin=0.5, suppress_collision=True).encode(given, SIZE, area),
        by_hand.cif(scene, *keypoints, side=3, bmin=0.5, collision=True),
    )
    wide = Caf(COCO, 8, connections="kinematic_tree", aspect_ratio=0.6, min_size=2, fixed_size=seed % 2 == 1)
    assert_agrees(
        wide.encode(given, SIZE, area),
        by_hand.caf(scene, *keypoints, COCO.kinematic_tree, aspect=0.6, min_size=2, fixed=seed % 2 == 1),
    )
    assert_agrees(
        Caf(COCO, 8, connections="dense", dense_to_sparse_radius=1.2).encode(given, SIZE, area),
        by_hand.caf(scene, *keypoints, COCO.dense_connections, **DENSE, radius=1.2),
    )


def test_an_image_without_annotations_is_background():
    for encoder in (Cif(COCO, 8), Caf(COCO, 8), CifDet(2, 8)):
        target = encoder.encode(annotations(), SIZE, WHOLE)
        assert target.shape == (encoder.fields, encoder.components, 13, 17)
        assert (target[:, 0] == 0).all()
        assert np.isnan(target[:, 1:]).all()


def chosen(*places):
    joints = np.float64([STANDING["keypoints"]])
    joints[:, :, :2] /= 8
    kept = np.zeros(K, dtype=bool)
    kept[list(places)] = True
    joints[:, ~kept, 2] = 0
    return joints


@pytest.mark.parametrize(
    ("places", "scale"),
    [
        (range(17), 11.653326),
        (range(11), 11.653326),
        (range(11, 17), 11.653326),
        (range(5), 7.483314),  # the correction ends at 5
        ((0, 1), np.nan),
        ((5, 7), np.nan),
    ],
)
def test_scales_of_persons_have_the_golden_values(places, scale):
    found = instance_scales(chosen(*places), COCO.standing_pose)
    np.testing.assert_allclose(found, [scale], rtol=1e-6)


def test_scales_below_a_tenth_of_a_cell_are_unknown():
    joints = chosen(*range(17)) * (0.1001 / 11.653326, 0.1001 / 11.653326, 1)
    assert instance_scales(joints, COCO.standing_pose)[0] == pytest.approx(0.1001, rel=1e-5)
    assert np.isnan(instance_scales(joints * (0.998, 0.998, 1), COCO.standing_pose)).all()


def test_the_standing_person_has_the_golden_numbers_of_foreground_cells():
    size, area = (193, 193), (0.0, 0.0, 192.0, 192.0)
    cif = Cif(COCO, 8).encode(annotations(STANDING), size, area)
    assert (cif[:, 0] == 1).sum(axis=(1, 2)).tolist() == [16] * 17
    np.testing.assert_allclose(np.nanmax(cif[:, 4], axis=(1, 2)), 11.653326 * COCO.sigmas, rtol=1e-6)
    caf = Caf(COCO, 8).encode(annotations(STANDING), size, area)
    cells = (caf[:, 0] == 1).sum(axis=(1, 2)).tolist()
    assert cells == [12, 12, 12, 12, 15, 21, 21, 15, 12, 12, 8, 6, 9, 9, 9, 9, 9, 9, 9]


def cells(target, field=0):
    """(column, row) of the cells of confidence 1."""
    return {(int(column), int(row)) for row, column in np.argwhere(target[field, 0] == 1)}


def block(columns, rows):
    return {(column, row) for column in columns for row in rows}


def test_a_joint_covers_four_by_four_cells():
    target = Cif(COCO, 8).encode(annotations(annotation({0: (50, 41)})), SIZE, WHOLE)
    assert cells(target) == block(range(5, 9), range(4, 8))
    np.testing.assert_allclose(target[0, 1:, 4, 5], [1.25, 1.125, 0.0125, np.nan])
    np.testing.assert_allclose(target[0, 1:3, 7, 8], [-1.75, -1.875])
    beyond = Cif(COCO, 8).encode(annotations(annotation({0: (-6, 41)})), SIZE, WHOLE)
    assert cells(beyond) == block(range(2), range(4, 8))


def test_cells_go_to_the_nearest_joint_and_in_a_tie_to_the_earlier_person():
    first, second = annotation({0: (50, 41)}), annotation({0: (66, 41)})
    row = Cif(COCO, 8).encode(annotations(first, second), SIZE, WHOLE)[0, 1, 5]
    np.testing.assert_allclose(row[5:11], [1.25, 0.25, -0.75, 0.25, -0.75, -1.75])
    one, other = annotation({0: (44, 40)}), annotation({0: (52, 40)})  # both half a cell from column 6
    for people, vector in (((one, other), -0.5), ((other, one), 0.5)):
        assert Cif(COCO, 8).encode(annotations(*people), SIZE, WHOLE)[0, 1, 5, 6] == vector


def test_a_limb_is_foreground_in_its_middle():
    ankle, knee = COCO.connections[0]
    target = Caf(COCO, 8).encode(annotations(annotation({ankle: (20, 20), knee: (84, 52)})), SIZE, WHOLE)
    expected = {4: (2, 3, 4, 5), 5: (3, 4, 5), 6: (2, 3, 4, 5, 6), 7: (3, 4, 5, 6), 8: (4, 5, 6), 9: (4, 5, 6)}
    expected[10] = (4, 6)
    assert cells(target) == {(column, row) for column, rows in expected.items() for row in rows}
    np.testing.assert_allclose(target[0, 1:7, 2, 4], [-1.5, 0.5, 6.5, 4.5, 0.0125, 0.0125])
    short = Caf(COCO, 8).encode(annotations(annotation({ankle: (20, 20), knee: (28, 20)})), SIZE, WHOLE)
    assert cells(short) == block((2, 3, 4), (2, 4))


def test_a_box_has_a_fringe_that_only_regresses():
    target = CifDet(3, 8).encode(annotations(annotation(box=(30, 25, 41, 33), category=1)), SIZE, WHOLE)
    assert cells(target, 1) == block((5, 6, 7), (4,)) | block((5, 6, 7, 8), (5, 6)) | block((6, 7), (7,))
    drawn = {(int(column), int(row)) for row, column in np.argwhere(~np.isnan(target[1, 1]))}
    assert drawn == block(range(4, 9), range(3, 8))
    assert np.isnan(target[1, 0]).sum() == 12
    np.testing.assert_allclose(target[1, 1:, 5, 6], [0.3125, 0.1875, 5.125, 4.125, 0.20625, 0.20625])
    assert not target[[0, 2], 0].any()


def test_wrong_annotations_are_named():
    with pytest.raises(ValueError, match="annotation 101: category 3: 0 to 2"):
        CifDet(3, 8).encode(annotations(STANDING, annotation(category=3)), SIZE, WHOLE)
    with pytest.raises(ValueError, match="annotation 100: a box of 5 x 0 pixels"):
        CifDet(3, 8).encode(annotations(annotation(box=(3, 3, 5, 0))), SIZE, WHOLE)
    two = Annotations(np.zeros((1, 2, 3)), np.zeros((1, 4)), np.zeros(1, bool), np.zeros(1, int), np.zeros(1, int))
    with pytest.raises(ValueError, match="broadcast"):
        Cif(COCO, 8).encode(two, SIZE, WHOLE)


@pytest.mark.slow
def test_a_second_process_compiles_nothing_even_where_nothing_can_be_written_beside_the_code(tmp_path: Path):
    shutil.copy(Path(__file__).parents[2] / "models/pose/target_rendering.py", tmp_path / "target_rendering.py")
    (tmp_path / "__pycache__").touch()  # no folder can be made here, not even by root
    code = (
        "import numpy as np, target_rendering\n"
        "target, distances = target_rendering.blank(1, 5, np.zeros((3, 4), bool))\n"
        "target_rendering.draw_patches(target, distances, np.array([0]), np.ones((1, 2)), np.ones((1, 2)), 2, 9.0)\n"
        "print(target[0, 0].sum(), sum(target_rendering.draw_patches.stats.cache_misses.values()))\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    said = [
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True)
        for _ in range(2)
    ]
    assert [one.stdout.split() for one in said] == [[b"4.0", b"1"], [b"4.0", b"0"]]
