"""Scores of poses and boxes against pycocotools and against figures counted by hand."""

import copy
import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from dumps_by_hand import dump_of
from people_by_hand import AREA, SIGMAS, SKELETON, by_pycocotools, dump, person, pose

from figura.base.errors import UserError
from figura.formats.skeletons import COCO as COCO_PERSON
from figura.formats.skeletons import skeleton_from
from figura.report.interfaces import Bootstrap, NotApplicableError
from models.pose.argument_types import skeleton_of
from models.pose.coco_evaluation import Evaluation
from models.pose.coco_scores import BoxAP, KeypointAP, KeypointErrors, MedianPoseAP, TorsoPCK
from models.pose.dump_evaluation import evaluate
from models.pose.field_scores import FieldMaxima, maxima

DATA = Path(__file__).parents[2] / "../shared/data/coco_eval_reference"
with_reference = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is missing")
BOOTSTRAP = Bootstrap(50, 0.9, 4)


FILES = {
    "keypoints": ("keypoints_gt.json", "keypoints_dt.json"),
    "bbox": ("instances_val2014_100.json", "instances_val2014_fakebbox100_results.json"),
}


def reference(kind):
    truth, results = (json.loads((DATA / name).read_text()) for name in FILES[kind])
    return truth, results, None if kind == "bbox" else COCO_PERSON.sigmas


def numbers(figures):
    """The values without their intervals; JSON has to take them all."""
    json.dumps(figures, allow_nan=False)
    return {name: one["value"] if isinstance(one, dict) and "low" in one else one for name, one in figures.items()}


@with_reference
def test_the_stage_gives_the_figures_of_the_reference(tmp_path):
    expected = json.loads((DATA / "keypoints_expected.json").read_text())["stats"]
    truth, results, _ = reference("keypoints")
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
    evaluator = by_pycocotools(truth, people)
    found = MedianPoseAP("poses", "people", "truth")(dump(tmp_path, ids, truth["annotations"], []), BOOTSTRAP)
    assert found["AP"]["low"] < found["AP"]["high"]
    assert numbers(found) == pytest.approx({"AP": evaluator.stats[0], "AP50": evaluator.stats[1]}, abs=1e-9)
    assert 0 < found["AP"]["value"] < 0.5


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
    assert found["AR_hidden_none"] == 0
    assert found["AR_hidden_much"] == pytest.approx(1)  # one of two joints is half: much
    assert "AR_hidden_some" not in found
    assert not any(name.startswith("AP_hidden") for name in found)  # the false result may be in any range
    assert [found[f"persons_hidden_{name}"] for name in ("none", "some", "much")] == [1, 0, 2]


def test_thirds_of_the_people_by_height(tmp_path):
    """Heights 0.1 to 0.6 of the image's: thirds of two each, bounds at 1/3 and 2/3 of the way (NumPy's quantiles)."""
    box = {index: [30.0 + 100 * index, 20.0, 50.0, 20.0 * (index + 1)] for index in range(6)}
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
    figures = score(dump(tmp_path / "two", [1, 2], truth, results), BOOTSTRAP)
    found = numbers(figures)
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["distance"] == pytest.approx((0.04 + 0.04 + 0.06) / 3)
    assert (found["PCK_5"], found["PCK_10"]) == pytest.approx((2 / 5, 3 / 5))
    assert (found["persons"], found["found"]) == (3, 2)
    assert found["head"] == pytest.approx({"distance": 0.05, "PCK_5": 1 / 3, "PCK_10": 2 / 3})
    assert found["foot"] == pytest.approx({"distance": 0.04, "PCK_5": 1 / 2, "PCK_10": 1 / 2})
    # Both of image 1 and nobody of image 2: 2/3 away from 2/3 each, as in (2/9) 3^2 / (8/9) = 2.25 independent trials.
    assert (figures["recall"]["low"], figures["recall"]["high"]) == pytest.approx((0.2157, 0.9357), abs=1e-4)
    # Drawn twice, image 2 has nobody found: no distance there, and that sample is left out of its interval.
    assert figures["distance"]["low"] == figures["distance"]["high"] == pytest.approx(found["distance"])
    one = dump(tmp_path / "one", [1], truth[:1], [pose(1, 30, 0.9, confidences=(0.9, 0.0))])
    found = numbers(score(one, BOOTSTRAP))
    assert (found["distance"], found["PCK_10"]) == (0, 0.5)  # a joint that the result lacks is a miss, no distance
    assert found["foot"] == {"PCK_5": 0, "PCK_10": 0}


