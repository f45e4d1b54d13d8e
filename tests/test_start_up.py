"""Commands answer before they load what they run: arguments, a recipe's schema, and what a training changes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import toy

from bench.start_up import commands
from models.base.yaml12 import to_yaml
from models.live.changes import MOST, changes, remember

ROOT = Path(__file__).parents[1]
SLOW = ("torch", "accelerate", "pandas", "matplotlib", "numba", "dvc")

ANSWERS = f"""
import contextlib, importlib, io, json, sys
from stages.command import run
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


def page(command: str) -> str:
    """Return the module that `python -m` runs."""
    return f"{command}.__main__" if (ROOT / command.replace(".", "/")).is_dir() else command


def answers(asked: list[tuple[str, list[str]]]) -> list[tuple[str, int, str, list[str]]]:
    """Run commands one after another in a fresh interpreter; return their status, output, and slow packages so far."""
    lines = "".join(json.dumps([page(command), list(map(str, words))]) + "\n" for command, words in asked)
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS], input=lines, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_help_and_wrong_arguments_load_nothing_slow():
    known = commands(ROOT)
    assert {"stages.train", "tools.predict", "tools.compare", "ci.change_report"} <= set(known)
    asked = [(one, words) for one in known for words in (["--help"], ["--no-such-option"])]
    expected = [(page(one), status, []) for one, _ in asked[::2] for status in (0, 2)]
    given = answers(asked)
    assert [(module, status, slow) for module, status, _, slow in given] == expected
    assert all("usage: python -m " in said for *_, said, _ in given)


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
            ("tools.predict", [file, run, "a.png", "--output", out]),
            ("tools.show", [file]),
            ("tools.describe", [file]),
            ("tools.watch", [file, str(tmp_path / "checkpoints"), out]),
            ("tools.overfit_pose", [file, out]),
            ("tools.import_openpifpaf", ["weights.pkl", file, out]),
        ]
    )
    told = f"error: {file}: train.stepz: unknown key 'stepz' (did you mean 'steps'?)"
    for module, status, said, slow in given:
        first, last = said.splitlines()
        assert (module, status, slow, first.partition("; allowed")[0]) == (module, 1, [], told)
        assert last == f"{file}: types, their arguments and names are checked once this is mended"


@pytest.mark.parametrize("recipe", ["recipes/pose.yaml", "recipes/detection.yaml"])
def test_metrics_of_poses_need_no_pytorch(recipe):
    code = f"""
import sys
from pathlib import Path
from models.recipe.load import load_recipe
from models.report.metrics import build_pictures, build_scores
recipe = load_recipe(Path({recipe!r}), ["metrics"], {{"stride": 8}})
print(len(build_scores(recipe)) > 0, len(build_pictures(recipe)) > 0, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True True False\n"


def test_a_training_says_what_its_recipe_changes_before_pytorch_is_loaded(tmp_path):
    (tmp_path / "toy.yaml").write_text(to_yaml(toy.recipe()))
    code = f"""
import sys
sys.modules["torch"] = None  # cannot be imported
from stages.train import main
main([{str(tmp_path / "toy.yaml")!r}, {str(tmp_path / "run")!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path}/toy.yaml: the first training in {tmp_path}/run\n"
    assert "import of torch halted" in done.stderr


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A repository with a committed recipe."""
    monkeypatch.chdir(tmp_path)
    Path("toy.yaml").write_text(to_yaml(toy.recipe()))
    settings = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    for command in (["init", "-q"], ["add", "toy.yaml"], [*settings, "commit", "-qm", "one"]):
        subprocess.run(["git", *command], check=True)
    return Path("toy.yaml")


def test_a_recipe_is_compared_with_the_commit_and_with_the_last_training(project):
    live = Path("run/live")
    assert changes(project, toy.recipe(), live) == ["toy.yaml: no change of the training since HEAD"]
    heavier = toy.changed({"losses.square.weight": 2.0, "runtime.workers": 7})
    remember(heavier, live)
    assert changes(project, heavier, live) == [
        "toy.yaml, changed since HEAD:",
        f"  losses.square.weight  {toy.recipe()['losses']['square']['weight']} -> 2.0",
        "toy.yaml: no change of the training since the last training in run",
    ]
    remember(toy.recipe(), live)
    without = toy.changed({"losses.square": ..., "losses.new": {"weight": 0.5}})
    first, gone, new = changes(project, without, live)
    assert first == "toy.yaml, changed since HEAD and the last training in run:"
    assert gone.startswith('  losses.square  {"type": "')
    assert gone.endswith("... -> absent")
    assert new == '  losses.new  absent -> {"weight": 0.5}'


def test_few_of_many_changes_are_listed(project):
    other = toy.changed({f"losses.more{number}": {"weight": 1.0} for number in range(MOST + 3)})
    lines = changes(project, other, Path("run/live"))
    assert len(lines) == 1 + MOST + 1
    assert lines[-1] == "  and 3 more"


def test_without_a_commit_or_a_training_there_is_nothing_to_compare_with(tmp_path):
    path = tmp_path / "toy.yaml"
    assert changes(path, toy.recipe(), tmp_path / "run/live") == [f"{path}: the first training in {tmp_path}/run"]
