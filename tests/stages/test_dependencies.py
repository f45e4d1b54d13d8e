"""Under DVC, a stage refuses files and code that no dependency of it covers."""

import subprocess
import sys
from pathlib import Path

import pytest
import toy
from dvc.env import DVC_STAGE
from dvc.repo import Repo

from models.base.errors import UserError
from models.base.yaml12 import read_yaml
from models.recipe.load import load_recipe
from stages.dependencies import FILES_OF, filled, instance_of, refuse_untracked

ROOT = Path(__file__).parents[2]
PIPELINE = f"""
vars:
  - recipes:
      toy:
        data: ramps
        judged_on: hills
        start: weights/toy/start
        weights: weights/toy
        train: {ROOT}
        metrics: {ROOT}/models
stages:
  train:
    foreach: ${{recipes}}
    do:
      cmd: train
      deps: ["data/prepared/${{item.data}}", "${{item.start}}", "${{item.weights}}/losses", "${{item.train}}"]
  eval-dump:
    foreach: ${{recipes}}
    do:
      cmd: dump
      deps: ["data/prepared/${{item.judged_on}}", "runs/${{key}}/model", "${{item.weights}}/losses", "${{item.train}}"]
  metrics:
    foreach: ${{recipes}}
    do:
      cmd: score
      deps: ["runs/${{key}}/dump", "${{item.weights}}/metrics", "${{item.metrics}}", "{ROOT}/tests"]
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


@pytest.fixture
def own(project, monkeypatch):
    """A function that writes modules of one's own, and returns the name of their package."""
    package = f"own_{project.name}"

    def write(**modules):
        (project / package).mkdir()
        for name, text in modules.items():
            (project / package / f"{name}.py").write_text(text)
        return package

    monkeypatch.syspath_prepend(str(project))
    yield write
    for name in [name for name in sys.modules if name.startswith(package)]:
        del sys.modules[name]


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


def test_deps_are_those_that_dvc_reads():
    content = read_yaml(ROOT / "dvc.yaml")
    maps = {name: one for entry in content["vars"] if isinstance(entry, dict) for name, one in entry.items()}
    checked = set()
    for stage in Repo(ROOT).index.stages:
        name, _, key = getattr(stage, "name", "").partition("@")
        if name in FILES_OF:
            instance = instance_of(content, name, key)
            files = {dep.def_path for dep in stage.deps if type(dep).__name__ == "Dependency"}
            assert set(instance.deps) == files, stage.name
            assert instance.entry == maps["consistency" if name == "pose-consistency" else "recipes"][key]
            checked.add(name)
    assert checked == set(FILES_OF)


@pytest.mark.parametrize(
    "stage",
    [
        {"matrix": {"a": [1]}, "cmd": "x"},
        {"cmd": "x", "deps": ["a"]},
        {"foreach": ["toy"], "do": {"cmd": "x", "deps": ["a"]}},
        {"foreach": "${elsewhere}", "do": {"cmd": "x", "deps": ["a"]}},
        {"foreach": "${recipes}", "do": {"cmd": "x", "wdir": "sub", "deps": ["a"]}},
        {"foreach": "${recipes}", "do": {"cmd": "x", "deps": ["${other.name}"]}},
    ],
)
def test_of_other_forms_of_stages_nothing_is_known(stage):
    variables = ["params.yaml", {"recipes": {"toy": {"start": "s"}}}]
    known = {"foreach": "${recipes}", "do": {"cmd": "x", "deps": ["${item.start}"]}}
    assert instance_of({"vars": variables, "stages": {"train": known}}, "train", "toy").deps == ["s"]
    assert instance_of({"vars": variables, "stages": {"train": stage}}, "train", "toy") is None
    assert instance_of({"vars": variables, "stages": {}}, "train", "toy") is None


def test_variables_are_filled_in():
    assert filled("runs/${key}/${item.a}", {"a": 3}, "toy") == "runs/toy/3"
    assert filled("${item.b}", {"a": 3}) is None


def test_what_deps_cover_passes(project):
    start = written("weights/toy/start/mine.safetensors")
    features = written("weights/toy/losses/vgg.safetensors")
    (project / "data/prepared/ramps").mkdir(parents=True)
    (project / "data/prepared/hills").mkdir()
    changes = {"networks__painter__weights": start, "losses": perceptual(features)}
    assert refusals(**changes) == []
    changes |= {"data__train": {"ramps": STORED}, "data__validation": {"ramps": STORED}, "evaluate__data": HILLS}
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


def test_recipes_that_share_empty_folders_of_weights_get_their_own(project):
    Path("dvc.yaml").write_text(PIPELINE.replace("weights: weights/toy", "weights: weights/none"))
    (project / "weights/none/losses").mkdir(parents=True)
    (line,) = refusals(losses=perceptual(written("mine.safetensors")))
    assert line.endswith("; give recipes.toy folders of weights of its own in dvc.yaml (weights/README.md)")


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


