"""The manifests of dvc.yaml name what each stage loads, no less and no more."""

import ast
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from loading import modules_loaded_by

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml
from figura.pipeline.dag import Instance, instances
from figura.pipeline.manifests import code_of_instance, order_of, refresh, settings_of
from stages.code import main as write_manifests

ROOT = Path(__file__).parents[2]
INSTANCES = list(instances(read_yaml(ROOT / "dvc.yaml")))
WITH_CODE = [one for one in INSTANCES if one.manifest is not None]
JUDGE = """
from pathlib import Path
from figura.base.yaml12 import read_yaml
from figura.recipe.load import check_recipe
trained, own = read_yaml(Path('recipes/pose.yaml')), read_yaml(Path({recipe!r}))
common, facts = trained['data'].pop('common'), {{'stride': 8, 'side': 161}}
for split in ('train', 'validation'):  # as in a model folder, where nothing is in common
    trained['data'][split] = {{n: common | one for n, one in trained['data'][split].items()}}
own['evaluate']['data']['people']['dump'] = 'runs/vunet/dump'
recipe = check_recipe(trained | own, Path('judge'), ['evaluate', 'metrics'], facts)
"""
LOADS = {
    "train": "from figura.recipe.load import load_recipe\nrecipe = load_recipe(Path({recipe!r}), ['train'])",
    "eval_dump": "from figura.recipe.load import load_recipe\nrecipe = load_recipe(Path({recipe!r}), ['evaluate'])",
    "metrics": "from figura.recipe.schema_check import checked_for_metrics\n"
    "recipe = checked_for_metrics(read_yaml(Path({recipe!r})), Path({recipe!r}), {{'stride': 8}})",
    "pose_consistency": JUDGE,
}
BACKBONE = """
from models.pose.pose_network import backbone_of
backbone_of(recipe.networks['network'].arguments['backbone']['name'])
"""
LOSSES = """
import torch
from figura.engine.build import build_losses
for step in recipe.steps:
    build_losses(recipe, step, torch.device('cpu'))
"""
WATCHED = """
import builtins, importlib, sys
from importlib.util import resolve_name
load, load_by_name, edges = builtins.__import__, importlib.import_module, []
def noted(name, globals=None, locals=None, fromlist=(), level=0):
    above = (globals or {}).get("__package__") or ""
    full, importer = resolve_name("." * level + name, above), (globals or {}).get("__name__", "")
    edges.extend((importer, one) for one in (full, *(f"{full}.{part}" for part in fromlist or ())))
    return load(name, globals, locals, fromlist, level)
def noted_by_name(name, package=None):
    edges.append(("", resolve_name(name, package)))
    return load_by_name(name, package)
builtins.__import__, importlib.import_module = noted, noted_by_name
"""
FORGOTTEN = """
builtins.__import__ = load  # without what is loaded only by modules that change no result
from figura.pipeline.relevance import changes_results
reached, waiting = set(), [""]
while waiting:
    for importer, name in edges:
        parts = name.split(".")
        for name in [".".join(parts[:end]) for end in range(1, len(parts) + 1)] if importer == waiting[0] else []:
            if name in sys.modules and name not in reached and changes_results(name):
                reached.add(name)
                waiting.append(name)
    del waiting[0]
for name in [one for one in sys.modules if one.partition(".")[0] in ("figura", "models", "stages")]:
    if name not in reached:
        del sys.modules[name]
"""


