"""Real COCO people by changing paths only. Other recipes on them: tests/pose and tests/vunet, without DVC."""

import contextlib
import io
import json
from pathlib import Path

import pytest
from pycocotools.coco import COCO
from real_people import REAL, needs_real

from pipeline.project import Project

pytestmark = [pytest.mark.slow, needs_real]
ENTRY = "data/params.yaml:datasets.people"
NEED_IDENTITIES = ("transfer", "copy_appearance", "clothes")  # COCO has none


def used_by_hand(path: Path, keypoints: int, height: float) -> int:
    """Count, with pycocotools, persons with so many labelled keypoints and a box so high."""
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(path))
    people = coco.loadAnns(coco.getAnnIds(catIds=coco.getCatIds(catNms=["person"]), iscrowd=False))
    return sum(sum(v > 0 for v in p["keypoints"][2::3]) >= keypoints and p["bbox"][3] >= height for p in people)


def test_real_people_by_paths(project: Project) -> None:
    changes = [f"{ENTRY}.kind=coco", f"{ENTRY}.source={REAL}"]
    done = project.run("dvc", "exp", "run", *(word for change in changes for word in ("-S", change)), "metrics@vunet")
    prepared = project.folder / "data/prepared/people"
    statistics = json.loads((prepared / "statistics.json").read_text())
    with contextlib.redirect_stdout(io.StringIO()):
        raw = COCO(str(REAL / "annotations.json"))
    assert sum(split["images"] for split in statistics.values()) == len(raw.imgs)
    assert len((prepared / "rejected.csv").read_text().splitlines()) == 1  # the head: nothing was rejected
    rows = (project.folder / "runs/vunet/dump/examples.csv").read_text().splitlines()
    reconstructions = sum(row.startswith("reconstruction,") for row in rows)
    assert reconstructions == used_by_hand(prepared / "validation.json", keypoints=10, height=60)
    metrics = json.loads((project.folder / "metrics/full/vunet.json").read_text())
    assert metrics["reconstruction"]["images"] == reconstructions
    pictures = project.folder / "plots/vunet/pictures"
    assert (pictures / "reconstructions.jpg").is_file()
    reason = f"left out: has_other_view holds for none of the {reconstructions} examples of mode 'transfer'"
    for name in NEED_IDENTITIES:
        assert f"metrics.scores.{name}: {reason}\n" in done.stdout
        assert name not in metrics
    assert f"metrics.pictures.transfers: {reason}\n" in done.stdout
    assert not (pictures / "transfers.jpg").exists()
