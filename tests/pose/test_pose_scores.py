"""Scores of poses and boxes from a dump, against figures counted by hand."""

import contextlib
import io
import json
import statistics
from pathlib import Path

import numpy as np
import pycocotools.coco
import pycocotools.cocoeval
import pytest
from dumps_by_hand import dump_of
from people_by_hand import SKELETON, dump, person, pose

from figura.base.errors import UserError
from figura.report.interfaces import Bootstrap, NotApplicableError
from models.pose.argument_types import skeleton_of
from models.pose.coco_scores import (
    BoxAP,
    KeypointAP,
    KeypointErrors,
    MedianPoseAP,
    hidden_share,
    occlusion_ranges,
)
from models.pose.dump_evaluation import evaluate
from models.pose.field_scores import FieldMaxima, maxima

DATA = Path(__file__).parents[2] / "../shared/data/coco_eval_reference"
with_reference = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is missing")
BOOTSTRAP = Bootstrap(50, 0.9, 4)


def numbers(figures):
    """The values without their intervals; JSON has to take them all."""
    json.dumps(figures, allow_nan=False)
    return {name: one["value"] if isinstance(one, dict) and "low" in one else one for name, one in figures.items()}


@with_reference
def test_the_stage_gives_the_figures_of_the_reference(tmp_path):
    expected = json.loads((DATA / "keypoints_expected.json").read_text())["stats"]
    truth, results = (json.loads((DATA / f"keypoints_{name}.json").read_text()) for name in ("gt", "dt"))
    ids = [image["id"] for image in truth["images"]]
    rows = dump(tmp_path, ids, truth["annotations"], results, size=(640, 480))
    figures = KeypointAP("poses", "people", "truth")(rows, Bootstrap(500, 0.95, 0))
    found = numbers(figures)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9, rel=0)
    assert all(figures[name]["low"] < found[name] < figures[name]["high"] for name in expected)
    assert found["images"] == 165
    judged = [one for one in truth["annotations"] if one["num_keypoints"] and not one["iscrowd"]]
    assert found["persons"] == len(judged)
    errors = numbers(KeypointErrors("poses", "people", "truth")(rows, BOOTSTRAP))
    assert errors["recall"] == pytest.approx(expected["AR50"], abs=1e-9)


@with_reference
def test_the_median_pose_in_true_boxes_as_pycocotools_scores_it(tmp_path):
    truth = json.loads((DATA / "keypoints_gt.json").read_text())
    ids = [image["id"] for image in truth["images"]]
    judged = [one for one in truth["annotations"] if one["num_keypoints"] and not one["iscrowd"]]
    places = [[] for _ in range(17)]
    for one in judged:
        x, y, width, height = one["bbox"]
        for joint in range(17):
            a, b, flag = one["keypoints"][3 * joint : 3 * joint + 3]
            if flag:
                places[joint].append(((a - x) / width, (b - y) / height))
    pose = [tuple(statistics.median(one[axis] for one in joint) for axis in (0, 1)) for joint in places]
    people = []
    for one in judged:
        x, y, width, height = one["bbox"]
        flat = [value for a, b in pose for value in (x + width * a, y + height * b, 1)]
        people.append({"image_id": one["image_id"], "category_id": 1, "keypoints": flat, "score": 1.0})
    with contextlib.redirect_stdout(io.StringIO()):
        coco = pycocotools.coco.COCO(DATA / "keypoints_gt.json")
        evaluator = pycocotools.cocoeval.COCOeval(coco, coco.loadRes(people), "keypoints")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    found = MedianPoseAP("poses", "people", "truth")(dump(tmp_path, ids, truth["annotations"], []), BOOTSTRAP)
    assert found["AP"]["low"] < found["AP"]["high"]
    assert numbers(found) == pytest.approx({"AP": evaluator.stats[0], "AP50": evaluator.stats[1]}, abs=1e-9)
    assert 0 < found["AP"]["value"] < 0.5


@with_reference
def test_the_stage_gives_the_box_figures_of_the_reference(tmp_path):
    names = ("instances_val2014_100.json", "instances_val2014_fakebbox100_results.json")
    truth, results = (json.loads((DATA / name).read_text()) for name in names)
    rows = dump(tmp_path, [one["id"] for one in truth["images"]], truth["annotations"], results, name="objects")
    found = numbers(BoxAP("poses", "objects", "truth")(rows, BOOTSTRAP))
    assert len(found) == 14
    assert found["AP"] == pytest.approx(0.505, abs=5e-4)
    assert found["AR_best1"] == pytest.approx(0.387, abs=5e-4)
    assert found["objects"] == sum(not one["iscrowd"] for one in truth["annotations"])


