"""Whole ways, from the annotation file to the figures: real COCO pictures, and joints of one's own."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import toy
from decoder_by_hand import fields_of
from people_by_hand import by_pycocotools, scene_of
from real_people import REAL, leave_out_plots, needs_real
from splits_by_hand import fraction

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.dump import Dump
from figura.evaluation.trained import write_dump
from figura.formats.keypoint_sets import AP10K, CROWDPOSE, WHOLEBODY
from figura.recipe.expansion import read_recipe
from figura.recipe.load import check_recipe, load_recipe
from figura.recipe.schema import Recipe
from figura.report.metrics import compute_metrics, draw_pictures
from figura.training.trainer import Trainer
from models.pose.coco_evaluation import Evaluation
from models.pose.decode.cifcaf import CifCafDecoder
from models.pose.encoders import Caf, Cif
from stages import eval_dump, metrics, prepare

ROOT = Path(__file__).parents[2]
TINY = {
    "data.batch_size": 4,
    "networks.network.backbone.widths": [4, 4, 8, 8],
    "train.steps": 2,
    "train.evaluate_every": 2,
    "train.record_every": 1,
    "metrics.bootstrap": 5,
    "runtime.progress": False,
    "runtime.trackers": [],
}
SCORES = {
    "pose": {
        "keypoints": ("persons", "labelled"), "boxes": ("objects", "people"), "errors": ("persons", "labelled"),
        "joints": ("images", "pictures of one"),
    },
    "detection": {"boxes": ("objects", "people")},
}  # fmt: skip
"""Which number of the raw file each score reports, under which key."""


def counts_by_hand():
    """People with labelled joints, people, and pictures of one person with a visible joint, of the split test."""
    entry = read_yaml(ROOT / "data/params.yaml")["datasets"]["people"]
    shares = entry["coco"]["shares"]
    end = shares["validation"] + shares["test"]
    content = json.loads((REAL / "annotations.json").read_text())
    names = {one["id"]: one["file_name"] for one in content["images"]}
    people = [
        one for one in content["annotations"]
        if not one["iscrowd"] and shares["validation"] <= fraction(names[one["image_id"]], entry["seed"]) < end
    ]  # fmt: skip
    of_image = Counter(one["image_id"] for one in people)
    alone = [one for one in people if of_image[one["image_id"]] == 1]
    return {
        "people": len(people),
        "labelled": sum(one["num_keypoints"] > 0 for one in people),
        "pictures of one": sum(2 in one["keypoints"][2::3] for one in alone),
    }


@pytest.mark.slow
@needs_real
@pytest.mark.parametrize("name", SCORES)
def test_real_people_by_paths(real_people, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("data").symlink_to(real_people.parents[1])
    path, folder = Path(f"{name}.yaml"), Path(f"runs/{name}")
    path.write_text(to_yaml(toy.changed(TINY, read_recipe(ROOT / f"recipes/{name}.yaml"))))
    Trainer(load_recipe(path), folder).fit()
    assert run(eval_dump.main, [str(path), str(folder)]) == 0
    assert run(metrics.main, [str(path), str(folder), f"{name}.json", f"plots/{name}"]) == 0
    found = json.loads(Path(f"full/{name}.json").read_text())
    counts = counts_by_hand()
    for score, (key, what) in SCORES[name].items():
        assert found[score][key] == counts[what] > 0, score
    facts = json.loads((folder / "dump/facts.json").read_text())
    assert facts["categories"] == [{"id": 1, "name": "person"}]
    declared = load_recipe(path).metrics.pictures
    assert {one.stem for one in Path(f"plots/{name}/pictures").iterdir()} == {*declared, "losses"}


STEPS = 300
SIDE = 97
JOINTS = ("snout", "left_paw", "right_paw", "left_heel", "right_heel")
SKELETON = ((1, 2), (1, 3), (2, 4), (3, 5), (4, 5))  # from 1, as in COCO's files
SIGMAS = (0.08, 0.1, 0.1, 0.12, 0.12)
CATEGORY = {
    "id": 7, "name": "gecko", "keypoints": list(JOINTS), "skeleton": [list(pair) for pair in SKELETON],
    "sigmas": list(SIGMAS),
}  # fmt: skip
COLOURS = ((255, 255, 255), (0, 0, 255), (0, 255, 0), (255, 0, 0), (0, 255, 255))
SHAPE = np.array([[0.5, 0.0], [0.1, 0.45], [0.9, 0.4], [0.0, 1.0], [1.0, 0.95]])  # snout above, paws, heels


def write_raw(folder: Path, pictures: int = 3) -> dict[str, Any]:
    """Write `images/` and `annotations.json`: pictures with two animals each; return the file's content."""
    random = np.random.default_rng(3)
    (folder / "images").mkdir(parents=True)
    images, annotations = [], []
    for number in range(1, pictures + 1):
        picture = np.full((SIDE, SIDE, 3), 30, np.uint8)
        for left in (6, 52):
            size = random.uniform((28, 40), (36, 60))
            joints = (np.array([left, random.uniform(6, 28)]) + SHAPE * size).round(1)
            for a, b in SKELETON:
                ends = (tuple(int(v) for v in joints[one - 1].round()) for one in (a, b))
                cv2.line(picture, *ends, (120, 120, 120), 2)
            for (x, y), colour in zip(joints, COLOURS, strict=True):
                cv2.circle(picture, (round(x), round(y)), 3, colour, -1)
            low, high = joints.min(axis=0), joints.max(axis=0)
            annotations.append({
                "id": len(annotations) + 1, "image_id": number, "category_id": 7, "iscrowd": 0, "num_keypoints": 5,
                "bbox": [*low.tolist(), *(high - low).tolist()], "area": float((high - low).prod()),
                "keypoints": [value for x, y in joints.tolist() for value in (x, y, 2)],
            })  # fmt: skip
        cv2.imwrite(str(folder / f"images/{number}.png"), picture)
        images.append({"id": number, "file_name": f"{number}.png", "width": SIDE, "height": SIDE})
    content = {"images": images, "annotations": annotations, "categories": [CATEGORY]}
    for name in ("train", "validation"):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return content