def loading(instance: Instance) -> str:
    """Return code that loads what a stage loads: all imports of its script, and the types of its recipe."""
    assert instance.script is not None
    name = instance.script.removeprefix("stages.")
    lines = [WATCHED, "from pathlib import Path", f"import {instance.script}"]
    for file in (f"stages/{name}.py", *(["figura/preparation/prepare.py"] if name == "prepare" else [])):
        tree = ast.parse((ROOT / file).read_text())  # with imports inside of functions
        lines += [ast.unparse(one) for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    if name == "prepare":
        lines += ["from figura.preparation.prepare import KINDS"]
        lines += [f"importlib.import_module(KINDS + '.' + read_dataset({instance.command[-1]!r}).kind)"]
    if instance.recipes:
        lines += [LOADS[name].format(recipe=str(instance.recipes[0]))]
    if instance.name in ("train@pose", "eval-dump@pose") or name == "pose_consistency":  # whose networks need data
        lines += [BACKBONE]
    if name in ("eval_dump", "pose_consistency"):
        lines += [LOSSES]
    return "\n".join([*lines, FORGOTTEN])


@pytest.mark.parametrize("instance", WITH_CODE, ids=[one.name for one in WITH_CODE])
def test_a_manifest_names_exactly_what_the_stage_loads(instance, monkeypatch):
    """The independent side: a process loads the stage and its recipe, and says which modules it has then."""
    monkeypatch.chdir(ROOT)
    files = [Path(file) for file in modules_loaded_by(loading(instance)).values() if file]
    loaded = {file.relative_to(ROOT).as_posix() for file in files if len(ast.parse(file.read_text()).body) > 1}
    named = {path for path in code_of_instance(instance, INSTANCES, set()).files if path.endswith(".py")}
    assert loaded == named


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        ("formats/yolo.py", {"crowd"}),
        ("formats/exports.py", {"crowd", "market"}),
        ("preparation/kinds/market1501.py", {"market"}),
        ("synthetic/scene.py", {"people"}),
        ("synthetic/catalogue.py", {"pairs"}),
        ("synthetic/wardrobe.py", {"pairs"}),
        ("preparation/people.py", {"people", "crowd", "market"}),
        ("preparation/pairs.py", {"pairs", "maps"}),
        ("preparation/unpaired.py", set()),
        ("preparation/prepare.py", {"people", "pairs", "crowd", "market", "maps"}),
    ],
)
def test_an_edit_makes_the_datasets_of_its_kind_stale(file, stale, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds = {"people": "synthetic", "pairs": "catalogue", "crowd": "coco", "market": "market1501", "maps": "paired"}
    (tmp_path / "kinds.yaml").write_text(json.dumps({"datasets": {key: {"kind": one} for key, one in kinds.items()}}))
    command = ("python", "-m", "stages.prepare")
    codes = {
        name: code_of_instance(
            Instance(name, (*command, name), (), (), (("kinds.yaml", f"datasets.{name}"),)), [], set()
        )
        for name in kinds
    }
    assert {name for name, code in codes.items() if f"figura/{file}" in code.files} == stale


BACKBONES = {"small_resnet", "resnet", "shufflenet", "efficientnet_lite", "timm_backbone"}
"""The modules in models/pose."""


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("small", {"small_resnet"}),
        ("resnet50", {"resnet", "small_resnet"}),  # of the same blocks
        ("shufflenetv2k16", {"shufflenet"}),
        ("efficientnet_lite0", {"efficientnet_lite"}),
        ("timm", {"timm_backbone"}),
    ],
)
@pytest.mark.parametrize("stage", ["train", "eval-dump"])
def test_a_stage_depends_on_the_backbone_that_its_recipe_names(stage, name, named, tmp_path, monkeypatch):
    recipe = read_yaml(ROOT / "recipes/pose.yaml")
    recipe["networks"]["network"]["backbone"] = {"name": name}
    path = tmp_path / "pose.yaml"
    path.write_text(json.dumps(recipe))
    monkeypatch.chdir(ROOT)
    given = next(one for one in INSTANCES if one.name == f"{stage}@pose")
    command = tuple(str(path) if word.endswith(".yaml") else word for word in given.command)
    files = code_of_instance(replace(given, command=command, params=()), [], set()).files
    assert {one for one in BACKBONES if f"models/pose/{one}.py" in files} == named


def test_manifests_in_git_are_those_of_the_code():
    """`dvc repro` writes them; this says which are not committed."""
    stale = []
    for one in WITH_CODE:
        assert one.manifest is not None
        code = code_of_instance(one, INSTANCES, set())
        unseen = {"order": order_of(one, set()), "settings": settings_of(one, set())}
        content = {"files": code.files, "packages": code.packages} | {
            key: value for key, value in unseen.items() if value
        }
        if json.loads((ROOT / one.manifest).read_text()) != content:
            stale.append(str(one.manifest))
    assert stale == [], "run `figura why`, or `dvc repro`, and commit code/"


