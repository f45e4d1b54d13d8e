"""Commands answer before they load what they run: arguments, a recipe's schema, and why a stage runs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import cv2
import numpy as np
import pytest
import toy
import toy_photos
from dvc.env import DVC_STAGE

from figura.base.errors import EXTRA, UserError
from figura.base.yaml12 import to_yaml
from figura.pipeline.causes import causes, format_causes, print_causes
from figura.pipeline.dag import Instance
from figura.pipeline.lock import read_lock
from figura.pipeline.manifests import KEPT

ROOT = Path(__file__).parents[1]
READS = re.compile(r"^def main\(.*\b(ArgumentParser|parser_of)\(", re.DOTALL | re.MULTILINE)
SLOW = ("torch", "accelerate", "pandas", "matplotlib", "numba", "dvc")

ANSWERS = f"""
import contextlib, importlib, io, json, sys
from figura.base.exit_status import run
for line in sys.stdin:
    module, arguments = json.loads(line)
    page = importlib.import_module(module)
    said, status = io.StringIO(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = run(page.main, arguments)
        except SystemExit as end:
            status = end.code
    print(json.dumps([module, status, said.getvalue(), [one for one in {SLOW} if one in sys.modules]]), flush=True)
"""


def commands() -> list[str]:
    """Return the modules that read arguments."""
    files = [file for part in ("stages", "figura", "models") for file in sorted((ROOT / part).rglob("*.py"))]
    pages = [file.relative_to(ROOT).with_suffix("") for file in files if READS.search(file.read_text())]
    return [".".join(one.parts) for one in pages]


def answers(asked: list[tuple[str, list[str]]]) -> list[tuple[str, int, str, list[str]]]:
    """Run commands one after another in a fresh interpreter; return their status, output, and slow packages so far."""
    lines = "".join(json.dumps([module, list(map(str, words))]) + "\n" for module, words in asked)
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS], input=lines, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_help_and_wrong_arguments_load_nothing_slow():
    known = commands()
    assert {
        "stages.train",
        "figura.commands.predict",
        "figura.commands.why",
        "figura.commands.compare.command",
        "figura.commands.report.command",
        "models.pose.submit",
    } <= set(known)
    asked = [(one, words) for one in known for words in (["--help"], ["--no-such-option"])]
    expected = [(one, status, []) for one, _ in asked[::2] for status in (0, 2)]
    given = answers(asked)
    assert [(module, status, slow) for module, status, _, slow in given] == expected
    assert all("usage: figura " in said or f"usage: python -m {module}" in said for module, _, said, _ in given)


def test_a_key_that_the_schema_does_not_know_is_told_before_pytorch_is_loaded(tmp_path):
    wrong, model = tmp_path / "wrong.yaml", tmp_path / "run/model"
    wrong.write_text(to_yaml(toy.changed({"train.stepz": 3, "losses.distance.type": "images.NoSuch"})))
    model.mkdir(parents=True)
    (model / "recipe.yaml").write_text(to_yaml(toy.recipe()))
    (tmp_path / "checkpoints").mkdir()
    run, out = str(model.parent), str(tmp_path / "out")
    file = str(wrong)
    given = answers(
        [
            ("stages.train", [file, run]),
            ("stages.eval_dump", [file, run]),
            ("stages.metrics", [file, run, "m.json", "plots"]),
            ("figura.commands.predict", [file, run, "a.png", "--output", out]),
            ("figura.commands.show", [file]),
            ("figura.commands.describe.command", [file]),
            ("figura.commands.watch", [file, str(tmp_path / "checkpoints"), out]),
            ("models.pose.overfit", [file, out]),
            ("figura.commands.import_weights.command", ["openpifpaf", "a.pkl", "--recipe", file, "--output", out]),
        ]
    )
    told = f"error: {file}: train.stepz: unknown key 'stepz' (did you mean 'steps'?)"
    for module, status, said, slow in given:
        first, last = said.splitlines()
        assert (module, status, slow, first.partition("; allowed")[0]) == (module, 1, [], told)
        assert last == f"{file}: types, their arguments and names are checked once this is mended"


def test_metrics_of_poses_need_no_pytorch():
    code = """
import sys
from pathlib import Path
from figura.recipe.load import load_recipe
from figura.report.metrics import build_pictures, build_scores
recipe = load_recipe(Path("recipes/pose.yaml"), ["metrics"], {"stride": 8})
print(len(build_scores(recipe)) > 0, len(build_pictures(recipe)) > 0, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True True False\n"


def test_a_recipe_is_checked_without_the_compiler_of_pytorch():
    code = """
import sys
from pathlib import Path
from figura.recipe.load import load_recipe
load_recipe(Path("recipes/pix2pix.yaml"))
print("torch" in sys.modules, "torch._dynamo" in sys.modules, "accelerate" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True False False\n"


def test_states_are_listed_without_pytorch(tmp_path, monkeypatch):
    state = tmp_path / "0000000400-12345678"
    (state / "state").mkdir(parents=True)
    (state / "about.json").write_text('{"run": "vunet"}')
    monkeypatch.setenv("FIGURA_STATES", str(tmp_path))
    ((_, status, said, slow),) = answers([("figura.commands.states", [])])
    assert (status, slow) == (0, [])
    assert said.splitlines()[1].split()[:2] == ["vunet", "400"]


PIPELINE = """
vars:
  - recipes:
      toy: {params: toy.yaml}
stages:
  prepare:
    cmd: python -m stages.prepare ramps
    outs: [data/prepared/ramps]
  train:
    foreach: ${recipes}
    do:
      cmd: python -m stages.train ${item.params} runs/${key}
      deps: ["code/train-${key}.json", data/prepared/ramps]
      params:
        - ${item.params}: [losses, train]
"""
TRAIN = Instance(
    "train@toy",
    ("python", "-m", "stages.train", "toy.yaml", "runs/toy"),
    ("code/train-toy.json", "data/prepared/ramps"),
    (),
)
MANIFEST = Path("code/train-toy.json")
CODE = {"files": {"models/a.py": "11", "models/b.py": "22"}, "packages": {"timm": "1.0.0"}}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """The current folder: a project without git, whose lock fits its recipe and the manifest of its training."""
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text(PIPELINE)
    Path("toy.yaml").write_text(to_yaml(toy.recipe()))
    write_manifest(CODE)
    text = MANIFEST.read_bytes()
    KEPT.mkdir(parents=True)
    (KEPT / md5(text).hexdigest()).write_bytes(text)
    write_lock()
    return tmp_path


def write_manifest(content: object) -> None:
    MANIFEST.parent.mkdir(exist_ok=True)
    MANIFEST.write_text(json.dumps(content))


def write_lock(**changed: object) -> None:
    """Write a dvc.lock as after a training of what is there, but for changed parts of its entry."""
    recipe = toy.recipe()
    deps = {MANIFEST.as_posix(): md5(MANIFEST.read_bytes()).hexdigest(), "data/prepared/ramps": "aa.dir"}
    entry = {
        "cmd": " ".join(TRAIN.command),
        "deps": [{"path": path, "md5": digest} for path, digest in deps.items()],
        "params": {"toy.yaml": {key: recipe[key] for key in ("losses", "train")}},
    }
    prepare = {"cmd": "x", "outs": [{"path": "data/prepared/ramps", "md5": "aa.dir"}]}
    stages = {"prepare": prepare, "train@toy": entry | changed}
    Path("dvc.lock").write_text(to_yaml({"schema": "2.0", "stages": stages}))


def test_a_stage_says_why_dvc_runs_it_before_pytorch_is_loaded(project):
    Path("toy.yaml").write_text(to_yaml(toy.changed({"losses.square.weight": 2.0, "runtime.workers": 7})))
    old = toy.recipe()["losses"]["square"]["weight"]
    code = f"""
import os, sys
os.environ[{DVC_STAGE!r}] = "train@toy"
sys.path[:0] = {[str(ROOT), str(ROOT / "tests")]!r}
sys.modules["torch"] = None  # cannot be imported
from stages.train import main
main(["toy.yaml", "runs/toy"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"train@toy runs: toy.yaml: losses.square.weight  {old} -> 2.0\n"
    assert "import of torch halted" in done.stderr


def test_nothing_is_said_outside_of_dvc_and_once_for_all_processes(project, monkeypatch, capsys):
    for environment in ({DVC_STAGE: ""}, {DVC_STAGE: "train@other"}, {DVC_STAGE: "train@toy", "RANK": "1"}):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        print_causes()
        assert capsys.readouterr().out == ""
    monkeypatch.setenv("RANK", "0")
    for name in ("train@toy", "../dvc.yaml:train@toy"):  # the latter of a DVC that was started in a folder below
        monkeypatch.setenv(DVC_STAGE, name)
        print_causes()
        assert capsys.readouterr().out.startswith("train@toy runs: no setting or code differs from dvc.lock")


def test_settings_are_named_with_both_values(project):
    without = toy.changed({"losses.square": ..., "losses.new": {"weight": 0.5}, "train.steps": 3})
    Path("toy.yaml").write_text(to_yaml(without))
    gone, new, steps = causes(TRAIN, read_lock())
    assert gone.startswith('toy.yaml: losses.square  {"type": "')
    assert gone.endswith("... -> absent")
    assert new == 'toy.yaml: losses.new  absent -> {"weight": 0.5}'
    assert steps == f"toy.yaml: train.steps  {toy.recipe()['train']['steps']} -> 3"
    assert format_causes("train@toy", [gone, new]) == [
        "train@toy runs, because these differ from dvc.lock:",
        f"  {gone}",
        f"  {new}",
    ]


def test_a_setting_that_the_manifest_has_too_is_named_once(project):
    write_manifest(CODE | {"settings": {"toy.yaml: losses": {"square": {"weight": 1}, "other": {"weight": 1}}}})
    commit()
    write_lock()
    write_manifest(CODE | {"settings": {"toy.yaml: losses": {"square": {"weight": 2}, "other": {"weight": 2}}}})
    old = toy.recipe()["losses"]["square"]["weight"]
    Path("toy.yaml").write_text(to_yaml(toy.changed({"losses.square.weight": 2})))
    assert causes(TRAIN, read_lock()) == [
        f"toy.yaml: losses.square.weight  {old} -> 2",
        "toy.yaml: losses.other.weight  1 -> 2",
    ]


def lose() -> None:
    """Remove what this clone keeps of earlier manifests."""
    for path in KEPT.iterdir():
        path.unlink()


def commit() -> None:
    """Have the manifest in git, and nothing kept beside it."""
    settings = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    for command in (["init", "-q"], ["add", "."], [*settings, "commit", "-qm", "one"]):
        subprocess.run(["git", *command], check=True)
    lose()


@pytest.mark.parametrize("earlier", [lambda: None, commit], ids=["kept", "in git"])
def test_files_and_packages_are_named(project, earlier: Callable[[], None]):
    earlier()
    write_manifest({"files": {"models/b.py": "33", "models/c.py": "44"}, "packages": {"timm": "1.0.1"}})
    assert causes(TRAIN, read_lock()) == [
        "code: models/a.py (no longer imported)",
        "code: models/b.py",
        "code: models/c.py (new)",
        'package: timm  "1.0.0" -> "1.0.1"',
    ]


def test_another_order_is_named_and_a_new_entry_is_no_other_order(project):
    before = {"toy.yaml: losses": ["distance", "square"], "toy.yaml: steps": ["D", "G"]}
    write_manifest(CODE | {"order": before})
    commit()
    write_lock()
    write_manifest(CODE | {"order": {"toy.yaml: losses": ["distance", "new", "square"], "toy.yaml: steps": ["G", "D"]}})
    assert causes(TRAIN, read_lock()) == ["toy.yaml: steps: order  D, G -> G, D"]


def test_that_code_changed_is_said_even_where_nobody_knows_how_it_was(project):
    lose()
    write_manifest({"files": {}, "packages": {}})
    said = "code: code/train-toy.json has changed; how it was is in no commit of this clone"
    assert causes(TRAIN, read_lock()) == [said]


def test_data_that_another_stage_wrote_anew_and_the_command_are_named(project):
    known = {"path": MANIFEST.as_posix(), "md5": md5(MANIFEST.read_bytes()).hexdigest()}
    write_lock(deps=[known, {"path": "data/prepared/ramps", "md5": "bb.dir"}], cmd="python -m old")
    assert causes(TRAIN, read_lock()) == ["data: data/prepared/ramps, which prepare wrote anew", "the command"]
    write_lock(cmd=["python -m old", "python -m older"])
    assert causes(TRAIN, read_lock()) == ["the command"]
    write_lock(cmd=["a b", "c"])
    same = replace(TRAIN, command=("a", "b", "&&", "c"))
    assert causes(same, read_lock())[0].startswith("no setting or code differs")
    more = replace(TRAIN, deps=(*TRAIN.deps, "weights/toy/start"))
    assert "data: weights/toy/start (new)" in causes(more, read_lock())


def test_conflicts_in_the_lock_are_named(project):
    text = Path("dvc.lock").read_text()
    Path("dvc.lock").write_text(f"{text}<<<<<<< HEAD\n  a: 1\n=======\n  a: 2\n>>>>>>> other\n")
    line = len(text.splitlines()) + 1
    with pytest.raises(UserError, match=rf"^dvc\.lock:{line}: a conflict .* either\), .* then run `dvc repro`$"):
        read_lock()


@pytest.mark.parametrize("text", [None, "", "- 1\n", "stages: [\n", "stages: {}\n"])
def test_without_a_lock_that_can_be_read_a_stage_never_ran(project, text):
    Path("dvc.lock").unlink()
    if text is not None:
        Path("dvc.lock").write_text(text)
    assert causes(TRAIN, read_lock()) == ["dvc.lock knows no run of it"]


@pytest.mark.slow
def test_training_and_predicting_need_no_dvc_no_tracker_and_no_matplotlib(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nsys.modules |= dict.fromkeys(os.environ['WITHOUT'].split())  # cannot be imported\n"
    )
    folders = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "tests")))
    recipe, _ = toy_photos.write_run(tmp_path, {"train.steps": 1})
    cv2.imwrite(str(tmp_path / "photo.png"), np.zeros((6, 9, 3), np.uint8))
    tracked = tmp_path / "tracked.yaml"
    tracked.write_text(to_yaml(toy.changed({"runtime.trackers": ["dvclive"]})))

    def said(
        *command: object, without: tuple[str, ...] = ("dvc", "dvclive", "matplotlib", "ruamel")
    ) -> tuple[int, str]:
        words = [sys.executable, "-m", *map(str, command)]
        environment = os.environ | {"PYTHONPATH": folders, "WITHOUT": " ".join(without)}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.strip().rpartition("\n")[2]

    launch = "figura.launch"
    assert said(launch, "train", recipe, "trained")[0] == 0
    assert said("figura", "predict", recipe, "trained", "photo.png", without=EXTRA)[0] == 0
    assert (tmp_path / "predictions/photo.image.png").is_file()
    assert said(launch, "eval_dump", recipe, "trained")[0] == 0
    without = "is not installed, and this needs it; `pip install"
    assert said(launch, "metrics", recipe, "trained", "m.json", "plots") == (
        1,
        f"error: matplotlib {without} 'figura-dvc[train]'`",
    )
    told = f"error: {tracked}: runtime.trackers.0: 'dvclive' is not installed; `pip install dvclive`, or `trackers: []`"
    assert said(launch, "train", tracked, "other") == (1, told)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    assert said("figura", "why") == (1, f"error: dvc {without} 'figura-dvc[train]'`")
    assert said("figura", "init", "project") == (1, f"error: dvc {without} 'figura-dvc[train]'`")
    assert not (tmp_path / "project").exists()