def test_joints_within_a_fifth_of_the_torso(tmp_path):
    """People whose torso is their 100 pixels from head to foot: 20 pixels are correct, 21 are not."""
    torso = {"torso": ("head", "foot"), "skeleton": SKELETON}
    truth = [
        person(1, 30),
        person(1, 150, number=2),
        person(2, 30, number=3),
        person(2, 150, flags=(2, 0), number=4),  # no torso
        person(3, 30, number=5),
        person(3, 150, flags=(0, 0), number=6, iscrowd=1),
    ]
    results = [
        pose(1, 30, 0.2, off=20),  # closest to the first, though the next has a better score
        pose(1, 30, 0.9, off=50),  # closest to the second, 70 pixels away
        pose(2, 30, 0.9, off=-21) | {"keypoints": [30.0, 20.0, 0.9, 9.0, 120.0, 0.9]},
        pose(2, 150, 0.9),
    ]
    figures = TorsoPCK("poses", "people", "truth", **torso)(dump(tmp_path, [1, 2, 3, 4], truth, results), BOOTSTRAP)
    found = numbers(figures)
    # Of eight joints: two of the first, none of the second, one head of the third, none in the image without results.
    assert found["PCK"] == pytest.approx(3 / 8)
    assert (found["head"], found["foot"]) == pytest.approx((2 / 4, 1 / 4))
    assert (found["people"], found["without_torso"]) == (4, 1)
    assert found["median_pose"] == 1  # all stand alike in their boxes
    assert figures["PCK"]["low"] < found["PCK"] < figures["PCK"]["high"]
    lacking = dump(tmp_path / "lacking", [1], truth[:1], [pose(1, 30, 0.9, confidences=(0.9, 0.0))])
    assert numbers(TorsoPCK("poses", "people", "truth", **torso)(lacking, BOOTSTRAP))["PCK"] == 1 / 2
    strict = TorsoPCK("poses", "people", "truth", within=0.19, **torso)
    assert numbers(strict(dump(tmp_path / "one", [1], truth[:1], results[:1]), BOOTSTRAP))["PCK"] == 0
    half = dump(tmp_path / "half", [1], [person(1, 30, flags=(2, 0))], results[:1])
    with pytest.raises(NotApplicableError, match="no annotated person has a torso: head and foot"):
        strict(half, BOOTSTRAP)
    with pytest.raises(ValueError, match="torso: 'left_shoulder' is none of the joints head, foot"):
        TorsoPCK("poses", "people", "truth", skeleton=SKELETON)


def test_the_torsos_of_drawn_people_are_measured_one_by_one(tmp_path):
    """COCO's joints, several people and results an image, in NumPy without anything of the module."""
    truth, results = drawn("keypoints")
    ids = [one["id"] for one in truth["images"]]
    names, hits, total, skipped = COCO_PERSON.keypoints, 0, 0, 0
    for one in truth["annotations"]:
        joints = np.reshape(one["keypoints"], (17, 3))
        shoulder, hip = (joints[names.index(name)] for name in ("left_shoulder", "right_hip"))
        if one["iscrowd"] or not one["num_keypoints"]:
            continue
        if not (shoulder[2] and hip[2]):
            skipped += 1
            continue
        labelled = joints[:, 2] > 0
        best, highest = None, -1.0
        own = [result for result in results if result["image_id"] == one["image_id"]]
        for result in sorted(own, key=lambda result: -result["score"])[:20]:
            away = np.linalg.norm(np.reshape(result["keypoints"], (17, 3))[:, :2] - joints[:, :2], axis=1)
            oks = np.exp(-(away**2) / (2 * one["area"] * (2 * np.array(COCO_PERSON.sigmas)) ** 2))[labelled].mean()
            if oks > highest:
                best, highest = away, oks
        total += int(labelled.sum())
        hits += int((best[labelled] <= 0.2 * np.linalg.norm(shoulder[:2] - hip[:2])).sum())
    rows = dump(tmp_path, ids, truth["annotations"], results)
    found = numbers(TorsoPCK("poses", "people", "truth")(rows, BOOTSTRAP))
    assert (found["PCK"], found["without_torso"]) == (pytest.approx(hits / total), skipped)
    assert 0.5 < found["PCK"] < found["median_pose"] < 1  # they stand in the median pose, with noise


