"""A prepared dataset of small pictures, each a person of coloured joints and a ball, and a recipe for it."""

import json
from pathlib import Path

import cv2
import numpy as np
import toy

from figura.base.yaml12 import read_yaml
from figura.formats.coco import KEYPOINTS
from figura.formats.skeletons import COCO
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe

SIDE = 65
CATEGORIES = [{"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}, {"id": 2, "name": "ball"}]
KINDS = ("cif", "caf", "cifdet")
DETECT = {
    "type": "Forward",
    "network": "network",
    "inputs": {"image": "image"},
    "args": {"decode": True},
    "outputs": {kind: kind for kind in KINDS},
}


def write(root: Path, images: int = 4) -> None:
    """Write `train.json` and `validation.json`, which are the same, and `images`."""
    random = np.random.default_rng(0)
    colours = random.integers(64, 256, (17, 3)).tolist()
    (root / "images").mkdir(parents=True)
    records, annotations = [], []
    for number in range(1, images + 1):
        size = random.uniform(4.0, 5.0)
        corner = random.uniform((20, 4), (44, 8))
        joints = corner + size * (np.asarray(COCO.standing_pose) * [1, -1] + [0, 9.7])
        picture = np.zeros((SIDE, SIDE, 3), np.uint8)
        for (x, y), colour in zip(joints, colours, strict=True):
            cv2.circle(picture, (round(x), round(y)), 2, colour, -1)
        ball = random.integers(4, 52, 2)
        cv2.circle(picture, (ball + 4).tolist(), 4, (255, 255, 255), -1)
        cv2.imwrite(str(root / f"images/{number}.png"), picture)
        records.append({"id": number, "file_name": f"{number}.png", "width": SIDE, "height": SIDE})
        first, last = joints.min(axis=0), joints.max(axis=0)
        person = {"bbox": [*first, *(last - first)], "keypoints": [v for x, y in joints for v in (x, y, 2)]}
        for kind, more in ((1, person), (2, {"bbox": [*ball.tolist(), 9, 9]})):
            more = {"id": len(annotations) + 1, "image_id": number, "category_id": kind, "iscrowd": 0} | more
            annotations.append({"area": more["bbox"][2] * more["bbox"][3], "num_keypoints": 17, **more})
    content = {"images": records, "annotations": annotations, "categories": CATEGORIES}
    for split in ("train", "validation"):
        (root / f"{split}.json").write_text(json.dumps(content))
    facts = {"skeleton": None, "categories": [{"id": 1, "name": "person"}, {"id": 2, "name": "ball"}]}
    (root / "facts.json").write_text(json.dumps(facts | {"people": "person", "annotated": {}}))
    (root / "manifest.json").write_text(json.dumps({"sha256": "drawn"}))


def content(root: Path, changes: dict) -> dict:
    """Return `recipes/pose.yaml` for these pictures and a small network, with values at dotted keys replaced."""
    recipe = read_yaml(Path(__file__).parents[2] / "recipes/pose.yaml")
    small = {
        "data.train.scenes.augmentation": ...,
        "data.batch_size": 2,
        "networks.network.backbone": {"name": "small", "widths": [8, 8, 16, 16]},
        "steps.network.lr_schedule": {"type": "Constant"},
        "evaluate": {
            "batch_size": 2,
            "inputs": {},
            "modes": {"fields": {"injectors": {"detect": DETECT}, "save": {"cif": "array"}}},
        },
        "predict": ...,
        "metrics": {"bootstrap": 5, "confidence": 0.9, "scores": {"cif": {"type": "toy.Mean", "column": "loss.cif"}}},
        "train.steps": 2,
        "train.evaluate_every": 1000,
        "train.record_every": 1,
        "runtime.progress": False,
        "runtime.trackers": [],
    }
    small |= {"data.common.root": str(root), "data.common.side": SIDE, "data.validation.scenes.side": ...}
    return toy.changed({**small, **changes}, recipe)


def checked(root: Path, changes: dict) -> Recipe:
    """The recipe with `content`, checked."""
    return check_recipe(content(root, changes), Path("pose.yaml"))