def test_the_start_of_another_run_is_named_in_dvc_yaml(project):
    written("runs/first/model/painter.safetensors", tracked=False)
    (line,) = refusals(train__init_from={"run": "runs/first"})
    assert line.startswith("toy.yaml: train.init_from.run: runs/first/model/painter.safetensors is no dependency")
    assert line.endswith("; name runs/first/model at recipes.toy.start in dvc.yaml")
    Path("dvc.yaml").write_text(PIPELINE.replace("start: weights/toy/start", "start: runs/first/model"))
    assert refusals(train__init_from={"run": "runs/first"}) == []


def test_a_file_that_nobody_else_would_have_is_refused(project):
    path = written("weights/toy/start/mine.safetensors", tracked=False)
    (line,) = refusals(networks__painter__weights=path)
    why = "is in neither DVC nor git, so no other clone has it for train@toy"
    assert line == f"toy.yaml: networks.painter.weights: {path} {why}; `dvc add {path}`"
    subprocess.run(["git", "add", path], check=True)
    assert refusals(networks__painter__weights=path) == []


@pytest.mark.parametrize("stage", ["train@toy", "eval-dump@toy"])
def test_judged_on_another_dataset_than_dvc_yaml_says(project, monkeypatch, stage):
    monkeypatch.setenv(DVC_STAGE, stage)
    for name in ("ramps", "hills", "dales"):
        (project / "data/prepared" / name).mkdir(parents=True)
    dales = {"ramps": STORED | {"root": "data/prepared/dales"}}
    assert refusals(evaluate__data=HILLS) == []
    (line,) = refusals(evaluate__data=dales)
    assert line == (
        "toy.yaml: evaluate.data.ramps.root: data/prepared/dales is no dependency in dvc.yaml of eval-dump@toy; "
        "name the dataset at recipes.toy.judged_on in dvc.yaml"
    )


def test_code_of_ones_own_is_refused_with_all_that_it_imports(project, own):
    package = own(
        losses="from . import shapes\nfrom toy import Distance\n\n\nclass Wing(Distance):\n    pass\n", shapes=""
    )
    wing = toy.recipe()["losses"]["distance"] | {"type": f"{package}.losses.Wing"}
    lines = refusals(losses__distance=wing)
    assert sorted(lines) == [
        f"toy.yaml: losses.distance.type: {package}/{name}.py is no dependency in dvc.yaml of train@toy; "
        f"move it below {ROOT}, or name its folder at recipes.toy.train in dvc.yaml"
        for name in ("losses", "shapes")
    ]
    deps = f'"{package}", "${{item.start}}"'
    Path("dvc.yaml").write_text(PIPELINE.replace('"${item.start}"', deps))
    assert refusals(losses__distance=wing) == []


def test_code_of_scores_is_refused_by_metrics_alone(project, own, monkeypatch):
    package = own(scores="from toy import Mean\n\n\nclass Middle(Mean):\n    pass\n")
    score = {"type": f"{package}.scores.Middle", "column": "loss.distance"}
    assert refusals(metrics__scores__distance=score) == []
    monkeypatch.setenv(DVC_STAGE, "metrics@toy")
    (line,) = refusals(metrics__scores__distance=score)
    assert line.startswith(f"toy.yaml: metrics.scores.distance.type: {package}/scores.py is no dependency in dvc.yaml")


@pytest.mark.parametrize("stage", ["", "prepare@toy", "train@other", "train"])
def test_elsewhere_anything_goes(project, monkeypatch, stage):
    path = written("mine.safetensors")
    assert refusals(networks__painter__weights=path) != []
    monkeypatch.setenv(DVC_STAGE, stage)
    assert refusals(networks__painter__weights=path) == []


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("vunet_market", "vunet"),
        ("pix2pix_facades", "pix2pix"),
        ("openpifpaf_resnet50", "pose"),
        ("esrgan_x4_gan", "super_resolution"),
    ],
)
def test_settings_of_papers_need_the_entry_of_their_system(name, recipe, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(DVC_STAGE, f"metrics@{recipe}")
    published = load_recipe(Path(f"recipes/published/{name}.yaml"), ["metrics"], {"stride": 8})
    refuse_untracked(published)
    if recipe == "pose":
        monkeypatch.setenv(DVC_STAGE, "metrics@vunet")
        with pytest.raises(
            UserError, match=r"metrics\.scores\.keypoints\.type: models/pose/report/coco_scores\.py is no"
        ):
            refuse_untracked(published)


def test_who_judges_pictures_is_checked_too(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(DVC_STAGE, "pose-consistency@vunet")
    recipe = load_recipe(Path("params.yaml"), ["metrics"])
    with pytest.raises(UserError) as refused:
        refuse_untracked(recipe)
    assert "models/vunet/report/scores.py is no dependency in dvc.yaml of pose-consistency@vunet" in str(refused.value)
    assert "name it among the deps of pose-consistency in dvc.yaml" in str(refused.value)
