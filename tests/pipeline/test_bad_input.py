"""Bad input to a training: one clear error, exit code 1, no traceback, and nothing written before is lost."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from real_people import leave_out_plots

from figura.base.exit_status import run
from pipeline.dag import datasets, recipes
from pipeline.project import Project, clone
from stages import prepare, train

VUNET = (train.main, "params.yaml", "runs/vunet")
PIX2PIX = (train.main, "recipes/pix2pix.yaml", "runs/pix2pix")
POSE = (train.main, "recipes/pose.yaml", "runs/pose")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny project with prepared data, and stand-ins for what earlier runs wrote."""
    project = clone(tmp_path_factory.mktemp("prepared") / "figura")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project.folder)
        leave_out_plots(patch)
        for name in datasets(project.folder):
            prepare.main([name])
    for name in recipes(project.folder):
        for output in (f"runs/{name}/model/weights", f"runs/{name}/history/losses.csv", f"plots/{name}/losses.csv"):
            (project.folder / output).parent.mkdir(parents=True)
            (project.folder / output).write_text("of an earlier run")
    return project


@pytest.fixture
def project(prepared: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of the tiny project with prepared data, its folder the current one."""
    copy = prepared.copy(tmp_path / "figura")
    monkeypatch.chdir(copy.folder)
    return copy


def person(content: dict) -> dict:
    return next(a for a in content["annotations"] if a.get("num_keypoints"))


def scenes(change: Callable[[dict], None], split: str = "train", *, listed: bool = False) -> Callable[[Project], None]:
    """Return a change of a prepared file of people, such as another program may make, which lists no hashes."""

    def spoil(project: Project) -> None:
        path = project.folder / f"data/prepared/people/{split}.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        manifest = path.with_name("manifest.json")
        hashes = json.loads(manifest.read_text())
        if not listed:
            manifest.write_text(json.dumps(hashes | {"hashes": {}}))

    return spoil


def odd_person(change: Callable[[dict], object]) -> Callable[[dict], None]:
    """Return a change of a person with joints, which then has a number to be told by."""

    def spoil(content: dict) -> None:
        one = person(content)
        one["id"] = 424242
        change(one)

    return spoil


def all_crowds(content: dict) -> None:
    for one in content["annotations"]:
        one["iscrowd"] = 1


CASES = {
    "missing data file": (
        VUNET, lambda project: (project.folder / "data/prepared/people/train.json").unlink(),
        ["train.json", "dvc repro prepare@people"],
    ),
    "run to start from": (
        PIX2PIX, lambda project: project.set("recipes/pix2pix.yaml", {"train.init_from": {"run": "runs/nowhere"}}),
        ["runs/nowhere/model/generator.safetensors: no such file"],
    ),
    "prepared file that changed": (
        POSE, scenes(all_crowds, listed=True), ["train.json: its SHA-256 is another than in", "prepare@people"],
    ),
    "box without area": (
        POSE, scenes(odd_person(lambda one: one["bbox"].__setitem__(2, 0)), "validation"),
        ["validation.json: annotation 424242", "has no area"],
    ),
    "nothing left to learn from": (
        POSE, scenes(all_crowds), ["train.json: none of 16 images has", "min_keypoint_annotations"],
    ),
}  # fmt: skip


def written(project: Project) -> dict[str, str]:
    """Return the hashes of everything the pipeline wrote."""
    folders = [project.folder / name for name in ("data/prepared", "runs", "metrics", "plots")]
    files = sorted(
        path for folder in folders for path in folder.rglob("*") if path.is_file() and "live" not in path.parts
    )
    return {str(path.relative_to(project.folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gives_one_error_and_loses_nothing(
    project: Project, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (main, *arguments), spoil, expected = CASES[case]
    spoil(project)
    before = written(project)
    assert run(main, arguments) == 1
    said = capsys.readouterr().err
    assert said.count("error:") == 1
    for word in expected:
        assert word in said
    assert before.items() <= written(project).items()