def test_nobody_found_and_nobody_there(tmp_path):
    alone = dump(tmp_path / "a", [1, 2], [person(1, 30)], [])
    nobody = dump(tmp_path / "b", [1, 2], [], [pose(2, 30, 0.9)])
    ap, errors = (kind("poses", "people", "truth", skeleton=SKELETON) for kind in (KeypointAP, KeypointErrors))
    assert numbers(ap(alone, BOOTSTRAP))["AP"] == 0
    found = numbers(errors(alone, BOOTSTRAP))
    assert (found["recall"], found["PCK_5"], found["found"]) == (0, 0, 0)
    assert "distance" not in found
    torso = TorsoPCK("poses", "people", "truth", torso=("head", "foot"), skeleton=SKELETON)
    assert numbers(torso(alone, BOOTSTRAP))["PCK"] == 0
    for score in (ap, errors, torso, MedianPoseAP("poses", "people", "truth", skeleton=SKELETON)):
        with pytest.raises(NotApplicableError, match="no annotated person has a labelled keypoint"):
            score(nobody, BOOTSTRAP)
    with pytest.raises(NotApplicableError, match="no annotation has a box"):
        BoxAP("poses", "people", "truth")(nobody, BOOTSTRAP)
    with pytest.raises(UserError, match="image_id 5 occurs more than once"):
        BoxAP("poses", "people", "truth")(dump(tmp_path / "c", [5, 5], [], []), BOOTSTRAP)


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
        dump_of_fields(tmp_path / "some", [(near, joints, 30.0), (near, hidden, 60.0), (near, several, 0.0)]), BOOTSTRAP
    )
    assert score["distance"]["value"] == pytest.approx(((3 / 30 + 0) / 2 + 6 / 60) / 2)
    assert score["confident"] == pytest.approx(1 / 3)
    assert (score["joints"], score["images"]) == (3, 2)
    with pytest.raises(NotApplicableError, match="no image shows exactly one person"):
        MAXIMA(dump_of_fields(tmp_path / "nobody", [(near, several, 0.0)]), BOOTSTRAP)


@with_reference
def test_the_twelve_box_figures_of_the_reference(tmp_path):
    truth, results, _ = reference("bbox")
    rows = dump(tmp_path, [one["id"] for one in truth["images"]], truth["annotations"], results, name="objects")
    found = numbers(BoxAP("poses", "objects", "truth")(rows, BOOTSTRAP))
    assert found.pop("objects") == sum(not one["iscrowd"] for one in truth["annotations"])
    assert found.pop("images") == len(truth["images"])
    values = list(found.values())
    assert values == pytest.approx(by_pycocotools(truth, results, "bbox").stats, abs=1e-9, rel=0)
    block = (DATA / "val2014_fake_eval_res.txt").read_text().split("type=bbox")[1].split("type=")[0]
    published = [float(line.split("=")[-1]) for line in block.splitlines() if "Average" in line]
    assert values == pytest.approx(published, abs=5.01e-4, rel=0)


def drawn(kind):
    """Crowded scenes, of up to 30 people, with crowds, people without joints, equal scores, and images of nobody."""
    random, truth, results = np.random.default_rng(5), [], []
    body = (COCO_PERSON.standing_pose - COCO_PERSON.standing_pose.min(axis=0)) * (0.1, -0.1)

    def result(image, category, joints, box):
        """What is found there: pycocotools takes the extent of the joints if there is no box."""
        one = {"image_id": image, "category_id": category, "score": round(random.uniform(), 1)}
        flat = np.c_[joints, random.uniform(size=17)].ravel().tolist()
        return one | ({"keypoints": flat} if kind == "keypoints" else {"bbox": np.maximum(box, 0.1).tolist()})

    for image, people in enumerate([0, 1, 2, 3, 5, 8, 12, 30], start=1):
        for index in range(people if kind == "keypoints" else people + 2):
            tall, (crowd, bare) = float(np.exp(random.uniform(3, 6))), random.uniform(size=2) < (1 / 30, 0.1)
            joints = random.uniform(100, 400, 2) + tall * (body + random.normal(0, 0.03, body.shape))
            flags = random.choice([0.0, 1.0, 2.0], 17, p=[0.2, 0.1, 0.7]) * (not (crowd or bare))
            low, size = joints.min(axis=0), np.ptp(joints, axis=0)
            box, category = np.array([*low, *size]), 1 if index < people else 2 + index % 4
            truth.append({
                "id": len(truth) + 1, "image_id": image, "category_id": category, "iscrowd": int(crowd),
                "bbox": box.tolist(), "area": 0.6 * float(size.prod()), "num_keypoints": int((flags > 0).sum()),
                "keypoints": np.where(flags[:, None] > 0, np.c_[joints, flags], 0.0).ravel().tolist(),
            })  # fmt: skip
            for _ in range(1 + random.poisson(0.6)):
                noise = tall * random.gamma(2.0, 0.02)
                moved = joints + random.normal(0, noise, joints.shape), box + random.normal(0, noise, 4)
                results.append(result(image, category, *moved))
        joints = random.uniform(0, 300, (17, 2))  # of nobody
        results.append(result(image, 1, joints, np.array([*joints.min(axis=0), *np.ptp(joints, axis=0)])))
    return {
        "images": [{"id": image} for image in range(1, 10)],
        "annotations": truth,
        "categories": [{"id": category} for category in sorted({one["category_id"] for one in truth})],
    }, results


