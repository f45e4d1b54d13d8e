"""Pose and detection on real COCO pictures, from the stage prepare to metrics and pictures, by changed paths alone."""

import json
from collections import Counter
from pathlib import Path

import pytest
import toy
from real_people import REAL, needs_real
from splits_by_hand import fraction

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.recipe.load import load_recipe
from figura.training.trainer import Trainer
from stages import eval_dump, metrics

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, needs_real]
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
    """People with labelled joints, people, and pictures of one person with a visible joint, of the validation split."""
    entry = read_yaml(ROOT / "data/params.yaml")["datasets"]["people"]
    share = entry["coco"]["shares"]["validation"]
    people = [
        one for one in json.loads((REAL / "annotations.json").read_text())["annotations"]
        if not one["iscrowd"] and fraction(one["image_id"], entry["seed"]) < share
    ]  # fmt: skip
    of_image = Counter(one["image_id"] for one in people)
    alone = [one for one in people if of_image[one["image_id"]] == 1]
    return {
        "people": len(people),
        "labelled": sum(one["num_keypoints"] > 0 for one in people),
        "pictures of one": sum(2 in one["keypoints"][2::3] for one in alone),
    }


@pytest.mark.parametrize("name", SCORES)
def test_real_people_by_paths(real_people, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("data").symlink_to(real_people.parents[1])
    path, folder = Path(f"{name}.yaml"), Path(f"runs/{name}")
    path.write_text(to_yaml(toy.changed(TINY, read_yaml(ROOT / f"recipes/{name}.yaml"))))
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