PIPELINE = """
vars:
  - trained:
      a: {params: a.yaml}
stages:
  train:
    foreach: ${trained}
    do:
      cmd: python -m stages.train ${item.params} runs/${key}
      deps:
        - code/train-${key}.json
        - weights/${key}/start
      params:
        - ${item.params}: [losses, steps]
"""
GONE = '{"files": {}, "packages": {}}'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one stage, whose recipe names a loss of its own."""
    texts = {
        "dvc.yaml": PIPELINE,
        "a.yaml": "losses: {wing: {type: mine.losses.Wing}}\nmetrics: {far: {type: mine.scores.Far}}\n",
        "stages/__init__.py": "",
        "stages/train.py": 'READS = ("losses",)\nimport json\n',
        "mine/__init__.py": "",
        "mine/losses.py": "class Wing:\n    pass\n",
        "mine/scores.py": "class Far:\n    pass\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_only_manifests_of_removed_stages_are_removed(project):
    (project / "code").mkdir()
    texts = {"old.json": GONE, "mine.json": '{"files": 3}', "list.json": "[]", "no.json": "{"}
    for name, text in texts.items():
        (project / "code" / name).write_text(text)
    (project / "dvc.yaml").write_text("stages: {}\n")
    assert refresh() == []
    assert {path.name for path in (project / "code").iterdir()} == texts.keys() - {"old.json"}


@pytest.mark.usefixtures("project")
def test_a_recipe_in_another_file_of_variables_gets_its_manifest():
    Path("names.yaml").write_text("trained: {a: {params: a.yaml}}\n")
    Path("dvc.yaml").write_text(PIPELINE.replace("trained:\n      a: {params: a.yaml}", "names.yaml"))
    assert refresh() == [Path("code/train-a.json")]
    Path("names.yaml").write_text("trained: {a: {params: a.yaml}, b: {params: a.yaml}}\n")
    assert refresh() == [Path("code/train-b.json")]
    assert refresh() == []


@pytest.mark.usefixtures("project")
def test_windows_line_ends_of_a_manifest_are_replaced():
    """DVC compares its bytes, and `core.autocrlf` of git gives it such ends."""
    (path,) = refresh()
    written = path.read_bytes()
    path.write_bytes(written.replace(b"\n", b"\r\n"))
    assert refresh() == [path]
    assert path.read_bytes() == written


def refreshed(project: Path) -> str:
    """Bring the manifests up to date in a process of its own; return what it prints."""
    code = "from figura.pipeline.manifests import refresh\nprint(*refresh())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(project), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_only_what_changed_is_written(project):
    manifest = project / "code/train-a.json"
    assert refreshed(project) == "code/train-a.json\n"
    assert set(json.loads(manifest.read_text())["files"]) == {
        "stages/train.py", "mine/losses.py",
    }  # fmt: skip
    assert (project / "weights/a/start/.gitkeep").is_file()  # so that DVC finds the folder of a new recipe
    index = project / ".dvc/tmp/figura/index.json"
    before, seen = manifest.stat().st_mtime_ns, index.stat().st_mtime_ns
    (project / "stages/dvc.lock").write_text("schema: '2.0'\n")  # DVC, after the stage `code`
    assert (refreshed(project), index.stat().st_mtime_ns) == ("\n", seen)
    for file, text, changes in (
        ("mine/scores.py", "class Far:\n    side = 1\n", False),
        ("mine/losses.py", "class Wing:\n    pass  # a comment\n", False),
        ("mine/losses.py", "class Wing:\n    side = 1\n", True),
        ("a.yaml", "losses: {wing: {type: mine.losses.Wing}}\nsteps: {D: {every: 1}, G: {after: 0}}\n", True),
        ("a.yaml", "losses: {wing: {type: mine.losses.Wing}}\nsteps: {D: {every: 2}, G: {after: 0}}\n", False),
        ("a.yaml", "losses: {wing: {type: mine.losses.Wing}}\nsteps: {G: {after: 0}, D: {every: 2}}\n", True),
        ("a.yaml", "losses: {}\n", True),
    ):
        (project / file).write_text(text)
        assert refreshed(project) == ("code/train-a.json\n" if changes else "\n")
        assert (manifest.stat().st_mtime_ns != before) == changes
        before = manifest.stat().st_mtime_ns
    assert "mine/losses.py" not in json.loads(manifest.read_text())["files"]
    text = manifest.read_text()
    for damage in (manifest.unlink, lambda: manifest.write_text(text.replace("a", "b"))):
        damage()
        (project / "code/train-gone.json").write_text(GONE)
        assert refreshed(project) == "code/train-a.json\n"
        assert manifest.read_text() == text
        assert not (project / "code/train-gone.json").exists()


def test_a_script_keeps_what_a_module_noted(project):
    """Python puts the script's folder on its path, and the current one for `python -m`."""
    (project / "scripts").mkdir()
    (project / "noted.py").write_text(
        "import sys\nfrom figura.pipeline.manifests import refresh\nsys.argv[0] = 'figura why'\nrefresh()\n"
    )
    shutil.copy(project / "noted.py", project / "scripts/noted.py")
    index, times = project / ".dvc/tmp/figura/index.json", set()
    for started in (["-m", "noted"], ["scripts/noted.py"], ["-m", "noted"]):
        subprocess.run([sys.executable, *started], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
        times.add(index.stat().st_mtime_ns)
    assert len(times) == 1


def test_a_manifest_that_a_running_stage_reads_stays(project):
    """DVC records what a stage read when it ends, so it would take new code for the code that ran."""
    refreshed(project)
    text = (project / "code/train-a.json").read_text()
    (project / "mine/losses.py").write_text("class Wing:\n    side = 1\n")
    (project / ".dvc/tmp/rwlock").write_text(
        json.dumps({str(project / "code/train-a.json"): {"read": [{"pid": 1, "cmd": "dvc repro"}]}})
    )
    assert "UserError: code/train-a.json is being read by a running stage" in refreshed(project)
    assert (project / "code/train-a.json").read_text() == text
    (project / ".dvc/tmp/rwlock").unlink()
    assert refreshed(project) == "code/train-a.json\n"


@pytest.mark.parametrize(
    ("pipeline", "experiment", "warned"),
    [("{params: data/params.yaml}", "kl-2", True), ("{params: params.yaml}", "kl-2", False), ("{}", None, False)],
)
def test_a_setting_of_an_experiment_that_no_stage_reads_is_told(
    pipeline, experiment, warned, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text(f"vars: [{pipeline}]\nstages: {{}}\n")
    Path("params.yaml").write_text("train: {steps: 3}\n")  # as `dvc exp run -S +train.steps=3` makes it
    if experiment:
        monkeypatch.setenv("DVC_EXP_NAME", experiment)
    assert run(write_manifests, []) == 0
    assert ("warning: params.yaml: no stage reads it" in capsys.readouterr().err) is warned
