"""Joints that are not COCO's, from the annotation file to the average precision, and through encoder and decoder."""

import contextlib
import io
import json

import numpy as np
import own_keypoints
import pytest
from own_keypoints import SIGMAS
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from real_people import leave_out_plots
from round_trip import fields_of

from figura.base.exit_status import run
from figura.data.formats.keypoint_sets import AP10K, CROWDPOSE, WHOLEBODY
from figura.dump import Dump
from figura.evaluation.trained import write_dump
from figura.report.metrics import compute_metrics, draw_pictures
from figura.training.trainer import Trainer
from models.pose.annotations import Annotations
from models.pose.coco_evaluation import Evaluation
from models.pose.decode.cifcaf import CifCafDecoder
from models.pose.encoders import Caf, Cif
from stages.prepare import main as prepare

STEPS = 300


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    """The raw content, and the folder that prepare makes of it."""
    folder = tmp_path_factory.mktemp("animals")
    content = own_keypoints.write_raw(folder / "raw")
    own_keypoints.write_params(folder / "project", folder / "raw")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "project")
        leave_out_plots(patch)
        assert run(prepare, ["geckos"]) == 0
    return content, folder / "project/data/prepared/geckos"


def average_precision(truth, results):
    """COCO's AP and AP50 of all images, by pycocotools alone, with the sigmas of the animals."""
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = json.loads(json.dumps(truth))
        coco.createIndex()
        evaluator = COCOeval(coco, coco.loadRes(results), "keypoints")
        evaluator.params.kpt_oks_sigmas = np.array(SIGMAS)
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return evaluator.stats[:2].tolist()


@pytest.mark.slow
def test_animals_with_five_joints_are_learned_by_heart(animals, tmp_path):
    content, root = animals
    trainer = Trainer(own_keypoints.recipe(root, STEPS), tmp_path / "run")
    trainer.fit()
    write_dump(trainer.recipe, dict(trainer.networks.ema), tmp_path / "dump")
    dump = Dump(tmp_path / "dump")
    people = dump.mode("poses").records("people")
    assert {one["category_id"] for one in people} == {7}
    assert {len(one["keypoints"]) for one in people} == {15}
    # one animal may miss the strictest OKS, 0.95: how the processor rounds decides which weights 300 steps end at
    precision, precision_50 = average_precision(content, people)
    assert precision > 0.95
    assert precision_50 == pytest.approx(1.0)
    metrics = compute_metrics(trainer.recipe, dump)
    assert metrics["keypoints"]["AP"]["value"] == pytest.approx(precision)
    assert metrics["boxes"]["objects"] == 2 * len(content["images"])
    assert set(own_keypoints.JOINTS) < set(metrics["errors"])
    assert "nose" not in metrics["errors"]
    draw_pictures(trainer.recipe, dump, tmp_path / "pictures")
    assert {path.stem for path in (tmp_path / "pictures").iterdir()} == set(trainer.recipe.metrics.pictures)


@pytest.mark.parametrize(
    ("skeleton", "joints", "pairs"),
    [(CROWDPOSE, 14, 15), (WHOLEBODY, 133, 143), (AP10K, 17, 17)],
    ids=["crowdpose", "wholebody", "ap10k"],
)
def test_published_joints_through_encoder_and_decoder(skeleton, joints, pairs):
    """Two upright instances side by side: each of their joints comes back within a pixel, in two poses."""
    assert len(skeleton.keypoints) == joints
    span = np.ptp(skeleton.standing_pose, axis=0)
    upright = (skeleton.standing_pose - skeleton.standing_pose.min(axis=0)) * (1, -1) + (0, span[1])
    keypoints = np.full((2, joints, 3), 2.0, np.float32)
    for place, x in enumerate((40, 280)):
        keypoints[place, :, :2] = (x, 30) + upright * min(400 / span[1], 160 / span[0])
    low, high = keypoints[:, :, :2].min(axis=1), keypoints[:, :, :2].max(axis=1)
    people = Annotations(
        keypoints, np.concatenate([low, high - low], axis=1), np.zeros(2, bool), np.zeros(2, np.int64), np.arange(1, 3)
    )
    size, area = (481, 481), np.float32([0, 0, 480, 480])
    cif, caf = (fields_of(kind(skeleton, 8).encode(people, size, area), ends) for kind, ends in ((Cif, 1), (Caf, 2)))
    assert cif.shape[:2] == (joints, 5)
    assert caf.shape[:2] == (pairs, 8)
    (poses,) = CifCafDecoder(stride=8, skeleton=skeleton).batch(cif[None], caf[None], 1)
    assert len(poses) == 2
    order = poses.keypoints[:, 0, 0].argsort()
    away = np.linalg.norm(poses.keypoints[order, :, :2] - keypoints[:, :, :2], axis=2)
    assert away.max() < 1.0
    truth = [
        {"image_id": 1, "category_id": 3, "bbox": box.tolist(), "keypoints": one.ravel().tolist()}
        for box, one in zip(people.boxes, keypoints, strict=True)
    ]
    found = [
        {"image_id": 1, "category_id": 3, "score": float(score), "keypoints": one[:, :3].ravel().tolist()}
        for one, score in zip(poses.keypoints, poses.scores, strict=True)
    ]
    assert Evaluation(truth, found, [1], skeleton.sigmas).values()["AP"] == pytest.approx(1.0)
