"""Recipes with several training datasets: each has heads of its own, and one network learns them all."""

import json
from pathlib import Path

import drawn_scenes
import pytest

from figura.base.errors import UserError
from figura.recipe.load import check_recipe
from figura.training.trainer import Trainer

JOINTS = [f"joint{number}" for number in range(17)]
OTHER = {
    "keypoints": JOINTS,
    "sigmas": [0.1] * 17,
    "connections": [["joint0", "joint1"]],
    "standing_pose": [[float(place), 0.0] for place in range(17)],
}
JOINED = {"cif": {"stride": 8}, "caf": {"stride": 8}}
ALL = JOINED | {"cifdet": {"stride": 8}}


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """Two datasets of 17 joints each: COCO's, and others."""
    coco, other = (tmp_path_factory.mktemp(name) for name in ("coco", "other"))
    for root, joints in ((coco, list(drawn_scenes.KEYPOINTS)), (other, JOINTS)):
        drawn_scenes.write(root, 2)
        categories = [{"id": 1, "name": "person", "keypoints": joints}, {"id": 2, "name": "ball"}]
        for split in ("train", "validation"):
            content = json.loads((root / f"{split}.json").read_text())
            (root / f"{split}.json").write_text(json.dumps(content | {"categories": categories}))
    for root, skeleton in ((coco, drawn_scenes.COCO.settings()), (other, OTHER)):
        facts = json.loads((root / "facts.json").read_text())
        (root / "facts.json").write_text(json.dumps(facts | {"skeleton": skeleton}))
    return coco, other


def recipe(root, train, **networks):
    changes = {"data.train": {name: {"split": "train"} | entry for name, entry in train.items()}}
    changes |= {f"networks.network.{key}": value for key, value in networks.items()}
    return drawn_scenes.content(root, changes)


def test_each_dataset_tells_what_its_heads_are_about(roots):
    train = {"boxes": {"heads": {"cifdet": {"stride": 16}}}, "people": {"heads": JOINED}}
    content = recipe(roots[0], train)
    facts = check_recipe(content, Path("pose.yaml")).facts
    assert facts.keys() == {"side", "categories", "skeleton", "category"}
    objects = {"type": "pose.FindObjects", "cifdet": "cifdet", "output": "objects"}
    content["evaluate"]["modes"]["fields"]["injectors"]["objects"] = objects
    with pytest.raises(UserError, match=r"injectors\.objects: pose\.FindObjects: stride: missing"):
        check_recipe(content, Path("pose.yaml"))


def test_other_joints_do_not_become_fields_of_the_same_head(roots, tmp_path):
    train = {"people": {"heads": ALL}, "others": {"heads": JOINED, "root": str(roots[1])}}
    content = recipe(roots[0], train)
    with pytest.raises(UserError, match=r"train\.json: .*17 keypoints, joint0, .*the skeleton has 17, nose, "):
        Trainer(check_recipe(content, Path("pose.yaml")), tmp_path / "refused")
    own = {"others": {"kind": "cif", "stride": 8}}
    train["others"] |= {"heads": own, "skeleton": OTHER}
    heads = {"cif": {}, "caf": {}, "cifdet": {}, "others": {"kind": "cif", "fields": 17}}
    content = recipe(roots[0], train, heads=heads)
    trainer = Trainer(check_recipe(content, Path("pose.yaml")), tmp_path / "own")
    shown = {name: one.skeleton.keypoints[0] for name, one in trainer.loaders.train_data.items()}
    assert shown == {"people": "nose", "others": "joint0"}
