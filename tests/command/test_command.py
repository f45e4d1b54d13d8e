"""The command `figura`: what it lists, what it runs, and what it loads for that."""

import importlib
import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from figura.base.errors import DISTRIBUTION
from figura.command import COMMANDS, main, overview

ROOT = Path(__file__).parents[2]
BY_NAME = {name: command for group in COMMANDS.values() for name, command in group.items()}


def test_every_command_is_listed_once_with_a_page_that_has_a_main():
    lines = overview().splitlines()
    for name, command in BY_NAME.items():
        assert [line.split() for line in lines].count([name, *command.purpose.split()]) == 1
        assert callable(importlib.import_module(command.module).main)
    assert len(BY_NAME) == sum(map(len, COMMANDS.values()))
    assert all(len(line) <= 80 for line in lines)


def test_the_overview_and_the_help_of_a_systems_command(capsys):
    for arguments in ([], ["--help"], ["help"], ["-h"]):
        assert main(arguments) == 0
        assert capsys.readouterr().out == overview() + "\n"
    with pytest.raises(SystemExit) as ended:
        main(["pose.submit", "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: figura pose.submit")


@pytest.mark.parametrize("name", ["predicct", "pose.scenes", "nothing.submit", "pose..submit", "."])
def test_what_is_no_command(name, capsys):
    assert main([name]) == 2
    assert capsys.readouterr().err.startswith(f"figura: there is no command {name!r}")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("train", "`dvc repro train@NAME`; NAME is one of dvc.yaml"),
        ("eval", "`dvc repro metrics@NAME`"),
        ("prepare", "`dvc repro prepare@NAME`"),
        ("run", "`dvc repro`\n"),
        ("predicct", " (did you mean 'predict'?); `figura --help` lists them\n"),
    ],
)
def test_words_of_other_trainers_lead_to_dvc(name, told, capsys):
    assert main([name, "recipes/pose.yaml"]) == 2
    assert told in capsys.readouterr().err


def test_the_overview_loads_the_standard_library_alone():
    code = (
        "import sys; before = set(sys.modules); from figura.command import main; main(['--help']);"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['figura']"


def test_all_faults_of_all_recipes_are_told(tmp_path, capsys):
    from figura.base.exit_status import run
    from figura.commands.check import main as check

    text = (ROOT / "params.yaml").read_text()
    assert text.count("\n  steps: 2200") == text.count("\n  KL:") == 1
    recipes = {
        "a": text.replace("\n  steps: 2200", "\n  stepz: 2500"),
        "b": text.replace("\n  KL:", "\n  KL: 7\n  KLL:"),
    }
    paths = [tmp_path / f"{name}.yaml" for name in (*recipes, "whole")]
    for path, content in zip(paths, (*recipes.values(), text), strict=True):
        path.write_text(content)
    assert run(check, [str(path) for path in (*paths, tmp_path / "none.yaml")]) == 1
    told = capsys.readouterr()
    assert [line.partition(":")[0] for line in told.out.splitlines()] == [str(paths[2])]
    for fault in (f"{paths[0]}: train.stepz", f"{paths[1]}: losses.KL: ", f"{tmp_path / 'none.yaml'}: "):
        assert fault in told.err


@pytest.mark.parametrize(
    "words",
    ["check pixx.yaml", "describe pixx.yaml", "show pixx.yaml", "watch pixx.yaml runs/a/checkpoints out",
     "predict pixx.yaml a b.png", "export runs/a --recipe pixx.yaml", "import state a --recipe pixx.yaml --output b"],
)  # fmt: skip
def test_a_misspelt_file_of_a_recipe(words, tmp_path, monkeypatch, capsys):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/pix.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 1
    assert capsys.readouterr().err == "error: pixx.yaml: no such file (did you mean 'recipes/pix.yaml'?)\n"


def test_the_root_of_a_project_is_needed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/dvc.yaml: no such file; go to the root of a project\n"


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("vars: [{recipes: {a: {params: [x]}}}]", "recipes.a.params: found ['x']; expected the path of a params file"),
        ("stages: {}", "its `vars` have no map `recipes`; name params files: figura check RECIPE"),
    ],
)
def test_a_faulty_pipeline(pipeline, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "dvc.yaml").write_text(pipeline)
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 1
    assert capsys.readouterr().err == f"error: dvc.yaml: {message}\n"


@pytest.mark.parametrize("trusted", [[], ["--trusted-types-only"], ["--trusted"]])
def test_modules_of_the_current_folder_and_strangers(trusted, tmp_path):
    """`python -m` puts the current folder on the path; figura takes it from there."""
    (tmp_path / "recipe.yaml").touch()
    (tmp_path / "yaml.py").write_text("raise SystemExit('a stranger ran')\n")
    words = ["predict", "recipe.yaml", "runs/a", "a.png", "--output", "out", *trusted]
    done = subprocess.run(
        [sys.executable, "-m", "figura", *words],
        cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    missing = "error: runs/a: no such folder; dvc checkout, dvc pull or dvc repro brings runs/*\n"
    assert done.stderr == (missing if trusted else "a stranger ran\n")


def test_the_version_of_a_clone_that_is_not_installed(monkeypatch, capsys):
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"figura {metadata.version(DISTRIBUTION)}\n"
    monkeypatch.setattr(metadata, "version", unknown)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"figura is not installed; this is the code in {ROOT / 'figura'}\n"


def test_a_folder_that_was_deleted(tmp_path):
    shell = f'cd {tmp_path}; rmdir {tmp_path}; "$0" -c "from figura.command import main; exit(main([\'check\']))"'
    done = subprocess.run(
        ["sh", "-c", shell, sys.executable],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: the current folder was deleted; go to one that exists"
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_disk_that_takes_no_text():
    command = [sys.executable, "-m", "figura", "--help"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: standard output: No space left on device\n")


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["states"], 128 + signal.SIGPIPE)])
def test_a_reader_that_goes_away(arguments, status):
    """The pipe is closed before anything is written into it, as by a `head` that is fast."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "figura", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (status, "")
