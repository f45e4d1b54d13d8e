"""Pose and detection on real COCO pictures, from the stage prepare to metrics and pictures, by changed paths alone."""

import json
from pathlib import Path

import pytest
import toy

from models.base.yaml12 import read_yaml, to_yaml
from models.recipe.load import load_recipe
from models.training.trainer import Trainer
from stages import eval_dump, metrics, prepare
from stages.command import run

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared/data/coco_keypoints_real"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not REAL.is_dir(), reason=f"no sample data at {REAL}")]
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
        "keypoints": ("persons", 42), "boxes": ("objects", 59), "errors": ("persons", 42), "joints": ("images", 3),
    },
    "detection": {"boxes": ("objects", 59)},
}  # fmt: skip
"""Of the validation split: people with labelled joints, all people, pictures of one person with a visible joint."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose people are the real sample: kind and source changed, nothing else."""
    folder = tmp_path_factory.mktemp("project")
    people = read_yaml(ROOT / "data/params.yaml")["datasets"]["people"] | {"kind": "coco", "source": str(REAL)}
    (folder / "data").mkdir()
    (folder / "data/params.yaml").write_text(to_yaml({"datasets": {"people": people}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("data.preparation.people.write_plots", lambda *_: None)
        assert run(prepare.main, ["people"]) == 0
    return folder


@pytest.mark.parametrize("name", SCORES)
def test_real_people_by_paths(project, monkeypatch, name):
    monkeypatch.chdir(project)
    path, folder = Path(f"{name}.yaml"), Path(f"runs/{name}")
    path.write_text(to_yaml(toy.changed(TINY, read_yaml(ROOT / f"recipes/{name}.yaml"))))
    Trainer(load_recipe(path), folder).fit()
    assert run(eval_dump.main, [str(path), str(folder)]) == 0
    assert run(metrics.main, [str(path), str(folder), f"{name}.json", f"plots/{name}"]) == 0
    found = json.loads(Path(f"full/{name}.json").read_text())
    assert {score: (key, found[score][key]) for score, (key, _) in SCORES[name].items()} == SCORES[name]
    facts = json.loads((folder / "dump/facts.json").read_text())
    assert facts["categories"] == [{"id": 1, "name": "person"}]
    declared = load_recipe(path).metrics.pictures
    assert {one.stem for one in Path(f"plots/{name}/pictures").iterdir()} == {*declared, "losses"}
