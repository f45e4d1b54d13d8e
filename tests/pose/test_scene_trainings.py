"""Trainings on drawn scenes: pictures of several shapes, several datasets."""

import json
from pathlib import Path

import cv2
import drawn_scenes
import numpy as np
import pytest

from figura.base.errors import UserError
from figura.dump import Dump
from figura.evaluation.trained import write_dump
from figura.recipe.load import check_recipe
from figura.training.trainer import Trainer


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    drawn_scenes.write(folder)
    return folder


def test_a_recipe_trains_by_an_earlier_loss(root, run):
    changes = {}
    for kind in drawn_scenes.KINDS:
        changes[f"networks.network.heads.{kind}.log_scales"] = "vector"
        changes[f"networks.network.heads.{kind}.scale_law"] = "exp"
        inputs = {"fields": kind, "target": f"{kind}_target"}
        changes[f"losses.{kind}"] = {"type": "pose.BceLaplace11", "head": kind, "inputs": inputs, "weight": 1.0}
    trainer = Trainer(drawn_scenes.checked(root, changes), run)
    heads = trainer.networks.live["network"].head_nets
    before = {kind: head.conv.weight.clone() for kind, head in heads.items()}
    trainer.fit()
    expected = {f"{kind}.{part}.raw" for kind in drawn_scenes.KINDS for part in ("confidence", "vector", "scale")}
    for row in trainer.loss_log.train:
        found = {name for name in row if name.count(".") == 2 and name.endswith(".raw")}
        assert found == expected - {"cifdet.scale.raw"}
        assert row["network.skipped"] == 0
    for kind, head in heads.items():
        moved = (head.conv.weight != before[kind]).flatten(1).any(dim=1)
        assert moved.view(-1, head.layout.components, 4).any(dim=2).any(dim=0).all()  # 4 = upsample squared


# --- pictures of several shapes: only those of one shape share a batch ---

SIZES = ((65, 33), (33, 65), (65, 65), (65, 33))  # width, height of the first images; by example, in the order of ids


@pytest.mark.parametrize("alone", [False, True], ids=["several shapes", "no two alike"])
def test_pictures_of_several_shapes(tmp_path, alone):
    drawn_scenes.write(tmp_path / "data", 4)
    path = tmp_path / "data/validation.json"
    content = json.loads(path.read_text())
    for image, (width, height) in zip(content["images"], SIZES, strict=True):
        image |= {"width": width, "height": height, "file_name": f"cut_{image['file_name']}"}
        cv2.imwrite(str(tmp_path / "data/images" / image["file_name"]), np.zeros((height, width, 3), np.uint8))
    content["images"] = content["images"][: 3 if alone else 4]
    known = {image["id"] for image in content["images"]}
    content["annotations"] = [one for one in content["annotations"] if one["image_id"] in known]
    path.write_text(json.dumps(content))
    changes = {"data.validation.scenes.joints": False, "data.batch_size": 2}
    trainer = Trainer(drawn_scenes.checked(tmp_path / "data", changes), tmp_path / "run")
    (scenes,) = trainer.loaders.validation_data.values()
    assert [scenes.group(index) for index in range(len(scenes))] == [size[::-1] for size in SIZES[: len(scenes)]]
    trainer.fit()
    write_dump(trainer.recipe, dict(trainer.networks.ema), tmp_path / "dump")
    rows = Dump(tmp_path / "dump")
    assert sorted(rows.table["image_id"]) == sorted(known)
    shapes = {row["index"]: row["cif"].shape[2:] for row in rows}
    assert shapes == {
        index: (height // 8 + 1, width // 8 + 1) for index, (width, height) in enumerate(SIZES[: len(scenes)])
    }


# --- several datasets: each has heads of its own ---

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
    coco_joints = list(drawn_scenes.KEYPOINTS), drawn_scenes.COCO.settings()
    for root, joints, skeleton in ((coco, *coco_joints), (other, JOINTS, OTHER)):
        drawn_scenes.write(root, 2)
        categories = [{"id": 1, "name": "person", "keypoints": joints}, {"id": 2, "name": "ball"}]
        for name, change in (
            ("train", {"categories": categories}), ("validation", {"categories": categories}),
            ("facts", {"skeleton": skeleton}),
        ):  # fmt: skip
            path = root / f"{name}.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | change))
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


@pytest.mark.parametrize("skeleton", [OTHER, None])  # None: that of its own folder
def test_other_joints_do_not_become_fields_of_the_same_head(skeleton, roots, tmp_path):
    train = {"people": {"heads": ALL}, "others": {"heads": JOINED, "root": str(roots[1])}}
    content = recipe(roots[0], train)
    with pytest.raises(UserError, match=r"train\.json: .*17 keypoints, joint0, .*the skeleton has 17, nose, "):
        Trainer(check_recipe(content, Path("pose.yaml")), tmp_path / "refused")
    own = {"others": {"kind": "cif", "stride": 8}}
    train["others"] |= {"heads": own, "skeleton": skeleton}
    heads = {"cif": {}, "caf": {}, "cifdet": {}, "others": {"kind": "cif", "fields": 17}}
    content = recipe(roots[0], train, heads=heads)
    trainer = Trainer(check_recipe(content, Path("pose.yaml")), tmp_path / "own")
    shown = {name: one.skeleton.keypoints[0] for name, one in trainer.loaders.train_data.items()}
    assert shown == {"people": "nose", "others": "joint0"}