def write_params(project: Path, raw: Path) -> None:
    """Write `data/params.yaml` of a project whose dataset `geckos` is the raw one."""
    files = {split: f"{split}.json" for split in ("train", "validation")}
    coco = {"images": "images", "annotations": files}
    entry = {"kind": "coco", "source": str(raw), "seed": 1, "max_rejected": 0.0, "coco": coco}
    (project / "data").mkdir(parents=True)
    (project / "data/params.yaml").write_text(to_yaml({"datasets": {"geckos": entry}}))


def recipe(root: Path, steps: int) -> Recipe:
    """Return `recipes/pose.yaml` for the prepared animals, which it learns by heart."""
    path = Path(__file__).parents[2] / "recipes/pose.yaml"
    changes = {
        "data.common.root": str(root),
        "data.common.side": SIDE,
        "data.validation.scenes.side": ...,
        "evaluate.data": {"scenes": {"split": "validation"}},
        "data.train.scenes.augmentation": ...,
        "data.batch_size": 3,
        "networks.network.backbone.widths": [16, 32, 48, 64],
        "steps.network.lr_schedule": {
            "type": "WarmUp", "steps": 20,
            "then": {"type": "Cosine", "start": steps // 2, "end": steps, "from": 1.0, "to": 0.02},
        },
        "train.steps": steps,
        "train.ema.decay": 0.98,        # of a short training
        "train.evaluate_every": steps,
        "train.record_every": 10,
        "metrics.bootstrap": 10,
        "runtime.progress": False,
        "runtime.trackers": [],
    }  # fmt: skip
    return check_recipe(toy.changed(changes, read_recipe(path)), path)


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    """The raw content, and the folder that prepare makes of it."""
    folder = tmp_path_factory.mktemp("animals")
    content = write_raw(folder / "raw")
    write_params(folder / "project", folder / "raw")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "project")
        leave_out_plots(patch)
        assert run(prepare.main, ["geckos"]) == 0
    return content, folder / "project/data/prepared/geckos"


@pytest.mark.slow
def test_animals_with_five_joints_are_learned_by_heart(animals, tmp_path):
    content, root = animals
    trainer = Trainer(recipe(root, STEPS), tmp_path / "run")
    trainer.fit()
    write_dump(trainer.recipe, dict(trainer.networks.ema), tmp_path / "dump")
    dump = Dump(tmp_path / "dump")
    people = dump.mode("poses").records("people")
    assert {one["category_id"] for one in people} == {7}
    assert {len(one["keypoints"]) for one in people} == {15}
    # one animal may miss the strictest OKS, 0.95: how the processor rounds decides which weights 300 steps end at
    precision, precision_50 = by_pycocotools(content, people, sigmas=SIGMAS).stats[:2]  # of all images
    assert precision > 0.95
    assert precision_50 == pytest.approx(1.0)
    metrics = compute_metrics(trainer.recipe, dump)
    assert metrics["keypoints"]["AP"]["value"] == pytest.approx(precision)
    assert metrics["boxes"]["objects"] == 2 * len(content["images"])
    assert set(JOINTS) < set(metrics["errors"])
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
    for index, x in enumerate((40, 280)):
        keypoints[index, :, :2] = (x, 30) + upright * min(400 / span[1], 160 / span[0])
    people = scene_of(keypoints)
    size, area = (481, 481), np.float32([0, 0, 480, 480])
    cif = fields_of(Cif(skeleton, 8).encode(people, size, area), "cif", unknown_scale=1.0)
    caf = fields_of(Caf(skeleton, 8).encode(people, size, area), "caf", unknown_scale=1.0)
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
