"""A dataset of animals with five joints of their own, as a raw COCO file with its pictures, and a recipe for it."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import toy

from figura.base.yaml12 import read_yaml, to_yaml
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe

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
    return check_recipe(toy.changed(changes, read_yaml(path)), path)