def test_by_occlusion(tmp_path):
    small = {"bbox": [5.0, 20.0, 50.0, 90.0]}  # 0.45 of the image's height; the others 0.5
    truth = [
        person(1, 30, flags=(2, 1), **small),
        person(1, 150, number=2),
        person(2, 30, flags=(1, 1), number=3),
        person(2, 150, flags=(0, 0), number=4),
    ]
    results = [pose(1, 30, 0.9), pose(2, 30, 0.8), pose(2, 900, 0.95)]
    score = KeypointAP("poses", "people", "truth", skeleton=SKELETON)
    found = numbers(score(dump(tmp_path, [1, 2], truth, results), BOOTSTRAP))
    # Three people, two found, after one false result: precision 2/3 up to a recall of 2/3 (67 of 101).
    assert found["AP50"] == pytest.approx(2 / 3 * 67 / 101)
    assert found["AR50"] == pytest.approx(2 / 3)
    # The false result may be anybody: false for all three.
    assert found["AP_hidden_none"] == 0
    assert found["AP_hidden_much"] == pytest.approx(2 / 3)  # one of two joints is half: much
    assert found["AR_hidden_much"] == pytest.approx(1)
    assert "AP_hidden_some" not in found
    assert [found[f"persons_hidden_{name}"] for name in ("none", "some", "much")] == [1, 0, 2]


def test_thirds_of_the_people_by_height(tmp_path):
    """Heights 0.1 to 0.6 of the image's: thirds of two each, bounds at 1/3 and 2/3 of the way (NumPy's quantiles)."""
    box = {place: [30.0 + 100 * place, 20.0, 50.0, 20.0 * (place + 1)] for place in range(6)}
    truth = [person(1, 30 + 100 * p, number=p + 1, bbox=one) for p, one in box.items()]
    truth.append(person(1, 900, number=7, flags=(0, 0), bbox=[900.0, 20.0, 50.0, 190.0]))  # has no joints: not judged
    results = [pose(1, 30 + 100 * p, 0.9, bbox=one) for p, one in box.items() if p > 1]
    figures = numbers(
        KeypointAP("poses", "people", "truth", skeleton=SKELETON)(dump(tmp_path, [1], truth, results), BOOTSTRAP)
    )
    assert figures["height_middle_from"] == pytest.approx(0.1 + 0.5 / 3)
    assert figures["height_high_from"] == pytest.approx(0.1 + 1.0 / 3)
    assert [figures[f"persons_height_{name}"] for name in ("low", "middle", "high")] == [2, 2, 2]
    assert [figures[f"AR_height_{name}"] for name in ("low", "middle", "high")] == [0, 1, 1]


def test_ranges_of_hidden_joints():
    for flat, name in (
        ([1, 1, 2, 0, 0, 0], "none"),
        ([1, 1, 2, 1, 1, 2, 1, 1, 1], "some"),
        ([1, 1, 2, 1, 1, 1], "much"),
        ([0, 0, 0, 1, 1, 1], "much"),
    ):
        share = hidden_share(flat)
        assert [n for n, (a, b) in occlusion_ranges(0.5).items() if a <= share <= b] == [f"hidden_{name}"]
    assert hidden_share([0.0] * 6) == 0


def test_distances_of_joints(tmp_path):
    truth = [
        person(1, 30),
        person(1, 150, flags=(2, 0), number=2),
        person(2, 30, number=3),
        person(2, 150, flags=(0, 0), number=4),
    ]
    results = [
        pose(1, 30, 0.9, off=4),  # both joints 4 of 100 pixels away
        pose(1, 150, 0.8, off=6),  # the head 6, the foot is not labelled
        pose(2, 30, 0.7, off=60),  # missed
    ]
    score = KeypointErrors("poses", "people", "truth", within=(0.05, 0.1), skeleton=SKELETON)
    figures = score(dump(tmp_path, [1, 2], truth, results), BOOTSTRAP)
    found = numbers(figures)
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["distance"] == pytest.approx((0.04 + 0.04 + 0.06) / 3)
    assert (found["PCK_5"], found["PCK_10"]) == pytest.approx((2 / 5, 3 / 5))
    assert (found["persons"], found["found"]) == (3, 2)
    assert found["head"] == pytest.approx({"distance": 0.05, "PCK_5": 1 / 3, "PCK_10": 2 / 3})
    assert found["foot"] == pytest.approx({"distance": 0.04, "PCK_5": 1 / 2, "PCK_10": 1 / 2})
    # Drawn twice, image 2 has nobody found: no distance there, and that sample is left out of its interval.
    assert (figures["recall"]["low"], figures["recall"]["high"]) == (0, 1)
    assert figures["distance"]["low"] == figures["distance"]["high"] == pytest.approx(found["distance"])


def test_a_joint_that_the_result_lacks_is_no_distance_but_a_miss(tmp_path):
    truth, results = [person(1, 30)], [pose(1, 30, 0.9, confidences=(0.9, 0.0))]
    score = KeypointErrors("poses", "people", "truth", skeleton=SKELETON)
    found = numbers(score(dump(tmp_path, [1], truth, results), BOOTSTRAP))
    assert (found["distance"], found["PCK_10"]) == (0, 0.5)
    assert found["foot"] == {"PCK_5": 0, "PCK_10": 0}


