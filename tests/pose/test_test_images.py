"""COCO's test images: from an image-info file without annotations to the archive for the server."""

import json
import zipfile
from pathlib import Path

import cv2
import drawn_scenes
import numpy as np
import pytest
import toy
from real_people import leave_out_plots

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.recipe.load import load_recipe
from figura.training.trainer import Trainer
from models.pose import submit as submit_pose
from stages import eval_dump, prepare

ROOT = Path(__file__).parents[2]
TEST_IMAGES = {101: (48, 64), 102: (64, 48), 205: (80, 80)}  # height, width
FIND = "evaluate.modes.poses.injectors.people"
CHANGES = {
    "data.common.root": "data/prepared/people",
    "data.common.side": drawn_scenes.SIDE,
    "data.validation.scenes.side": ...,
    "data.train.scenes.augmentation": ...,
    "data.batch_size": 2,
    "networks.network.backbone": {"name": "small", "widths": [4, 4, 8, 8]},
    "train.steps": 2,
    "train.evaluate_every": 2,
    "train.record_every": 1,
    "steps.network.lr_schedule": {"type": "Constant"},
    f"{FIND}.decoder.seed_threshold": 0.0,  # an untrained network shall find people, too
    f"{FIND}.decoder.cif_threshold": 0.0,
    f"{FIND}.least_score": 0.0,
    f"{FIND}.maximum": 2,
    "metrics.bootstrap": 5,
    "runtime.progress": False,
    "runtime.trackers": [],
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with drawn people for training, and pictures of which only the sizes are known, for testing."""
    drawn_scenes.write(tmp_path / "raw", 3)
    content = json.loads((tmp_path / "raw/train.json").read_text())
    for image, (height, width) in TEST_IMAGES.items():
        picture = np.random.default_rng(image).integers(256, size=(height, width, 3), dtype=np.uint8)
        cv2.imwrite(str(tmp_path / f"raw/images/{image}.png"), picture)
    info = {
        "images": [
            {"id": image, "file_name": f"{image}.png", "height": height, "width": width}
            for image, (height, width) in TEST_IMAGES.items()
        ],
        "categories": [{"id": one["id"], "name": one["name"]} for one in content["categories"]],
    }
    (tmp_path / "raw/image_info_test-dev2017.json").write_text(json.dumps(info))
    files = {"train": "train.json", "validation": "validation.json", "test-dev": "image_info_test-dev2017.json"}
    entry = {"kind": "coco", "source": str(tmp_path / "raw"), "seed": 1, "max_rejected": 0.0}
    entry["coco"] = {"images": "images", "annotations": files}
    (tmp_path / "data").mkdir()
    (tmp_path / "data/params.yaml").write_text(to_yaml({"datasets": {"people": entry}}))
    (tmp_path / "pose.yaml").write_text(to_yaml(toy.changed(CHANGES, read_yaml(ROOT / "recipes/pose.yaml"))))
    monkeypatch.chdir(tmp_path)
    leave_out_plots(monkeypatch)
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_from_image_info_to_the_archive(capsys):
    assert run(prepare.main, ["people"]) == 0
    Trainer(load_recipe(Path("pose.yaml")), Path("runs/pose")).fit()
    words = ["pose.yaml", "runs/pose", "--split", "test-dev", "--output", "test-dev"]
    assert run(eval_dump.main, words) == 0
    assert json.loads(Path("test-dev/inputs/truth.json").read_text()) == []
    capsys.readouterr()
    assert run(submit_pose.main, ["test-dev", ".", "--testset", "test-dev2017", "--algorithm", "toy"]) == 0
    assert "of 3 images" in capsys.readouterr().out
    with zipfile.ZipFile("person_keypoints_test-dev2017_toy_results.zip") as archive:
        (name,) = archive.namelist()
        results = json.loads(archive.read(name))
    assert name == "person_keypoints_test-dev2017_toy_results.json"
    assert {one["image_id"] for one in results} == set(TEST_IMAGES)
    for one in results:
        assert set(one) == {"image_id", "category_id", "keypoints", "score"}
        assert (one["category_id"], len(one["keypoints"])) == (1, 51)
