"""Under DVC, a stage refuses files that no dependency of it covers."""

import subprocess
from pathlib import Path

import pytest
import toy
from dvc.env import DVC_STAGE
from dvc.repo import Repo

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.pipeline.dag import instances
from figura.pipeline.raw_changes import modules_not_in_git
from figura.pipeline.untracked_files import FILES_OF, refuse_untracked

ROOT = Path(__file__).parents[2]
PIPELINE = """
vars:
  - recipes:
      toy:
        data: ramps
  - pose_consistency:
      toy:
        drawn: runs/toy/dump
stages:
  train:
    foreach: ${recipes}
    do:
      cmd: train
      deps: ["data/prepared/${item.data}", "weights/${key}/start", "weights/${key}/losses"]
  eval-dump:
    foreach: ${recipes}
    do:
      cmd: dump
      deps: ["data/prepared/${item.data}", "runs/${key}/model", "weights/${key}/losses"]
  metrics:
    foreach: ${recipes}
    do:
      cmd: score
      deps: ["runs/${key}/dump", "weights/${key}/metrics"]
  pose-consistency:
    foreach: ${pose_consistency}
    do:
      cmd: judge
      deps: ["${item.drawn}"]
"""
STORED = {"type": "toy.Stored", "length": 6, "root": "data/prepared/ramps"}
HILLS = {"ramps": STORED | {"root": "data/prepared/hills"}}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a `dvc.yaml`, made the current folder; DVC runs its stage train@toy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DVC_STAGE, "train@toy")
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    for folder in ("start", "losses", "metrics"):
        (tmp_path / "weights/toy" / folder).mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def written(path, tracked=True):
    """Write a file, with DVC's file beside it, and return its path as text."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("weights")
    if tracked:
        Path(f"{path}.dvc").touch()
    return str(path)


def refusals(**changes):
    """Return what is refused of the toy recipe with values at dotted keys (`__` for dots) changed."""
    recipe = toy.checked({key.replace("__", "."): value for key, value in changes.items()})
    try:
        refuse_untracked(recipe)
    except UserError as error:
        return str(error).splitlines()
    return []


def perceptual(source):
    return toy.recipe()["losses"] | {
        "look": {
            "type": "images.Perceptual", "source": source, "layers": {"image": 1.0},
            "inputs": {"image": "image", "target": "y"}, "weight": 1.0,
        }
    }  # fmt: skip


def test_stages_are_those_that_dvc_reads():
    ours = {one.name: one for one in instances(read_yaml(ROOT / "dvc.yaml"))}
    theirs = {stage.addressing: stage for stage in Repo(ROOT).index.stages if stage.path_in_repo == "dvc.yaml"}
    assert ours.keys() == theirs.keys()
    assert {name.partition("@")[0] for name in ours} > set(FILES_OF)
    for name, stage in theirs.items():
        assert " ".join(ours[name].command) == stage.cmd
        assert set(ours[name].deps) == {dep.def_path for dep in stage.deps if type(dep).__name__ == "Dependency"}
        assert set(ours[name].outs) == {out.def_path for out in stage.outs if not out.metric and not out.plot}


@pytest.mark.parametrize(
    ("stage", "name", "deps"),
    [
        ({"foreach": "${recipes}", "do": {"cmd": "x", "deps": ["${item.start}"]}}, "train@toy", ("s",)),
        ({"foreach": ["toy"], "do": {"cmd": "x", "deps": ["${item}"]}}, "train@toy", ("toy",)),
        ({"cmd": "x", "deps": [{"a": {"cache": False}}]}, "train", ("a",)),
        ({"cmd": ["x", "y"]}, "train", ()),
    ],
)
def test_forms_of_stages_that_are_read(stage, name, deps):
    variables = [{"recipes": {"toy": {"start": "s"}}}]
    (found,) = instances({"vars": variables, "stages": {"train": stage}})
    assert (found.name, found.deps) == (name, deps)


@pytest.mark.parametrize(
    "stage",
    [
        {"matrix": {"a": [1]}, "cmd": "x", "deps": ["${item.a}"]},
        {"foreach": "${elsewhere}", "do": {"cmd": "x", "deps": ["a"]}},
        {"foreach": "${recipes}", "do": {"cmd": "x", "wdir": "sub", "deps": ["a"]}},
        {"foreach": "${recipes}", "do": {"cmd": "x", "deps": ["${other.name}"]}},
    ],
)
def test_of_other_forms_of_stages_nothing_is_known(stage):
    assert list(instances({"vars": [{"recipes": {"toy": {}}}], "stages": {"train": stage}})) == []


def test_what_deps_cover_passes(project):
    start = written("weights/toy/start/mine.safetensors")
    features = written("weights/toy/losses/vgg.safetensors")
    (project / "data/prepared/ramps").mkdir(parents=True)
    changes = {"networks__painter__weights": start, "losses": perceptual(features)}
    assert refusals(**changes) == []
    changes |= {key: {"ramps": STORED} for key in ("data__train", "data__validation", "evaluate__data")}
    assert refusals(**changes) == []


def test_a_file_of_ones_own_is_refused_with_what_to_do(project):
    path = written("mine.safetensors")
    (line,) = refusals(networks__painter__weights=path)
    assert line == (
        "toy.yaml: networks.painter.weights: mine.safetensors is no dependency in dvc.yaml of train@toy; "
        "move it into weights/toy/start and `dvc add weights/toy/start/mine.safetensors`"
    )
    (line,) = refusals(losses=perceptual(path))
    assert line == (
        "toy.yaml: losses.look.source: mine.safetensors is no dependency in dvc.yaml of train@toy, eval-dump@toy; "
        "move it into weights/toy/losses and `dvc add weights/toy/losses/mine.safetensors`"
    )


def test_each_file_has_its_line(project, tmp_path_factory):
    away = written(tmp_path_factory.mktemp("away") / "far.safetensors")
    score = {"type": "images.PerceptualDistance", "mode": "plain", "image": "image", "target": "y", "source": "a/b.st"}
    written("a/b.st")
    start, look = (
        line.partition("; ")[0] for line in refusals(networks__painter__weights=away, metrics__scores__look=score)
    )
    outside = "lies outside of the project, so no other machine has it for"
    assert start == f"toy.yaml: networks.painter.weights: {away} {outside} train@toy"
    assert look == "toy.yaml: metrics.scores.look.source: a/b.st is no dependency in dvc.yaml of metrics@toy"


def test_a_start_from_another_run_is_copied_beside_other_weights(project):
    trained = written("runs/first/model/painter.safetensors", tracked=False)
    why = f"{trained} is no dependency in dvc.yaml of train@toy; copy"
    (line,) = refusals(train__init_from={"run": "runs/first"})
    assert line == (
        f"toy.yaml: train.init_from.run: {why} runs/first/model to weights/toy/start/first/model, "
        "`dvc add weights/toy/start/first`, and start from that"
    )
    written("weights/toy/start/first/model/painter.safetensors", tracked=False)
    Path("weights/toy/start/first.dvc").touch()
    assert refusals(train__init_from={"run": "weights/toy/start/first"}) == []
    (line,) = refusals(networks__painter__weights=trained)
    assert line == (
        f"toy.yaml: networks.painter.weights: {why} it into weights/toy/start and "
        "`dvc add weights/toy/start/painter.safetensors`"
    )


def test_a_file_that_nobody_else_would_have_is_refused(project):
    path = written("weights/toy/start/mine.safetensors", tracked=False)
    (line,) = refusals(networks__painter__weights=path)
    why = "is in neither DVC nor git, so no other clone has it for train@toy"
    assert line == f"toy.yaml: networks.painter.weights: {path} {why}; `dvc add {path}`"
    subprocess.run(["git", "add", path], check=True)
    assert refusals(networks__painter__weights=path) == []


def test_an_output_of_a_stage_of_ones_own_is_shared(project):
    path = written("weights/toy/start/copied.safetensors", tracked=False)
    assert len(refusals(networks__painter__weights=path)) == 1
    Path("dvc.yaml").write_text(
        f"{PIPELINE}  copy: {{cmd: cp, outs: [{{weights/toy/start/copied.safetensors: {{}}}}]}}\n"
    )
    assert refusals(networks__painter__weights=path) == []


@pytest.mark.parametrize("stage", ["train@toy", "eval-dump@toy"])
def test_judged_on_another_dataset_than_dvc_yaml_says(project, monkeypatch, stage):
    monkeypatch.setenv(DVC_STAGE, stage)
    for name in ("ramps", "hills"):
        (project / "data/prepared" / name).mkdir(parents=True)
    assert refusals(evaluate__data={"ramps": STORED}) == []
    (line,) = refusals(evaluate__data=HILLS)
    assert line == (
        "toy.yaml: evaluate.data.ramps.root: data/prepared/hills is no dependency in dvc.yaml of eval-dump@toy; "
        "add it to the deps of eval-dump in dvc.yaml"
    )
    Path("dvc.yaml").write_text(PIPELINE.replace('"runs/${key}/model",', '"runs/${key}/model", data/prepared/hills,'))
    assert refusals(evaluate__data=HILLS) == []


@pytest.mark.parametrize("stage", ["", "prepare@toy", "train@other", "train"])
def test_elsewhere_anything_goes(project, monkeypatch, stage):
    path = written("mine.safetensors")
    assert refusals(networks__painter__weights=path) != []
    monkeypatch.setenv(DVC_STAGE, stage)
    assert refusals(networks__painter__weights=path) == []


def test_a_dvc_that_was_started_in_a_folder_below_is_one(project, monkeypatch):
    monkeypatch.setenv(DVC_STAGE, "../dvc.yaml:train@toy")
    assert refusals(networks__painter__weights=written("mine.safetensors")) != []


def test_who_judges_pictures_is_checked_too(project, monkeypatch):
    monkeypatch.setenv(DVC_STAGE, "pose-consistency@toy")
    score = {"type": "images.PerceptualDistance", "mode": "plain", "image": "image", "target": "y"}
    path = written("weights/toy/metrics/vgg.safetensors")
    (line,) = refusals(metrics__scores__look=score | {"source": path})
    assert line == (
        f"toy.yaml: metrics.scores.look.source: {path} is no dependency in dvc.yaml of pose-consistency@toy; "
        "add it to the deps of pose-consistency in dvc.yaml"
    )


def test_a_copy_names_the_modules_that_git_lacks(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in ("known.py", "mine.py", "notes.txt", "ignored.py"):
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("ignored.py\n.dvc/tmp\n")
    subprocess.run(["git", "-C", tmp_path, "add", "known.py"], check=True)
    copy = tmp_path / ".dvc/tmp/exps/tmpabc"
    copy.mkdir(parents=True)
    assert modules_not_in_git(copy) == ["mine.py"]
    assert modules_not_in_git(tmp_path) == []
