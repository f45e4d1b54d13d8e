"""Bad input of many kinds: one clear error each, exit code 1, no traceback, and nothing written before is lost."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import pytest
from real_people import leave_out_plots

from figura.base.exit_status import run
from pipeline.dag import datasets, recipes
from pipeline.project import Project, clone, made_once, shared_by_workers
from stages import prepare, train

VUNET = (train.main, "params.yaml", "runs/vunet")
PIX2PIX = (train.main, "recipes/pix2pix.yaml", "runs/pix2pix")
POSE = (train.main, "recipes/pose.yaml", "runs/pose")
PREPARE = (prepare.main, "real")


def prepare_all(folder: Path) -> Project:
    """Make the tiny project with prepared data, and stand-ins for what earlier runs wrote."""
    project = clone(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        leave_out_plots(patch)
        for name in datasets(folder):
            prepare.main([name])
    for name in recipes(folder):
        for output in (
            f"runs/{name}/model/weights",
            f"runs/{name}/history/losses.csv",
            f"plots/{name}/losses.csv",
        ):
            (folder / output).parent.mkdir(parents=True)
            (folder / output).write_text("of an earlier run")
    return project


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny project with prepared data; all workers share it, so copy it before changing it."""
    return made_once(shared_by_workers(tmp_path_factory.getbasetemp()) / "prepared" / "figura", prepare_all)


@pytest.fixture
def project(prepared: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of the tiny project with prepared data, its folder the current one."""
    copy = prepared.copy(tmp_path / "figura")
    monkeypatch.chdir(copy.folder)
    return copy


def recipe(values: dict, file: str = "params.yaml") -> Callable[[Project], None]:
    """Return a change of a params file."""
    return lambda project: project.set(file, values)


def pairs(change: Callable[[Path], None]) -> Callable[[Project], None]:
    """Return a change of raw A|B images made of the prepared ones, which `datasets.real` points to."""

    def prepare(project: Project) -> None:
        folder = project.folder / "data/raw/real"
        for split in ("train", "validation"):
            shutil.copytree(project.folder / "data/prepared/pairs" / split, folder / split)
        change(folder)
        paired = {"train": "train", "validation": "validation"}
        entry = {"kind": "paired", "source": "data/raw/real", "seed": 1, "max_rejected": 0.0, "paired": paired}
        project.set("data/params.yaml", {"datasets.real": entry})

    return prepare


def odd_width(folder: Path) -> None:
    path = next((folder / "train").iterdir())
    cv2.imwrite(str(path), cv2.imread(str(path))[:, 1:])


def no_partner(folder: Path) -> None:
    for path in sorted((folder / "train").iterdir()):
        image = cv2.imread(str(path))
        for side, half in (("a", image[:, :40]), ("b", image[:, 40:])):
            (folder / "train" / side).mkdir(exist_ok=True)
            cv2.imwrite(str(folder / "train" / side / path.name), half)
        path.unlink()
    next((folder / "train/b").iterdir()).unlink()


def raw(change: Callable[[dict, Path], None]) -> Callable[[Project], None]:
    """Return a change of a raw dataset made of the prepared one; `datasets.real` points to it and rejects nothing."""

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
            "coco": {"images": "validation", "annotations": "annotations.json", "shares": {"validation": 0.5}},
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
    "truncated JPEG": (PREPARE, raw(cut_jpeg), ["max_rejected", "image file broken"]),
    "missing image": (PREPARE, raw(drop_image), ["max_rejected", "missing"]),
    "NaN keypoint": (
        PREPARE, raw(lambda content, _: person(content)["keypoints"].__setitem__(0, float("nan"))),
        ["max_rejected", "finite"],
    ),
    "keypoints of wrong length": (
        PREPARE, raw(lambda content, _: person(content)["keypoints"].pop()), ["max_rejected", "keypoints"],
    ),
    "annotation without image": (
        PREPARE, raw(lambda content, _: person(content).update(image_id=10**6)), ["max_rejected", "image"],
    ),
    "odd-width A|B image": (PREPARE, pairs(odd_width), ["max_rejected", "odd width"]),
    "missing partner": (PREPARE, pairs(no_partner), ["max_rejected", "partner"]),
    "run to start from": (
        PIX2PIX, recipe({"train.init_from": {"run": "runs/nowhere"}}, "recipes/pix2pix.yaml"),
        ["runs/nowhere/model/generator.safetensors: no such file"],
    ),
    "prepared file that changed": (
        POSE, scenes(all_crowds, listed=True), ["train.json: its SHA-256 is another than in", "prepare@people"],
    ),
    "unknown category": (
        POSE, scenes(odd_person(lambda one: one.update(category_id=99))),
        ["train.json: annotation 424242: category_id 99 is unknown"],
    ),
    "keypoints of another skeleton": (
        POSE, scenes(odd_person(lambda one: one["keypoints"].extend([1, 1, 2]))),
        ["train.json: annotation 424242: has 54 numbers as keypoints", "17 keypoints need 51"],
    ),
    "box without area": (
        POSE, scenes(odd_person(lambda one: one["bbox"].__setitem__(2, 0)), "validation"),
        ["validation.json: annotation 424242", "has no area"],
    ),
    "nothing left to learn from": (
        POSE, scenes(all_crowds), ["train.json: none of 16 images has", "min_keypoint_annotations"],
    ),
    "path leaving the data root": (
        PREPARE, raw(lambda content, _: content["images"][0].update(file_name="../../../params.yaml")),
        ["max_rejected", "root"],
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


@pytest.mark.parametrize(
    ("stage", "spoil", "expected"),
    [
        (("train", "params.yaml", "runs/vunet"), recipe({"train.stepz": 3}), "params.yaml: train.stepz"),
        (("prepare", "real"), raw(cut_jpeg), "image file broken"),
    ],
    ids=["train", "prepare"],
)
def test_a_stage_that_is_given_bad_input_ends_with_status_1_and_no_traceback(
    project: Project, stage: tuple[str, ...], spoil: Callable[[Project], None], expected: str
) -> None:
    spoil(project)
    before = written(project)
    name, *arguments = stage
    done = project.run("python", "-m", f"stages.{name}", *arguments, code=1)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1
    assert expected in done.stderr
    assert before.items() <= written(project).items()
