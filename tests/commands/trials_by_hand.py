"""A project of drawn people and pairs, with untrained networks of a few weights in the place of trained ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import toy

from figura.base.pictures import write_png
from figura.base.yaml12 import read_yaml, to_yaml
from figura.engine.build import build_networks
from figura.formats.coco import KEYPOINTS
from figura.formats.skeletons import COCO
from figura.recipe.schema import Recipe
from figura.training.checkpoints import write_model
from models.people.stickman import draw_skeleton

ROOT = Path(__file__).parents[2]
PEOPLE, SIDE = 3, 96
PALETTE = ((0, 0, 0), (255, 0, 0), (0, 0, 255))
RECIPES = {"drawer": "params.yaml", "reader": "recipes/pose.yaml", "larger": "recipes/super_resolution.yaml",
           "painter": "recipes/pix2pix.yaml"}  # fmt: skip
SHRUNK: dict[str, dict[str, Any]] = {
    "drawer": {
        "data.common.image_size": 32, "data.common.min_height": 10,
        "networks.generator.nf_start": 4, "networks.generator.nf_max": 8,
        "evaluate.grids.transfer.size": 2,
    },
    "reader": {"data.common.side": 65, "data.validation.scenes.side": 97, "predict.data.side": 97},
    "larger": {"networks.generator.features": 4, "networks.generator.growth": 2, "networks.discriminator.features": 4},
    "painter": {
        "data.common.crop_size": 32, "data.train.pairs.load_size": 32, "data.common.label_maps": ["x"],
        "networks.generator.features": 4, "networks.discriminator.features": 4, "networks.discriminator.n_layers": 2,
    },
}  # fmt: skip


def joints_of(person: int) -> np.ndarray:
    """Return the joints (17, 3) of a person who stands in a picture; the left wrist of the last one is not labelled."""
    places = COCO.standing_pose * (6, -8) + (48 + 2 * person, 85)
    joints = np.column_stack([places, np.full(len(places), 2.0)])
    joints[9, 2] = 0 if person == PEOPLE - 1 else 2
    joints[joints[:, 2] == 0] = 0
    return joints


def write_people(root: Path) -> None:
    """Write a prepared dataset whose two splits show the same people, each alone, drawn as stickmen."""
    person = {"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}
    for split in ("train", "validation"):
        images, annotations = [], []
        for number in range(PEOPLE):
            joints = joints_of(number)
            labelled = int((joints[:, 2] > 0).sum())
            name = f"{split}/{number + 1}.png"
            write_png(root / "images" / name, draw_skeleton(joints, COCO, SIDE) // 2 + np.uint8(60 + 40 * number))
            images.append({"id": number + 1, "file_name": name, "height": SIDE, "width": SIDE})
            annotations.append({
                "id": number + 1, "image_id": number + 1, "category_id": 1, "bbox": [34, 4, 32, 86], "iscrowd": 0,
                "keypoints": joints.ravel().tolist(), "num_keypoints": labelled, "area": 1000.0,
                "person_id": number + 1,
            })  # fmt: skip
        content = {"categories": [person, {"id": 2, "name": "ball"}], "images": images, "annotations": annotations}
        (root / f"{split}.json").write_text(json.dumps(content))
    facts = {"skeleton": COCO.settings(), "people": "person", "categories": [
        {"id": 1, "name": "person"}, {"id": 2, "name": "ball"}
    ]}  # fmt: skip
    (root / "facts.json").write_text(json.dumps(facts))
    (root / "manifest.json").write_text(json.dumps({"sha256": "1"}))


def write_pairs(root: Path) -> None:
    """Write A|B pictures: label maps of `PALETTE`, and grey."""
    for split in ("train", "validation"):
        for number in range(3):
            a, b = np.zeros((32, 32, 3), np.uint8), np.full((32, 32, 3), 90, np.uint8)
            a[8:24, 8 + number : 16], a[10:20, 18:28] = PALETTE[1], PALETTE[2]
            write_png(root / split / f"{number}.png", np.concatenate([a, b], axis=1))


def write_project(folder: Path, trained: tuple[str, ...] = tuple(RECIPES)) -> None:
    """Write data, recipes and `dvc.yaml`, and the models of these recipes; the current folder is this one."""
    write_people(folder / "data/prepared/people")
    write_pairs(folder / "data/prepared/pairs")
    for name, source in RECIPES.items():
        (folder / f"{name}.yaml").write_text(to_yaml(toy.changed(SHRUNK[name], toy.shipped(source))))
        if name in trained:
            write_run(folder, name)
    recipes = {name: {"params": f"{name}.yaml"} for name in RECIPES}
    (folder / "dvc.yaml").write_text(to_yaml({"vars": [{"recipes": recipes}]}))


def write_run(folder: Path, name: str) -> None:
    """Write the model of a recipe, with the weights that a training starts from."""
    recipe: Recipe = toy.checked(content=read_yaml(folder / f"{name}.yaml"))
    write_model(folder / f"runs/{name}/model", build_networks(recipe), recipe, {})
