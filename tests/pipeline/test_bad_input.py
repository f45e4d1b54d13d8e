"""Ten kinds of bad input: one clear error each, exit code 1, no traceback, and nothing written before is lost."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.project import Project

pytestmark = pytest.mark.pipeline
TRAIN = ("python", "-m", "stages.train", "params.yaml", "runs/vunet")
PREPARE = ("python", "-m", "stages.prepare", "real")


def recipe(values: dict) -> Callable[[Project], None]:
    """Return a change of params.yaml."""
    return lambda project: project.set("params.yaml", values)


def raw(change: Callable[[dict, Path], None]) -> Callable[[Project], None]:
    """Return a change of a raw dataset made of the prepared one, which `datasets.real` points to; nothing may be rejected."""

    def prepare(project: Project) -> None:
        folder = project.folder / "data/raw/real"
        project.run("cp", "-r", "data/prepared/people/images/validation", "data/raw/images")
        folder.mkdir()
        (project.folder / "data/raw/images").rename(folder / "validation")
        content = json.loads((project.folder / "data/prepared/people/validation.json").read_text())
        for image in content["images"]:
            image["file_name"] = image["file_name"].split("/")[-1]
        change(content, folder / "validation")
        (folder / "annotations.json").write_text(json.dumps(content))
        entry = {
            "kind": "coco",
            "source": "data/raw/real",
            "seed": 1,
            "max_rejected": 0.0,
            "coco": {"images": "validation", "annotations": "annotations.json", "validation_share": 0.5},
        }
        project.set("data/params.yaml", {"datasets.real": entry})

    return prepare


def cut_jpeg(content: dict, images: Path) -> None:
    path = images / content["images"][0]["file_name"]
    path.write_bytes(path.read_bytes()[:-200])


def drop_image(content: dict, images: Path) -> None:
    (images / content["images"][0]["file_name"]).unlink()


def person(content: dict) -> dict:
    return next(a for a in content["annotations"] if a.get("num_keypoints"))


CASES = {
    "unknown key": (TRAIN, recipe({"train.stepz": 3}), ["params.yaml: train.stepz", "did you mean 'steps'"]),
    "misspelt argument": (TRAIN, recipe({"networks.generator.nf_strat": 3}), ["networks.generator.nf_strat", "did you mean 'nf_start'"]),
    "wrong type": (TRAIN, recipe({"data.batch_size": "four"}), ["data.batch_size: found 'four'; expected an integer"]),
    "unknown name": (TRAIN, recipe({"losses.color_L1.inputs.image": "imge"}), ["losses.color_L1.inputs.image", "'imge'", "'image'"]),
    "missing data file": (TRAIN, lambda p: (p.folder / "data/prepared/people/train.json").unlink(), ["train.json", "dvc repro prepare@people"]),
    "truncated JPEG": (PREPARE, raw(cut_jpeg), ["max_rejected", "image file broken"]),
    "missing image": (PREPARE, raw(drop_image), ["max_rejected", "missing"]),
    "NaN keypoint": (PREPARE, raw(lambda c, _: person(c)["keypoints"].__setitem__(0, float("nan"))), ["max_rejected", "finite"]),
    "keypoints of wrong length": (PREPARE, raw(lambda c, _: person(c)["keypoints"].pop()), ["max_rejected", "keypoints"]),
    "annotation without image": (PREPARE, raw(lambda c, _: person(c).update(image_id=10**6)), ["max_rejected", "image"]),
    "path leaving the data root": (PREPARE, raw(lambda c, _: c["images"][0].update(file_name="../../../params.yaml")), ["max_rejected", "root"]),
}  # fmt: skip


def written(project: Project) -> dict[str, str]:
    """Return the hashes of everything the pipeline wrote."""
    folders = [project.folder / name for name in ("data/prepared/people", "runs/vunet", "metrics", "plots")]
    files = sorted(
        path for folder in folders for path in folder.rglob("*") if path.is_file() and "live" not in path.parts
    )
    return {str(path.relative_to(project.folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gives_one_error_and_loses_nothing(project: Project, case: str) -> None:
    command, spoil, expected = CASES[case]
    spoil(project)
    before = written(project)
    done = project.run(*command, code=1)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1
    for word in expected:
        assert word in done.stderr
    assert written(project) == before
