"""COCO's figures against pycocotools' own and against cases counted by hand."""

import contextlib
import copy
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from people_by_hand import AREA, SIGMAS, SKELETON, dump, person, pose
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from bench import inputs
from figura.base.errors import UserError
from figura.data.formats.skeletons import COCO as COCO_PERSON
from figura.data.formats.skeletons import skeleton_from
from models.pose.coco_evaluation import Evaluation
from models.pose.dump_evaluation import evaluate

DATA = Path(__file__).parents[2] / "../shared/data/coco_eval_reference"
with_reference = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is missing")
FILES = {
    "keypoints": ("keypoints_gt.json", "keypoints_dt.json"),
    "bbox": ("instances_val2014_100.json", "instances_val2014_fakebbox100_results.json"),
}


def reference(kind):
    truth, results = (json.loads((DATA / name).read_text()) for name in FILES[kind])
    return truth, results, None if kind == "bbox" else COCO_PERSON.sigmas


def judged_by_pycocotools(truth, results, kind):
    with contextlib.redirect_stdout(io.StringIO()):
        index = COCO()
        index.dataset = copy.deepcopy(truth)
        index.createIndex()
        evaluator = COCOeval(index, index.loadRes(copy.deepcopy(results)), kind)
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return evaluator


def by_pycocotools(truth, results, kind):
    return judged_by_pycocotools(truth, results, kind).stats


def evaluated(kind):
    truth, results, sigmas = reference(kind)
    return Evaluation(truth["annotations"], results, [image["id"] for image in truth["images"]], sigmas)


@with_reference
def test_the_twelve_box_figures_of_the_reference():
    values = list(evaluated("bbox").values().values())
    truth, results, _ = reference("bbox")
    assert values == pytest.approx(by_pycocotools(truth, results, "bbox"), abs=1e-9, rel=0)
    block = (DATA / "val2014_fake_eval_res.txt").read_text().split("type=bbox")[1].split("type=")[0]
    published = [float(line.split("=")[-1]) for line in block.splitlines() if "Average" in line]
    assert len(published) == 12
    assert values == pytest.approx(published, abs=5.01e-4, rel=0)


@with_reference
def test_overlaps_of_matches_of_the_reference():
    evaluation = evaluated("keypoints")
    truth, _, _ = reference("keypoints")
    ids = {(one["image_id"], tuple(one["keypoints"])): one["id"] for one in truth["annotations"]}
    found = dict(zip(evaluation.image_ids, evaluation.matches(), strict=True))
    examples = json.loads((DATA / "keypoints_expected.json").read_text())["oks_examples"]
    for example in examples:
        one, table = found[example["image_id"]], np.array(example["oks_dt_by_gt"])
        # Greedy by hand: results by falling score take the best free person at 0.5 or more.
        match = dict.fromkeys(example["gt_ids"], -1)
        for row, overlaps in enumerate(table):
            for column in np.argsort(-overlaps):
                if overlaps[column] >= 0.5 and match[example["gt_ids"][column]] < 0:
                    match[example["gt_ids"][column]] = row
                    break
        false = [row for row in range(len(table)) if row not in match.values()]
        assert [evaluation.results[place]["score"] for place in one.false] == [example["dt_scores"][r] for r in false]
        for place, overlap, near in zip(one.truth, one.overlaps, one.nearest, strict=True):
            record = evaluation.truth[place]
            number = ids[record["image_id"], tuple(record["keypoints"])]
            column = example["gt_ids"].index(number)
            assert overlap == pytest.approx(table[match[number], column] if match[number] >= 0 else 0.0, abs=1e-12)
            assert near == pytest.approx(table[false, column].max(initial=0.0), abs=1e-12)


def drawn(kind):
    """Crowded scenes, of up to 40 people, with crowds, people without joints, equal scores, and images of nobody."""
    random, truth, results = np.random.default_rng(5), [], []
    for image, people in enumerate([0, 1, 2, 3, 5, 8, 12, 30], start=1):
        own = inputs.annotations(random, image, people)
        truth += [one for one in own if kind == "bbox" or one["category_id"] == 1]
        results += inputs.results(random, image, own)[kind == "bbox"]
    for one in results:
        one["score"] = round(one["score"], 1)
        if kind == "keypoints":
            del one["bbox"]  # pycocotools takes the extent of the joints
    categories = [{"id": category} for category in sorted({one["category_id"] for one in truth})]
    return {
        "images": [{"id": image} for image in range(1, 10)],
        "annotations": truth,
        "categories": categories,
    }, results


@pytest.mark.parametrize(("kind", "sigmas"), [("keypoints", COCO_PERSON.sigmas), ("bbox", None)])
def test_crowded_scenes(kind, sigmas):
    truth, results = drawn(kind)
    theirs = judged_by_pycocotools(truth, results, kind)
    ours = Evaluation(truth["annotations"], results, range(1, 10), sigmas)
    assert list(ours.values().values()) == pytest.approx(theirs.stats, abs=1e-13, rel=0)
    assert len(theirs.stats) == (10 if kind == "keypoints" else 12)
    thresholds, recalls, precisions = ours.curves()
    assert (thresholds == theirs.params.iouThrs).all()
    assert (recalls == theirs.params.recThrs).all()
    assert (precisions == theirs.eval["precision"][..., 0, -1].mean(axis=2)).all()
    assert max(len(one["dtIds"]) for one in theirs.evalImgs if one) == (20 if kind == "keypoints" else 41)
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


@with_reference
@pytest.mark.parametrize("kind", ["keypoints", "bbox"])
def test_weights_are_copies_of_images(kind):
    truth, results, sigmas = reference(kind)
    for place, one in enumerate(results):
        one["score"] += 1e-7 * place  # of equal scores in an image COCOeval may take either first
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
    for place, one in enumerate(copies["annotations"]):
        one["id"] = place + 1
    weights = np.stack([times, np.ones_like(times)]).astype(float)
    resampled = evaluation.resampled(weights)
    expected = by_pycocotools(copies, found, kind)
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


def test_keypoints_of_another_skeleton():
    with pytest.raises(UserError, match="6 numbers as keypoints; the skeleton's 17 keypoints need 51"):
        Evaluation([], [pose(7, 30, 0.9)], [7], COCO_PERSON.sigmas)


def test_people_are_compared_whatever_their_category_ids(tmp_path):
    """Results carry the id of the training data; in the data that they are judged on, people have another."""
    ball = {"id": 9, "image_id": 1, "category_id": 7, "iscrowd": 0, "bbox": [0.0, 0.0, 9.0, 9.0], "area": 81.0}
    rows = dump(tmp_path, [1], [person(1, 30, category_id=3), ball], [pose(1, 30, 0.9, category_id=7)])
    people = evaluate(rows, "poses", "people", "truth", skeleton_from(SKELETON))
    assert people.values()["AP"] == pytest.approx(1.0)
    assert len(people.truth) == 1
    boxes = evaluate(rows, "poses", "people", "truth", None)
    assert boxes.values()["AP"] == 0.0