@pytest.mark.parametrize(("kind", "sigmas"), [("keypoints", COCO_PERSON.sigmas), ("bbox", None)])
def test_crowded_scenes(kind, sigmas):
    truth, results = drawn(kind)
    theirs = by_pycocotools(truth, results, kind)
    ours = Evaluation(truth["annotations"], results, range(1, 10), sigmas)
    assert list(ours.values().values()) == pytest.approx(theirs.stats, abs=1e-13, rel=0)
    assert len(theirs.stats) == (10 if kind == "keypoints" else 12)
    thresholds, recalls, precisions = ours.curves()
    assert (thresholds == theirs.params.iouThrs).all()
    assert (recalls == theirs.params.recThrs).all()
    assert (precisions == theirs.eval["precision"][..., 0, -1].mean(axis=2)).all()
    most = max(len(one["dtIds"]) for one in theirs.evalImgs if one)
    assert most == 20 if kind == "keypoints" else most > 20
    # who matches whom at 0.5, all categories and areas
    taken, false = {}, set()
    for one in theirs.evalImgs:
        if one and one["aRng"] == theirs.params.areaRng[0]:
            places = [number - 1 for number in one["dtIds"]]
            false |= {
                p for p, by, no in zip(places, one["dtMatches"][0], one["dtIgnore"][0], strict=True) if not (by or no)
            }
            ids = zip(one["gtIds"], one["gtMatches"][0], one["gtIgnore"], strict=True)
            taken |= {number: int(by) - 1 for number, by, ignored in ids if not ignored}
    pairs = [(one.truth, one.results, one.false) for one in ours.matches()]
    assert {ours.truth[t]["id"]: r for people, by, _ in pairs for t, r in zip(people, by, strict=True)} == taken
    assert {place for _, _, wrong in pairs for place in wrong.tolist()} == false
    assert min(len(taken), len(false)) > 20


@pytest.mark.parametrize(("kind", "sigmas"), [("keypoints", COCO_PERSON.sigmas), ("bbox", None)])
def test_weights_are_copies_of_images(kind, sigmas):
    truth, results = drawn(kind)
    for index, one in enumerate(results):
        one["score"] += 1e-7 * index  # of equal scores in an image COCOeval may take either first
    evaluation = Evaluation(truth["annotations"], results, [image["id"] for image in truth["images"]], sigmas)
    times = np.random.default_rng(3).integers(0, 4, size=len(evaluation.image_ids))
    copies, number = {"images": [], "annotations": [], "categories": truth["categories"]}, 0
    found = []
    for image, count in zip(evaluation.image_ids, times.tolist(), strict=True):
        for _ in range(count):
            number += 1
            copies["images"].append({"id": number})
            own = (one for one in truth["annotations"] if one["image_id"] == image)
            copies["annotations"] += [{**one, "image_id": number} for one in own]
            found += [{**one, "image_id": number} for one in results if one["image_id"] == image]
    for index, one in enumerate(copies["annotations"]):
        one["id"] = index + 1
    weights = np.stack([times, np.ones_like(times)]).astype(float)
    resampled = evaluation.resampled(weights)
    expected = by_pycocotools(copies, found, kind).stats
    assert [one[0] for one in resampled.values()] == pytest.approx(expected, abs=1e-12, rel=0)
    once = {name: one[1] for name, one in resampled.items()}
    assert once == pytest.approx(evaluation.values(), abs=1e-12, rel=0)


def figures(truth, results, images=(1,)):
    return Evaluation(truth, results, images, SIGMAS).values()