def test_nobody_found_and_nobody_there(tmp_path):
    alone = dump(tmp_path / "a", [1, 2], [person(1, 30)], [])
    nobody = dump(tmp_path / "b", [1, 2], [], [pose(2, 30, 0.9)])
    ap, errors = (kind("poses", "people", "truth", skeleton=SKELETON) for kind in (KeypointAP, KeypointErrors))
    assert numbers(ap(alone, BOOTSTRAP))["AP"] == 0
    found = numbers(errors(alone, BOOTSTRAP))
    assert (found["recall"], found["PCK_5"], found["found"]) == (0, 0, 0)
    assert "distance" not in found
    for score in (ap, errors, MedianPoseAP("poses", "people", "truth", skeleton=SKELETON)):
        with pytest.raises(NotApplicableError, match="no annotated person has a labelled keypoint"):
            score(nobody, BOOTSTRAP)
    with pytest.raises(NotApplicableError, match="no annotation has a box"):
        BoxAP("poses", "people", "truth")(nobody, BOOTSTRAP)


def test_an_image_that_occurs_twice(tmp_path):
    twice = dump(tmp_path, [5, 5], [], [])
    with pytest.raises(UserError, match="image_id 5 occurs more than once"):
        BoxAP("poses", "people", "truth")(twice, BOOTSTRAP)


def test_people_are_matched_once_for_all_scores(tmp_path):
    """Scores and pictures of the same dump share an evaluation; other results, data or dumps have their own."""
    truth, results = [person(1, 30)], [pose(1, 30, 0.9)]
    rows = dump(tmp_path / "a", [1], truth, results)
    skeleton = skeleton_of(SKELETON)
    one = evaluate(rows, "poses", "people", "truth", skeleton)
    assert evaluate(rows, "poses", "people", "truth", skeleton_of(SKELETON)) is one
    assert evaluate(rows, "poses", "people", "truth", None) is not one
    assert evaluate(rows, "poses", "people", "truth", skeleton, 0.95).results == []
    other = dump(tmp_path / "b", [1], truth, [pose(1, 300, 0.9)])
    assert evaluate(other, "poses", "people", "truth", skeleton).values()["AP"] == 0.0


# --- maxima of fields ---


def field(peaks: dict[tuple[int, int], float], offset: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """A decoded field of 6 x 7 cells with confidences at (column, row); vectors point `offset` cells away."""
    found = np.zeros((5, 6, 7), np.float32)
    for (column, row), confidence in peaks.items():
        found[1, row, column] = confidence
    found[2], found[3] = np.mgrid[:6, :7][::-1] + np.array(offset, np.float32)[:, None, None]
    return found


def test_maxima_are_confident_cells_that_no_neighbour_exceeds():
    one = field({(1, 1): 0.9, (2, 1): 0.8, (5, 4): 0.5, (0, 5): 0.2}, offset=(0.25, -0.5))
    assert sorted(maxima(one, 0.3).tolist()) == [[1.25, 0.5], [5.25, 3.5]]
    assert maxima(one, 0.95).tolist() == [[1.25, 0.5]]  # none is: the most confident alone


def dump_of_fields(folder, images):
    cif, joints, heights = zip(*images, strict=True)
    return dump_of(folder, mode="fields", columns={"height": heights}, cif=np.stack(cif), joints=np.stack(joints))


MAXIMA = FieldMaxima("fields", "cif", "joints", "height", 0.3, 8)


def test_distances_in_heights(tmp_path):
    near = np.stack([field({(2, 3): 0.9}), field({(4, 1): 0.1})])
    joints = np.array([[16.0, 21.0, 2.0], [32.0, 8.0, 2.0]], np.float32)  # 3 px from (16, 24); on the cell
    hidden = np.array([[0.0, 0.0, 1.0], [32.0, 14.0, 2.0]], np.float32)  # hidden ones do not count; 6 px
    several = np.zeros((2, 3), np.float32)
    score = MAXIMA(
        dump_of_fields(tmp_path, [(near, joints, 30.0), (near, hidden, 60.0), (near, several, 0.0)]), BOOTSTRAP
    )
    assert score["distance"]["value"] == pytest.approx(((3 / 30 + 0) / 2 + 6 / 60) / 2)
    assert score["confident"] == pytest.approx(1 / 3)
    assert (score["joints"], score["images"]) == (3, 2)


def test_no_image_with_one_person(tmp_path):
    empty = np.zeros((2, 3), np.float32)
    with pytest.raises(NotApplicableError, match="no image shows exactly one person"):
        MAXIMA(dump_of_fields(tmp_path, [(np.stack([field({})] * 2), empty, 0.0)]), BOOTSTRAP)