def test_crowds_and_people_without_keypoints_are_ignored():
    crowd = person(1, 150, flags=(0, 0), number=2, iscrowd=1, bbox=[100.0, 0.0, 100.0, 200.0])
    unlabelled = person(1, 400, flags=(0, 0), number=3)
    truth = [person(1, 30), crowd, unlabelled]
    in_crowd = [pose(1, x, 0.99) for x in (120, 150, 180)]
    values = figures(truth, [*in_crowd, pose(1, 400, 0.95), pose(1, 30, 0.5)])
    assert (values["AP"], values["AR"]) == pytest.approx((1, 1))
    one = Evaluation(truth, [*in_crowd, pose(1, 30, 0.5)], [1], SIGMAS).matches()[0]
    assert (one.truth.tolist(), one.results.tolist(), one.false.tolist()) == ([0], [3], [])
    # A second pose on somebody without keypoints is false: only a crowd takes several.
    assert figures(truth, [pose(1, 400, 0.95), pose(1, 400, 0.9), pose(1, 30, 0.5)])["AP"] == pytest.approx(1 / 2)


def test_nothing_is_found_or_nothing_is_there():
    values = figures([person(1, 30)], [])
    assert values["AP"] == values["AP50"] == values["AR"] == 0.0
    assert all(math.isnan(value) for value in figures([], [pose(1, 30, 0.9)]).values())
    assert all(math.isnan(value) for value in figures([], []).values())
    boxes = Evaluation([], [], [1, 2]).values()
    assert len(boxes) == 12
    assert all(math.isnan(value) for value in boxes.values())
    assert np.isnan(Evaluation([], [pose(1, 30, 0.9)], [1], SIGMAS).resampled(np.ones((2, 1)))["AP"]).all()
    with pytest.raises(UserError, match="6 numbers as keypoints; the skeleton's 17 keypoints need 51"):
        Evaluation([], [pose(7, 30, 0.9)], [7], COCO_PERSON.sigmas)


def test_what_is_left_out_is_completed_and_the_ids_do_not_matter(capsys):
    bare = person(1, 30, number=0)  # COCOeval would take a match with id 0 for none
    for name in ("iscrowd", "area", "num_keypoints"):
        del bare[name]
    cup = {"id": 0, "image_id": 1, "category_id": 2, "bbox": [0.0, 0.0, 9.0, 9.0]}  # an object: no keypoints
    truth, results = [bare, cup], [pose(1, 30, 0.9)]
    before = copy.deepcopy((truth, results))
    evaluation = Evaluation(truth, results, [1], SIGMAS)
    assert evaluation.values()["AP"] == pytest.approx(1)
    assert evaluation.truth[0]["area"] == AREA
    assert evaluation.categories == [1]
    assert (truth, results) == before
    assert capsys.readouterr().out == ""
    del results[0]["bbox"]  # then the extent of the keypoints, a line, is the area: out of `medium`, but matched
    assert figures(truth, results)["AP_medium"] == pytest.approx(1)


def test_ranges_of_another_measure():
    truth = [person(1, 30), person(1, 150, number=2)]
    results = [pose(1, 30, 0.5), pose(1, 600, 0.9), pose(1, 900, 0.8)]
    whole = Evaluation(truth, results, [1], SIGMAS)
    ranges = {"low": (0.0, 0.4), "high": (0.5, 1.0), "none": (2.0, 3.0)}
    values = whole.ranged(ranges, [0.2, 0.7], [0.7, 0.4, 0.7]).values()
    # Low: the first person is found (by a result out of range: no matter), the second result is false, the third is out
    # of range. High: the second person is missed.
    assert values["AP_low"] == pytest.approx(0.5)
    assert (values["AR_low"], values["AP_high"], values["AR_high"]) == pytest.approx((1, 0, 0))
    assert math.isnan(values["AP_none"])
    assert whole.truth[0]["area"] == AREA
    nowhere = whole.ranged(ranges, [0.2, 0.7], [math.nan] * 3).values()
    assert nowhere["AP_low"] == pytest.approx(1 / 3)  # nothing is out of range: both others are false


def test_people_are_compared_whatever_their_category_ids(tmp_path):
    """Results carry the id of the training data; in the data that they are judged on, people have another."""
    ball = {"id": 9, "image_id": 1, "category_id": 7, "iscrowd": 0, "bbox": [0.0, 0.0, 9.0, 9.0], "area": 81.0}
    rows = dump(tmp_path, [1], [person(1, 30, category_id=3), ball], [pose(1, 30, 0.9, category_id=7)])
    people = evaluate(rows, "poses", "people", "truth", skeleton_from(SKELETON))
    assert people.values()["AP"] == pytest.approx(1.0)
    assert len(people.truth) == 1
    boxes = evaluate(rows, "poses", "people", "truth", None)
    assert boxes.values()["AP"] == 0.0
